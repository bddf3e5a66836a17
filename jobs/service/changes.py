"""Changes of ownership in order, for watchers: a bounded memory and the log.

Each change has a place (version of ownership_events, number in its commit), which is the same in
every replica, so that a client that was cut off goes on at any of them. Older changes than those in
memory are read from the table's log; what the log no longer has can't be resumed.
"""

import asyncio
import re
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jobs.adapters.delta.rows import ROUTE_COLUMNS, routes_of
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_log import LostError, commits_from
from jobs.adapters.delta.table_scan import read_added
from jobs.adapters.delta.tables import table_path
from jobs.adapters.following.view import Changes
from lbcore.model.tables import OWNERSHIP_EVENTS
from lbcore.route.bundles import BundleRoute

Place: TypeAlias = tuple[int, int]
"""Version of ownership_events and number within its commit."""

Rendered: TypeAlias = dict[tuple[Place, Place, str], bytes]
"""Place before, place after, namespace ("" = all) → the events between as text."""

END = 1 << 40
"""The number after all of a commit."""

_PLACE = re.compile(r"([0-9]{1,12})\.([0-9]{1,12}|end)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that became current, and its place."""

    place: Place
    route: BundleRoute


class ChangeFeed:
    """Remembers the last changes; the follower adds, any number of watchers read.

    kept_max: changes in memory. Watchers wait in the event loop, the follower's thread adds.
    rendered: events of the last changes as text, shared by watchers. table: the present table's id.
    history: number of tables that were replaced; places of an earlier table are invalid in this
    one. end: place of the newest change, or end of the newest commit. added: wakes those who wait.
    """

    def __init__(self, tables: TablePlace, cluster: str, kept_max: int) -> None:
        self.rendered: Rendered = {}
        self.history = 0
        self.table = ""
        self._path = table_path(tables, OWNERSHIP_EVENTS.name)
        self._cluster = cluster
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._kept: list[RecordChange] = []
        self._known_from: Place = (0, 0)
        self._log_from: Place = (0, 0)
        self.end: Place = (-1, END)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.added = Broadcast()

    def add(self, changes: Changes) -> None:
        """Take over what the follower has published; readers don't wait for it."""
        new = [one for version, routes in changes.commits for one in changes_of(version, routes)]
        with self._lock:
            self.table = changes.table_id.partition("-")[0]
            if changes.is_whole:
                self._kept = []
                self._known_from = (changes.version, END)
                self.rendered = {}  # a watcher that renders now fills the old one
            if changes.is_other_table:
                self._log_from = self._known_from
                self.history += 1
            self._kept += new
            surplus = len(self._kept) - self._kept_max
            if surplus > self._kept_max // 10:
                self._known_from = self._kept[surplus - 1].place
                self._kept = self._kept[surplus:]
            self.end = (changes.version, END)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.added.notify_all)

    def after(self, place: Place, limit: int) -> Sequence[RecordChange] | None:
        """The next changes after a place, at most `limit`; None when memory begins later."""
        with self._lock:
            if place < self._known_from:
                return None
            start = bisect_right(self._kept, place, key=lambda change: change.place)
            return self._kept[start : start + limit]

    def join(self) -> None:
        """Register the running event loop, which each added change wakes from now on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self.added = loop, Broadcast()

    def read_log(self, place: Place, limit: int) -> tuple[Sequence[RecordChange], Place] | None:
        """Return the changes after a place in the table's log and the end place; blocks.

        At least `limit` changes, or all up to the end. None if the log no longer reaches back, or
        was rewritten in between. None also if the place belongs to another table's log.
        """
        if place < self._log_from:
            return None
        found: list[RecordChange] = []
        reached = place
        try:
            for commit in commits_from(self._path, place[0]) if place <= self.end else ():
                if commit.needs_reload:
                    return None
                parts = read_added(self._path, commit, ROUTE_COLUMNS, self._cluster)
                routes = (route for rows in parts for route in routes_of(rows)[0])
                changes = changes_of(commit.version, routes)
                found += [change for change in changes if change.place > place]
                reached = (commit.version, END)
                if len(found) >= limit or reached >= self.end:
                    return found, reached
        except LostError:
            return None
        return None if reached < self.end else (found, reached)


def changes_of(version: int, routes: Iterable[BundleRoute]) -> Iterator[RecordChange]:
    """The records of a commit with their places."""
    for number, route in enumerate(routes):
        yield RecordChange(place=(version, number), route=route)


def format_place(place: Place) -> str:
    """The id of a server-sent event."""
    version, number = place
    return f"{version}.{'end' if number == END else number}"


def parse_place(text: str) -> Place | None:
    """Parse what `format_place` wrote; None for any other text."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    return int(found[1]), END if found[2] == "end" else int(found[2])


AT_ONCE = 16


class Broadcast:
    """Wakes all that wait in one event loop, at most 16 in one turn of it."""

    def __init__(self) -> None:
        self._listening: dict[asyncio.Future[None], None] = {}
        self._due: deque[asyncio.Future[None]] = deque()

    async def wait(self, timeout_s: float, *others: "asyncio.Future[None]") -> None:
        """Wait for the next `notify_all`, for one of the others, or until time is up."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening[mine] = None
        try:
            await asyncio.wait(
                {mine, *others}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self._listening.pop(mine, None)
            mine.cancel()

    def notify_all(self) -> None:
        """Wake those who listen now; called in their event loop."""
        is_idle = not self._due
        self._due += self._listening
        self._listening.clear()
        if is_idle:
            self._wake_some()

    def _wake_some(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            mine = self._due.popleft()
            if not mine.done():
                mine.set_result(None)
        if self._due:
            self._due[0].get_loop().call_soon(self._wake_some)
