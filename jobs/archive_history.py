"""Copies history past its days from the job's tables to archive tables, by Spark, beside the job.

Decides when a copy is due for each row, never what leaves the job's tables: that is the streaming
job's upkeep, which lets a row go once it finds it here (`table_upkeep`). So there is one writer a
table, and this may be started by hand, by cron or by spark-submit while the job runs, killed at any
point and started again. Steps of a table, each one commit of Delta or repeatable: make the archive,
MERGE what it has not, OPTIMIZE the months that this touched in Z-order, VACUUM.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_tail import is_delta
from jobs.adapters.delta.tables import table_path
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.jars import ensure_jars
from jobs.adapters.processes.paths import private_directory
from jobs.adapters.processes.preflight import use_java_home
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.spark.fatal_errors import error_messages, java_line
from jobs.adapters.spark.stream import spark_session
from jobs.console import CommandError, Exit, json_line, note
from jobs.parser import Parser, add_settings_options, add_spark_option
from lbcore.model.archives import ARCHIVES, Archive
from lbcore.model.tables import Column

DAY_MS = 86_400_000
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 tasks to read a log of some hundred commits, and 10,000 to list a few folders, cost minutes
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
_PROPERTIES = {
    # none that delta-rs, with which everything else reads, does not know
    "delta.enableDeletionVectors": "false",
    "delta.checkpointPolicy": "classic",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


def main(
    argv: Sequence[str] | None = None, *, passed: Callable[[str], None] = lambda _: None
) -> int:
    """Copy what is due, a line of JSON a table. passed: is told of each step (tests)."""
    args = _arguments().parse_args(argv)
    config = load_settings(args.config or None, args.set)
    until_ms = wall_ms() - config.pipeline.history_days * DAY_MS
    use_java_home()
    try:
        with error_messages(), _output_of_our_own() as output:
            session = _session(args, private_directory("ballast-archive"))
            run = _Run(session=session, root=args.tables, passed=passed)
            for archive in ARCHIVES.values():
                print(json_line(run.archive(archive, until_ms)), file=output, flush=True)
            run.session.stop()
    except CommandError as error:
        note(*error.lines())
        return Exit.FAILED
    return Exit.DONE


@contextmanager
def _output_of_our_own() -> Iterator[TextIO]:
    """Standard output; meanwhile Java, whose VACUUM writes there too, has standard error."""
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        try:
            yield output
        finally:
            os.dup2(output.fileno(), 1)


def _arguments() -> argparse.ArgumentParser:
    parser = Parser(prog="archive_history", description=__doc__)
    parser.add_argument(
        "--tables", type=table_place, required=True, help="folder of the Delta tables of a job"
    )
    add_settings_options(parser)
    add_spark_option(parser)
    parser.add_argument("--master", default="local[2]", help="Spark master (spark-submit's wins)")
    return parser


def _session(args: argparse.Namespace, folder: Path) -> SparkSession:
    settings = dict(args.spark)
    return spark_session(
        jars=ensure_jars("spark"),
        master=args.master,
        local_dir=folder,
        settings={"spark.app.name": "ballast archive_history", **_DELTA, **settings},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run over the tables under `root`."""

    session: SparkSession
    root: TablePlace
    passed: Callable[[str], None]

    def archive(self, archive: Archive, until_ms: int) -> dict[str, Any]:
        """Bring one archive up to a time; what was done. Raises CommandError."""
        done: dict[str, Any] = {"table": archive.table.name, "until_ms": until_ms}
        took_ms: dict[str, int] = {}
        if not is_delta(table_path(self.root, archive.table.name)):
            raise CommandError(
                f"there is no table {archive.table.name} in {self.root}",
                why="balance_cluster has never run with this folder",
                next_step="name the folder of its tables with --tables",
            )
        try:
            for what, step in (
                ("made", lambda: self._make(archive)),
                ("rows_copied", lambda: self._copy(archive, until_ms)),
                ("months_ordered", lambda: self._order(archive)),
                ("vacuumed", lambda: self._vacuum(archive)),
            ):
                started_s = time.monotonic()
                done[what] = step()
                took_ms[what] = round((time.monotonic() - started_s) * 1_000)
                self.passed(f"{archive.table.name} {what}")
        except (PySparkException, Py4JJavaError) as error:
            raise CommandError(
                f"{archive.name} could not be brought up to date",
                why=java_line(error),
                next_step="is another run under way? let it end; then start this again, it goes on"
                " where it stopped",
            ) from error
        return {**done, "took_ms": took_ms}

    def _sql(self, statement: str) -> list[Any]:
        rows: list[Any] = self.session.sql(statement).collect()
        return rows

    def _path(self, name: str) -> str:
        """As Spark writes it: its S3 connector's scheme is another than delta-rs's."""
        return str(table_path(self.root, name).absolute()).replace("s3://", "s3a://")

    def _name(self, archive: Archive) -> str:
        return f"delta.`{self._path(archive.name)}`"

    def _make(self, archive: Archive) -> bool:
        """The archive, with all columns of its table; whether it is there."""
        columns = ", ".join(map(_declaration, archive.columns))
        wanted = {**_PROPERTIES, "delta.appendOnly": str(archive.is_append_only).lower()}
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in wanted.items())
        self._sql(
            f"CREATE TABLE IF NOT EXISTS {self._name(archive)} ({columns}) USING DELTA"
            f" PARTITIONED BY (month) TBLPROPERTIES ({properties})"
        )
        there = set(self.session.table(self._name(archive)).columns)
        missing = [one for one in archive.columns if one.name not in there]
        if missing:
            added = ", ".join(map(_declaration, missing))
            self._sql(f"ALTER TABLE {self._name(archive)} ADD COLUMNS ({added})")
        return True

    def _copy(self, archive: Archive, until_ms: int) -> int:
        """Put the rows in that are old enough and not there yet, in one commit; how many."""
        old = (
            self.session.read.format("delta")
            .load(self._path(archive.table.name))
            .where(f"at_ms < {until_ms} AND ({archive.ended or 'true'})")
            .withColumn("month", F.date_format(F.timestamp_millis("at_ms"), "yyyy-MM"))
        )
        months = sorted(row["month"] for row in old.select("month").distinct().collect())
        if not months:
            return 0
        old.createOrReplaceTempView("old_rows")
        same = " AND ".join(f"t.{name} = s.{name}" for name in archive.key)
        newer = " WHEN MATCHED AND s.at_ms > t.at_ms THEN UPDATE SET *"
        if archive.is_append_only:
            listed = ", ".join(f"'{month}'" for month in months)
            same, newer = f"t.month IN ({listed}) AND t.month = s.month AND {same}", ""
        said = {"table": archive.table.name, "until_ms": until_ms, "months": months}
        self.session.conf.set(_USER_METADATA, json.dumps(said))
        found = self._sql(
            f"MERGE INTO {self._name(archive)} t USING old_rows s"
            f" ON {same}{newer} WHEN NOT MATCHED THEN INSERT *"
        )
        self.session.conf.unset(_USER_METADATA)
        return int(found[0]["num_affected_rows"])

    def _order(self, archive: Archive) -> list[str]:
        """Join and order the files of the months that were added to since this was done last."""
        months: set[str] = set()
        for commit in self._sql(f"DESCRIBE HISTORY {self._name(archive)}"):
            if commit["operation"] == "OPTIMIZE":
                break
            if commit["operation"] == "MERGE" and _rows_written(commit["operationMetrics"]):
                months |= set(json.loads(commit["userMetadata"])["months"])
        if months:
            listed = ", ".join(f"'{month}'" for month in sorted(months))
            self._sql(
                f"OPTIMIZE {self._name(archive)} WHERE month IN ({listed})"
                f" ZORDER BY ({archive.ordered_by})"
            )
        return sorted(months)

    def _vacuum(self, archive: Archive) -> bool:
        self._sql(f"VACUUM {self._name(archive)}")
        return True


def _rows_written(metrics: Mapping[str, str]) -> int:
    """Of a MERGE, which commits also where it had nothing to do."""
    return sum(int(metrics.get(f"numTargetRows{what}", "0")) for what in ("Inserted", "Updated"))


def _declaration(column: Column) -> str:
    type_ = {"long": "BIGINT"}.get(column.type, column.type.upper())
    return f"{column.name} {type_}"


if __name__ == "__main__":
    sys.exit(main())
