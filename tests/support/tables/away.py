"""What happens to a table while a reader of it is suspended: two hours of commits, and worse."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import write_deltalake

from jobs.adapters.delta.table_log import log_path
from jobs.adapters.delta.tables import ensure_tables, open_table, table_path
from lbcore.model.tables import (
    BUNDLE_OWNERSHIP,
    COMMANDS,
    CONFIG_VERSIONS,
    LOAD_HISTORY,
    OWNERSHIP_EVENTS,
    TABLES,
)
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    CLUSTER,
    NAMESPACE,
    Row,
    TablesWriter,
    arrow_rows,
    owned,
)

HOURS_S = 2 * 3_600
MINUTE_MS = 60_000


class LivingTables:
    """Every table that somebody follows, with a commit of each a step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.step = 0
        self._writer = TablesWriter(root)
        self._writer.namespaces({NAMESPACE: "crc32"})
        self._writer.brokers(*BROKER_NAMES)
        self._writer.batch(owned(NAMESPACE, 4, BROKER_NAMES))
        self.go_on(1)

    def go_on(self, steps: int) -> None:
        """In each step a bundle moves, a broker and a namespace come, and all else has a row."""
        self._writer.tables = ensure_tables(self.root)  # whatever has become of the old handles
        for _ in range(steps):
            self.step = step = self.step + 1
            self._writer.brokers(f"new-{step}")
            self._writer.namespaces({f"acme/new-{step}": "crc32"})
            moved = Row(bundle=BUNDLES[0], version=step + 1, source="b1", destination=f"new-{step}")
            self._writer.batch([moved])
            self._append(CONFIG_VERSIONS.name, number=step, settings=f'{{"a.b": {step}}}')
            self._append(LOAD_HISTORY.name, broker="b1", minute_ms=step * MINUTE_MS, score=step)
            command = {"command_id": f"c{step}", "status": "done", "result": "{}"}
            self._append(COMMANDS.name, **command)

    def _append(self, name: str, **row: Any) -> None:
        table = next(table for table in TABLES if table.name == name)
        rows = arrow_rows(table, [row], cluster=CLUSTER, at_ms=self._writer.now_ms)
        write_deltalake(str(table_path(self.root, name)), rows, mode="append")

    def clean_up(self) -> None:
        """As upkeep does once the log's retention has passed since the last commit."""
        for name in names():
            path = table_path(self.root, name)
            for file in log_path(path).iterdir():
                then = time.time() - HOURS_S
                os.utime(file, (then, then))
            table = open_table(self.root, name)
            table.create_checkpoint()
            table.cleanup_metadata()

    def join_files(self) -> None:
        """As upkeep does: the small files become one, and are removed."""
        for name in names():
            table = open_table(self.root, name)
            table.optimize.compact()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def names() -> Sequence[str]:
    return tuple(
        table.name
        for table in TABLES
        if table in (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP, COMMANDS, CONFIG_VERSIONS, LOAD_HISTORY)
        or table.name in ("brokers", "namespaces")
    )


def _go_on(tables: LivingTables) -> None:
    tables.go_on(3)


def _compact(tables: LivingTables) -> None:
    tables.go_on(2)
    tables.join_files()


def _compact_unseen(tables: LivingTables) -> None:
    """The log has the commits, their files are gone."""
    tables.go_on(2)
    tables.join_files()
    tables.go_on(1)


def _cut(tables: LivingTables) -> None:
    tables.go_on(4)
    tables.clean_up()


def _cut_and_go_on(tables: LivingTables) -> None:
    _cut(tables)
    tables.go_on(2)


def _cut_behind(tables: LivingTables) -> None:
    """Only what the reader has read is cleaned away."""
    tables.clean_up()
    tables.go_on(2)


def _half_cut(tables: LivingTables) -> None:
    """Some commits after the reader's are there, some are not."""
    tables.go_on(2)
    logs = [Path(str(log_path(table_path(tables.root, name)))) for name in names()]
    saved = {path: path.read_bytes() for log in logs for path in sorted(log.glob("*.json"))}
    tables.go_on(3)
    tables.clean_up()
    for path, content in saved.items():
        path.write_bytes(content)


def _log_file_lost(tables: LivingTables) -> None:
    """A file of the log is gone without a checkpoint past it, which delta-rs can't read either."""
    before = {name: open_table(tables.root, name).version() for name in names()}
    tables.go_on(2)
    for name, version in before.items():
        (log_path(table_path(tables.root, name)) / f"{version + 1:020d}.json").unlink()


def _made_anew(tables: LivingTables, steps: int) -> None:
    for path in tables.root.iterdir():
        shutil.rmtree(path)
    again = LivingTables(tables.root)
    again.go_on(steps)
    tables.step = again.step


def _made_anew_shorter(tables: LivingTables) -> None:
    _made_anew(tables, 0)


def _made_anew_as_long(tables: LivingTables) -> None:
    _made_anew(tables, tables.step - 1)


def _made_anew_longer(tables: LivingTables) -> None:
    _made_anew(tables, tables.step + 3)


def _made_anew_and_cut(tables: LivingTables) -> None:
    _made_anew(tables, tables.step + 3)
    tables.clean_up()


def _column_added(tables: LivingTables) -> None:
    for name in names():
        key = "delta.checkpointInterval"
        open_table(tables.root, name).alter.set_table_properties({key: "50"})
    tables.go_on(1)


HAPPENED: Mapping[str, Callable[[LivingTables], None]] = {
    "nothing": lambda _: None,
    "commits": _go_on,
    "compaction": _compact,
    "compaction and vacuum of new files": _compact_unseen,
    "log cut": _cut,
    "log cut, then commits": _cut_and_go_on,
    "log cut behind the reader": _cut_behind,
    "log cut in between": _half_cut,
    "made anew, shorter": _made_anew_shorter,
    "made anew, as long": _made_anew_as_long,
    "made anew, longer": _made_anew_longer,
    "made anew and cut": _made_anew_and_cut,
    "properties changed": _column_added,
}
"""After each of these a reader is right with its next look."""

UNREADABLE: Mapping[str, Callable[[LivingTables], None]] = {"log file lost": _log_file_lost}
"""After these nobody can read the tables, and a reader must say how old its answer is."""
