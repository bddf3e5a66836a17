"""What a soak is judged by: the tables against the log of their batches, and answers against both.

Each function returns what is wrong, in words; nothing when all is right.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.table_writer import PENDING, BatchRowsError, newest_batch, read_batch_rows
from jobs.adapters.http.client import LookupConnection
from jobs.adapters.spark.batch_sink import EVENTS
from jobs.local.prober import EventsHistory
from lbcore.model.tables import BUNDLE_OWNERSHIP, COMMANDS, TABLES
from lbcore.sim.judge.judge import JudgedEvent, ProbedAnswer
from tests.soak.orders import Answered
from tests.support.tables.small_batches import rows

_POLL_S = 0.05
_LISTED_MAX = 5
_TIMEOUT_MS = 10_000

Rows = list[dict[str, Any]]


@dataclass
class Asker:
    """Looks topics up all the time, and keeps every answer."""

    url: str
    topics: Sequence[str]
    answers: list[ProbedAnswer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_asking, daemon=True)
        self._thread.start()

    def _keep_asking(self) -> None:
        connection = LookupConnection(self.url, _TIMEOUT_MS)
        while not self._stopping.wait(_POLL_S):
            topic = self.topics[len(self.answers) % len(self.topics)]
            self.answers.append(connection.look_up(topic))
        connection.close()

    def stop(self) -> None:
        """End with the question that is under way."""
        self._stopping.set()
        self._thread.join()


@dataclass
class Recorder:
    """Follows ownership_events: each transition, and the rows that each batch owes other tables."""

    tables: Path
    transitions: list[JudgedEvent] = field(default_factory=list)
    owed: list[Mapping[str, Rows]] = field(default_factory=list)
    missed: int = 0

    def __post_init__(self) -> None:
        self._history = EventsHistory(self.tables / EVENTS)
        self._table = DeltaTable(str(self.tables / EVENTS))
        self._last: object = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_following, daemon=True)
        self._thread.start()

    def _keep_following(self) -> None:
        while not self._stopping.wait(_POLL_S):
            self._look()

    def _look(self) -> None:
        self.transitions += self._history.poll()[0]
        before = self._table.version()
        self._table.update_incremental()
        if self._table.version() == before:
            return
        newest = newest_batch(self._table)
        rest = newest.metadata.get(PENDING) if newest else None
        if rest is None or rest == self._last:
            return
        self._last = rest
        try:
            owed = read_batch_rows(self.tables / EVENTS, rest)
        except (BatchRowsError, pa.ArrowInvalid):
            self.missed += 1
            return
        self.owed.append({name: table.to_pylist() for name, table in owed.items()})

    def stop(self) -> None:
        """Take in what is there, and end."""
        self._stopping.set()
        self._thread.join()
        self._look()


def wrong_answers(answers: Iterable[ProbedAnswer], transitions: Iterable[JudgedEvent]) -> list[str]:
    """Answers that name a broker which the table at the answer's version does not name."""
    chains: dict[str, list[JudgedEvent]] = {}
    for one in transitions:
        chains.setdefault(one.bundle, []).append(one)
    wrong = []
    for answer in answers:
        if not answer.broker:
            continue
        chain = chains.get(answer.bundle, [])
        known = [one for one in chain if one.table_version <= answer.table_version]
        if not known or known[-1].answer != answer.broker:
            wrong.append(f"{answer}, but the table has {known[-1:]}")
    return wrong


def wrong_versions(events: Rows) -> Iterator[str]:
    """Bundles whose versions do not count up by one, or have one twice."""
    versions: dict[str, list[int]] = {}
    for row in events:
        versions.setdefault(row["bundle"], []).append(row["version_id"])
    for bundle, found in sorted(versions.items()):
        found.sort()
        if found != list(range(found[0], found[0] + len(found))):
            yield f"{bundle} has the versions {found}"


def lost_rows(tables: Path, owed: Sequence[Mapping[str, Rows]]) -> Iterator[str]:
    """Rows that a batch owed and that a table does not have: its fold is not the table."""
    for table in TABLES:
        batches = [found for batch in owed if (found := batch.get(table.name))]
        if not batches or table.name == BUNDLE_OWNERSHIP.name:
            continue
        there = rows(tables, table.name)
        if not table.key:
            yield from _lost_of_log(table.name, there, [row for batch in batches for row in batch])
            continue
        names = ("cluster", *table.key)
        known = {tuple(row[name] for name in names): row for row in there}
        if len(known) != len(there):
            yield f"{table.name} has a key twice"
        folded = {tuple(row[name] for name in names): row for batch in batches for row in batch}
        for key, row in folded.items():
            found = known.get(key)
            if found is None or (found != row and found["at_ms"] <= row["at_ms"]):
                yield f"{table.name}: {row} was owed, and {found} is there"


def _lost_of_log(name: str, there: Rows, owed: Rows) -> Iterator[str]:
    """A row of a batch that was seen stands once for each time that it was owed."""
    batches = {(row["cluster"], row["batch_id"], row["at_ms"]) for row in owed}
    found = Counter(
        repr(row) for row in there if (row["cluster"], row["batch_id"], row["at_ms"]) in batches
    )
    wanted = Counter(repr(row) for row in owed)
    yield from (f"{name}: {row} is missing" for row in (wanted - found))
    yield from (f"{name}: {row} is there too often" for row in (found - wanted))


def untrue_ends(tables: Path, answered: Sequence[Answered]) -> Iterator[str]:
    """Orders whose answer is not the table's, that have no end, or whose effect is not there.

    One that was given up unanswered (503 says that it may still be carried out) may have any end.
    """
    ends = {row["command_id"]: row for row in rows(tables, COMMANDS.name)}
    wanted: dict[tuple[str, tuple[str, ...]], tuple[bool, str]] = {}
    for one in answered:
        row = ends.get(one.command_id)
        said = one.outcome
        is_open = row is not None and row["status"] == "accepted"
        if is_open or (said and (row is None or row["status"] != said)):
            yield f"{one} is answered, and the table has {row}"
        if row and row["status"] == "done" and one.order.sets:
            wanted[one.order.sets] = (one.order.is_made, one.command_id)
    for (name, key), (is_made, command_id) in wanted.items():
        if is_there(rows(tables, name), name, key) != is_made:
            yield f"{name} {key}: not as {command_id} left it, which was done"
    for one in answered:
        if one.order.kind in ("split_bundle", "set_config") and one.status == 200:
            name = EVENTS if one.order.kind == "split_bundle" else "config_versions"
            if one.command_id not in {row["command_id"] for row in rows(tables, name)}:
                yield f"{name} has nothing of {one}, which was done"


def is_there(there: Rows, name: str, key: tuple[str, ...]) -> bool:
    """Whether a table of small things has one."""
    table = next(table for table in TABLES if table.name == name)
    found = [row for row in there if tuple(row[column] for column in table.key) == key]
    return any(bool(row.get("is_set", not row.get("is_deleted"))) for row in found)


def first(found: Iterable[str]) -> str:
    """The first of what is wrong, one a line."""
    listed = list(found)
    return json.dumps([len(listed), *listed[:_LISTED_MAX]], indent=1) if listed else ""
