"""The small tables as rows in memory, kept current in the background.

A table is read again when its log has a new version, or the log does not continue the version that
was read (`TableTail`). Handlers see each table at one moment; `v1.reading` reads the big tables on
request. What is kept is of the size of the cluster, however long the service runs.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from jobs.adapters.delta.rows import PRESENT, of_cluster
from jobs.adapters.delta.table_location import TablePlace, is_store, table_place
from jobs.adapters.delta.table_log import LostError, log_path
from jobs.adapters.delta.table_scan import TableTail, check_newest, read_added, rows_in, scan
from jobs.adapters.delta.tables import open_table, table_path
from jobs.adapters.processes.clocks import boot_ms
from jobs.console import in_one_line
from lbcore.config.load import as_started, newest_reported
from lbcore.config.tree import Config
from lbcore.model.names import namespace_of_topic
from lbcore.model.tables import (
    AUDIT,
    BROKERS,
    BUNDLE_OWNERSHIP,
    COMMANDS,
    CONFIG_VERSIONS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    LOAD_HISTORY,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PLANNING_MEMORY,
    POLICIES,
    RECORDS,
    REJECTED_REPORTS,
    SETTINGS_IN_FORCE,
    TABLES,
    Table,
)
from lbcore.route.known_topics import KnownTopics
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.namespace_commands import TOPIC, read_value

logger = logging.getLogger(__name__)

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = tuple[Row, ...]

_BIG_TABLES = frozenset(
    table.name
    for table in (
        OWNERSHIP_EVENTS,
        BUNDLE_OWNERSHIP,
        COMMANDS,
        AUDIT,
        DECISIONS,
        DECISION_CANDIDATES,
        DECISION_EFFECTS,
        LOAD_HISTORY,
        REJECTED_REPORTS,
        PLANNING_MEMORY,
    )
)
SMALL_TABLES = tuple(table for table in TABLES if table.name not in _BIG_TABLES)
"""Tables that are held whole: with one row for each thing that exists, not for each event."""

_JSON: Mapping[str, Mapping[str, type]] = {
    BROKERS.name: {"advertised_listeners": dict},
    NAMESPACES.name: {"properties": dict},
    POLICIES.name: {"value": dict},
    CONFIG_VERSIONS.name: {"settings": dict},
}
"""JSON columns and the type that handlers expect unchecked."""

_HISTORY_MS = 600_000
_POLL_MS = 200
_STORE_POLL_MS = 1_000  # a request a table


class TableViews:
    """One cluster's rows in the small tables, newest load, and changed settings.

    One thread refreshes; any thread reads: each view is swapped whole. newest_load: each broker's
    newest row of load_history, of the ten minutes before the newest one. topics: those that were
    created, by namespace. topic_count: of those that brokers can serve, each partition counted.
    settings: changed by commands, "section.name" -> value.
    """

    def __init__(self, root: str | TablePlace, cluster: str) -> None:
        self.root = table_place(root)
        self.cluster = cluster
        self.last_error = ""
        self.confirmed_ms = 0
        self._rows: dict[str, Rows] = {table.name: () for table in SMALL_TABLES}
        self._versions: dict[str, int] = {}
        self.newest_load: Mapping[str, Row] = {}
        self.settings: Mapping[str, Any] = {}
        self.topics: Mapping[str, KnownTopics] = {}
        self.topic_count = 0
        self._tails: dict[str, TableTail] = {}
        self._unread: dict[str, str] = {}
        self._started: tuple[Rows, Config, Config] | None = None

    def rows(self, table: str) -> Rows:
        """The rows of a small table, of things that still exist; none before it was read.

        Of policies those that are set and one of each kind that was, of settings the newest.
        Raises KeyError for another table.
        """
        return self._rows[table]

    def version(self, table: str) -> int:
        """The version that `rows` are of; -1 before the table was read."""
        return self._versions.get(table, -1)

    def started(self, config: Config) -> Config:
        """Return the configuration the job was started with.

        Settings that the job does not report are those given.
        """
        rows = self.rows(SETTINGS_IN_FORCE.name)
        if self._started is None or self._started[0] is not rows or self._started[1] is not config:
            self._started = rows, config, as_started(config, rows)
        return self._started[2]

    def run(self, stop: threading.Event) -> None:
        """Refresh until `stop` is set; nothing but `stop` ends it."""
        poll_ms = _STORE_POLL_MS if is_store(self.root) else _POLL_MS
        while not stop.is_set():
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 the outermost loop: serve on with what we have
                self._record_fault(in_one_line(error))
            stop.wait(poll_ms / 1000)

    def refresh(self) -> None:
        """Take over what is new; a table that can't be read keeps its rows.

        `confirmed_ms`: start of the newest refresh that could read all of them, by the boot clock.
        """
        started_ms = boot_ms()
        faults = list(filter(None, map(self._refresh, (*SMALL_TABLES, LOAD_HISTORY))))
        if not faults:
            self.confirmed_ms = started_ms
        unread = [self._unread[name] for name in sorted(self._unread)]
        self._record_fault("; ".join(faults + unread))

    def _refresh(self, table: Table) -> str:
        """Refresh a table; returns why it can't be read, "" if it can."""
        try:
            tail = self._tails.get(table.name)
            if tail is not None:
                with suppress(LostError):
                    self._read_on(table, tail)
                    return ""
            log = log_path(table_path(self.root, table.name))
            if table.name in self._versions or log.is_dir():
                self._load_whole(table)
        except Exception as error:  # noqa: BLE001 one table's fault must not stop the others' refresh
            self._tails.pop(table.name, None)
            return in_one_line(error)
        return ""

    def _read_on(self, table: Table, tail: TableTail) -> None:
        """Take over the new commits; raises LostError where the log does not lead on."""
        commits = tail.new_commits()
        if not commits:
            return
        if table.name != LOAD_HISTORY.name or any(commit.needs_reload for commit in commits):
            self._load_whole(table)
            return
        columns = [column.name for column in table.columns if column.name != "cluster"]
        for commit in commits:
            for rows in read_added(tail.path, commit, columns, self.cluster):
                self._take_load(self.newest_load, rows.to_pylist())

    def _load_whole(self, table: Table) -> None:
        handle = open_table(self.root, table.name)
        condition = f"{of_cluster(self.cluster)} AND {PRESENT.get(table.name, 'true')}"
        if table.name == LOAD_HISTORY.name:
            minutes = scan(handle, ["minute_ms"], condition)["minute_ms"].to_pylist()
            condition += f" AND minute_ms >= {max(minutes, default=0) - _HISTORY_MS}"
        found: list[Row] = list(rows_in(scan(handle, None, condition)))
        tail = TableTail(table_path(self.root, table.name), handle)
        if table.name == LOAD_HISTORY.name:
            self._take_load({}, found)
        else:
            found = self._readable(table, found)
            self._rows[table.name] = held = _KEPT.get(table.name, tuple)(tuple(found))
            if table.name == CONFIG_VERSIONS.name:
                self.settings = json.loads(held[0]["settings"]) if held else {}
            if table.name == RECORDS.name:
                self._take_topics(held)
        self._versions[table.name] = tail.version
        self._tails[table.name] = tail
        check_newest(tail.path)

    def _readable(self, table: Table, found: Sequence[Row]) -> list[Row]:
        """Return the rows; for an unreadable one its earlier row, if there is one."""
        faults = {at: fault for at, row in enumerate(found) if (fault := _fault(table, row))}
        known = {_key(table, row): row for row in self._rows[table.name]} if faults else {}
        before = {at: known.get(_key(table, found[at])) for at in faults}
        rows = [before.get(at, row) for at, row in enumerate(found)]
        self._unread.pop(table.name, None)
        if faults:
            first = min(faults)
            name = "/".join(_key(table, found[first]))
            self._unread[table.name] = (
                f"{len(faults)} rows of {table.name} can't be read, what they are about stays as "
                f"it was known before: {faults[first]} of {name}; run the version that wrote it, "
                "or compare the tables with a backup"
            )
        return [row for row in rows if row is not None]

    def _take_topics(self, rows: Rows) -> None:
        created: dict[str, dict[str, int]] = {}
        for row in rows:
            if row["record_type"] == TOPIC:
                name, partitions = row["name"], int(row["value"])
                created.setdefault(namespace_of_topic(name), {})[name] = partitions
        self.topics = {name: KnownTopics.of(topics) for name, topics in created.items()}
        self.topic_count = sum(count or 1 for of in created.values() for count in of.values())

    def _take_load(self, known: Mapping[str, Row], found: Sequence[Row]) -> None:
        newest = dict(known)
        for row in found:
            if row["minute_ms"] >= newest.get(row["broker"], row)["minute_ms"]:
                newest[row["broker"]] = row
        kept_ms = max((row["minute_ms"] for row in newest.values()), default=0) - _HISTORY_MS
        self.newest_load = {
            name: row for name, row in newest.items() if row["minute_ms"] >= kept_ms
        }

    def _record_fault(self, text: str) -> None:
        """Keep what is wrong, "" = nothing, and log it once while it lasts."""
        if text and text != self.last_error:
            logger.warning("views_not_refreshed", extra={"fields": {"error": text}})
        self.last_error = text


def _fault(table: Table, row: Row) -> str:
    """Return what is wrong with a row's first bad JSON column, "" = nothing."""
    for column, kind in _JSON.get(table.name, {}).items():
        try:
            value = json.loads(row[column])
        except (TypeError, ValueError, RecursionError):
            return f"{column} is no JSON"
        if not isinstance(value, kind):
            return f"{column} is no JSON object"
    if table.name == RECORDS.name:
        try:
            read_value(row["record_type"], json.loads(row["value"]))
        except (TypeError, ValueError, RecursionError, FieldRefusal):
            return "value is no JSON of its type"
    return ""


def _key(table: Table, row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in table.key or ("number",))


def _in_force(found: Rows) -> Rows:
    """Return the policies that are set, and a removed one of each kind.

    The removed one tells "none any more" from "never any".
    """
    taken_back = {row["kind"]: row for row in found if not row["is_set"]}
    return (*(row for row in found if row["is_set"]), *taken_back.values())


def _newest(found: Rows) -> Rows:
    """Return the newest row: the settings in force."""
    return (max(found, key=lambda row: int(row["number"])),) if found else ()


_KEPT: Mapping[str, Callable[[Rows], Rows]] = {
    POLICIES.name: _in_force,
    CONFIG_VERSIONS.name: _newest,
    SETTINGS_IN_FORCE.name: lambda found: tuple(newest_reported(found)),
}
"""Selection of the rows to hold, of tables whose rows grow in number for ever."""
