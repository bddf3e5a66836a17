"""Copy of old history from the job's tables to archive tables, beside the job.

Decides when a row is copied. The streaming job's upkeep deletes it from its table once the archive
has it (`table_upkeep`). So each table has one writer, and this may be started by hand or by cron
while the job runs, killed at any point and started again. Steps of a table, each repeatable: make
the archive, MERGE missing rows month by month, join the files of a month in Z-order, VACUUM.
"""

import argparse
import sys
import time
from calendar import timegm
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.table_location import (
    TablePlace,
    delta_options,
    store_errors,
    table_place,
)
from jobs.adapters.delta.table_log import sync_commits
from jobs.adapters.delta.table_scan import file_sizes, is_delta, open_delta, scan
from jobs.adapters.delta.tables import arrow_schema, table_path
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import load_settings
from jobs.console import CommandError, Exit, first_line, json_line, say
from jobs.parser import Parser, add_settings_options, run_process
from lbcore.model.tables import ARCHIVES, MONTH, Archive
from lbcore.model.times import DAY_MS

_FILE_BYTES = 128_000_000
_PROPERTIES = {
    # only properties that both Spark and delta-rs know
    "delta.enableDeletionVectors": "false",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
_NO_RETRY = CommitProperties(max_commit_retries=0)
"""Two runs at once: one of them ends at the first commit of the other."""


def main(
    argv: Sequence[str] | None = None, *, passed: Callable[[str], None] = lambda _: None
) -> int:
    """Copy due rows; print one JSON line per table. passed: gets each step (tests)."""
    parser = Parser(prog="archive_history", description=__doc__)
    parser.add_argument(
        "--tables", type=table_place, required=True, help="folder of the Delta tables of a job"
    )
    add_settings_options(parser)
    return run_process(parser, partial(_run, passed=passed), argv)


def _run(args: argparse.Namespace, passed: Callable[[str], None]) -> int:
    config = load_settings(args.config or None, args.set)
    until_ms = wall_ms() - config.pipeline.history_days * DAY_MS
    for archive in ARCHIVES.values():
        say(json_line(_archive(args.tables, archive, until_ms, passed)))
    return Exit.DONE


def _archive(
    root: TablePlace, archive: Archive, until_ms: int, passed: Callable[[str], None]
) -> dict[str, Any]:
    """Bring one archive up to a time; return what was done. Raises CommandError."""
    source, place = table_path(root, archive.table.name), table_path(root, archive.name)
    if not is_delta(source):
        raise CommandError(
            f"there is no table {archive.table.name} in {root}",
            why="balance_cluster has never run with this folder",
            next_step="name the folder of its tables with --tables",
        )
    done: dict[str, Any] = {"table": archive.table.name, "until_ms": until_ms}
    took_ms: dict[str, int] = {}
    steps: Sequence[tuple[str, Callable[[], object]]] = (
        ("made", lambda: _make(place, archive)),
        ("rows_copied", lambda: _copy(source, place, archive, until_ms)),
        ("months_ordered", lambda: _order(place, archive)),
        (
            "vacuumed",
            lambda: len(
                open_delta(place).vacuum(dry_run=False, full=True, commit_properties=_NO_RETRY)
            ),
        ),
    )
    try:
        for what, step in steps:
            started_s = time.monotonic()
            with store_errors(place):
                done[what] = step()
            took_ms[what] = round((time.monotonic() - started_s) * 1_000)
            passed(f"{archive.table.name} {what}")
    except CommandError:
        raise
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise CommandError(
            f"{archive.name} could not be brought up to date",
            why=first_line(error),
            next_step="is another run under way? let it end; then start this again, it goes on"
            " where it stopped",
        ) from error
    return {**done, "took_ms": took_ms}


def _make(place: TablePlace, archive: Archive) -> bool:
    """Make the archive, or add the columns that it lacks; return True."""
    wanted = pa.schema(
        [
            *(pa.field(one.name, one.type) for one in arrow_schema(archive.table)),
            pa.field(MONTH.name, pa.string()),
        ]
    )
    if not is_delta(place):
        DeltaTable.create(
            str(place),
            schema=Schema.from_arrow(wanted),
            mode="ignore",
            partition_by=[MONTH.name],
            configuration={**_PROPERTIES, "delta.appendOnly": str(archive.is_append_only).lower()},
            storage_options=delta_options(place),
        )
    table = open_delta(place)
    there = {field.name for field in table.schema().fields}
    missing = [one for one in Schema.from_arrow(wanted).fields if one.name not in there]
    if missing:
        table.alter.add_columns(missing)
    return True


def _copy(source: TablePlace, place: TablePlace, archive: Archive, until_ms: int) -> int:
    """Copy rows that are old enough, one commit per month; return how many."""
    table, archived = open_delta(source), open_delta(place)
    due = f"at_ms < {until_ms} AND ({archive.ended or 'true'})"
    before, copied = archived.version(), 0
    for month in sorted(pc.unique(_months(scan(table, ["at_ms"], due))).to_pylist()):
        rows = scan(table, None, f"{due} AND {_within(month)}")
        rows = rows.append_column(MONTH.name, _months(rows))
        same = " AND ".join(f"t.{name} = s.{name}" for name in archive.key)
        if archive.is_append_only:
            same = f"t.{MONTH.name} = '{month}' AND {same}"
        merge = archived.merge(
            rows, same, source_alias="s", target_alias="t", commit_properties=_NO_RETRY
        )
        if not archive.is_append_only:
            merge = merge.when_matched_update_all("s.at_ms > t.at_ms")
        found = merge.when_not_matched_insert_all().execute()
        copied += found["num_target_rows_inserted"] + found["num_target_rows_updated"]
    sync_commits(place, before, archived.version())  # before the job lets the rows go
    return copied


def _months(rows: pa.Table) -> pa.ChunkedArray:
    """The month of each row, YYYY-MM, UTC."""
    return pc.strftime(rows["at_ms"].cast(pa.timestamp("ms", "UTC")), "%Y-%m")


def _within(month: str) -> str:
    """The SQL condition for the rows of a month."""
    year, number = map(int, month.split("-"))
    first, following = (year, number), (year + number // 12, number % 12 + 1)
    first_ms, end_ms = (timegm((*day, 1, 0, 0, 0)) * 1_000 for day in (first, following))
    return f"at_ms >= {first_ms} AND at_ms < {end_ms}"


def _order(place: TablePlace, archive: Archive) -> list[str]:
    """Join and order the files of each month that has several small ones."""
    table = open_delta(place)
    months = [
        month
        for month in sorted({one[MONTH.name] for one in table.partitions()})
        if sum(size < _FILE_BYTES // 2 for size in file_sizes(table, month)) > 1
    ]
    for month in months:
        table.optimize.z_order(
            [archive.ordered_by],
            partition_filters=[(MONTH.name, "=", month)],
            target_size=_FILE_BYTES,
            commit_properties=_NO_RETRY,
        )
    return months


if __name__ == "__main__":
    sys.exit(main())
