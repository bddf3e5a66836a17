"""Follows the table `commands` for those who wait for what became of theirs.

Decides which row of a command counts: a final one before `accepted`, else the newest. One thread
reads for any number of waiters, without Spark; it rests while nobody waits. At each new commit
(`table_tail`) the table is asked for all that is waited for. Used by `command_client`.
"""

import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.rows import is_one_of, of_cluster
from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_tail import LostError, TableTail
from jobs.adapters.delta.tables import open_table, table_path
from jobs.console import in_one_line
from lbcore.balancer.state.book import ACCEPTED, REFUSED
from lbcore.balancer.tasks.waiting import identity_of
from lbcore.model.tables import COMMANDS

logger = logging.getLogger(__name__)

_COLUMNS = (
    "command_id",
    "kind",
    "arguments",
    "principal",
    "status",
    "reason",
    "result",
    "at_ms",
)
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """A row of `commands`.

    status: accepted (the end is yet to come), done, refused, failed, ... asked: the identity of the
    command that the row is of, "" = not known.
    """

    command_id: str
    kind: str
    status: str
    reason: str
    result: Mapping[str, Any]
    at_ms: int
    asked: str = ""

    @property
    def is_final(self) -> bool:
        """True if nothing more will come."""
        return self.status != ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWatch:
    """One waiter. first: any row of the command; final: the one that ends it.

    asked: the identity of the command that was sent; who sent another under an id that had been
    used is told that, and nothing of what became of the first. "" = only the id is known.
    Both are futures of `concurrent.futures`; asyncio waits for them with `asyncio.wrap_future`.
    """

    command_id: str
    asked: str = ""
    first: "Future[CommandOutcome]" = field(default_factory=Future)
    final: "Future[CommandOutcome]" = field(default_factory=Future)

    def notify(self, outcome: CommandOutcome) -> None:
        """Let the waiter know of a row; one that comes again changes nothing."""
        if self.asked and outcome.asked != self.asked:
            outcome = _of_another(outcome)
        for future, is_meant in ((self.first, True), (self.final, outcome.is_final)):
            if is_meant and not future.done() and future.set_running_or_notify_cancel():
                future.set_result(outcome)


class OutcomeFollower:
    """Resolves watches from the table; safe to use from any thread.

    tables: the folder of the tables, which need not be there yet.
    """

    def __init__(self, tables: str | TablePlace, cluster: str, *, poll_ms: int = 100) -> None:
        self._root = table_place(tables)
        self._cluster = cluster
        self._poll_s = poll_ms / 1000
        self._lock = threading.Condition()
        self._watches: dict[str, list[OutcomeWatch]] = {}
        self._new: set[str] = set()
        self._tail: TableTail | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.last_error = ""

    def watch(self, command_id: str, asked: str = "") -> OutcomeWatch:
        """Wait for a command from now on; what the table has of it already counts.

        Give the watch to `forget` when nobody waits any more.
        """
        watch = OutcomeWatch(command_id=command_id, asked=asked)
        with self._lock:
            self._watches.setdefault(command_id, []).append(watch)
            self._new.add(command_id)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="ballast-outcomes", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()
        return watch

    def forget(self, watch: OutcomeWatch) -> None:
        """Stop waiting; its futures are cancelled unless they are done."""
        with self._lock:
            left = [one for one in self._watches.get(watch.command_id, []) if one is not watch]
            if left:
                self._watches[watch.command_id] = left
            else:
                self._watches.pop(watch.command_id, None)
        watch.first.cancel()
        watch.final.cancel()

    def close(self) -> None:
        """End the thread; who still waits is told nothing more."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait_for_waiters():
            pause_s = self._poll_s
            try:
                self._poll()
            except Exception as error:  # noqa: BLE001 the outermost loop: look again, tell later
                self.last_error = in_one_line(error)
                self._tail, pause_s = None, _AGAIN_S
            else:
                self.last_error = ""
            with self._lock:
                self._lock.wait_for(lambda: self._is_closed or bool(self._new), pause_s)

    def _wait_for_waiters(self) -> bool:
        """False when the follower was closed."""
        with self._lock:
            if not self._watches:
                self._tail = None  # what passes meanwhile is found by the next scan
                self._lock.wait_for(lambda: self._is_closed or bool(self._watches))
            return not self._is_closed

    def _poll(self) -> None:
        """Ask the table for all that is waited for, if it or what is waited for is new."""
        with self._lock:
            wanted = sorted(self._watches)
            is_due = not self._new.isdisjoint(wanted) or self._tail is None
            self._new.clear()
        try:
            if not is_due and self._tail is not None and not self._tail.new_commits():
                return
        except LostError:
            pass
        table = open_table(self._root, COMMANDS.name)
        named = is_one_of("command_id", wanted)
        self._notify(scan(table, _COLUMNS, f"{of_cluster(self._cluster)} AND {named}"))
        self._tail = TableTail(table_path(self._root, COMMANDS.name), table)

    def _notify(self, rows: pa.Table) -> None:
        found = [outcome for row in rows.to_pylist() if (outcome := _readable(row)) is not None]
        for outcome in sorted(found, key=lambda one: (one.at_ms, one.status)):
            with self._lock:
                watches = list(self._watches.get(outcome.command_id, ()))
            for watch in watches:
                watch.notify(outcome)


def _readable(row: Mapping[str, Any]) -> CommandOutcome | None:
    """Return the row's outcome; None, with a log line, for an unreadable one."""
    try:
        arguments = json.loads(row["arguments"] or "{}")
        return CommandOutcome(
            command_id=row["command_id"],
            kind=row["kind"],
            status=row["status"],
            reason=row["reason"],
            result=json.loads(row["result"] or "{}"),
            at_ms=row["at_ms"],
            asked=identity_of(row["kind"], arguments, row["principal"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        fields = {"command_id": str(row.get("command_id")), "error": f"{type(error).__name__}"}
        logger.warning("outcome_put_aside", extra={"fields": fields})
        return None


def _of_another(outcome: CommandOutcome) -> CommandOutcome:
    """Return the refusal of a command under an id that was used before.

    The id belongs to another command, or to somebody else's.
    """
    reason = (
        f"the command id {outcome.command_id} was used before, for another command or by somebody "
        "else: nothing was done, send it under an id of its own"
    )
    return replace(outcome, kind="", status=REFUSED, reason=reason, result={})
