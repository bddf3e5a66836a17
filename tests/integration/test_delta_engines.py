"""One engine writes, the other reads: delta-rs and delta-spark on the same tables."""
# ruff: noqa: S608 (the statements are put together from the names of a test's own tables)

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import arrow_schema, ensure_tables, table_path
from lbcore.model.tables import BROKERS, BUNDLE_OWNERSHIP, NAMESPACES, OWNERSHIP_EVENTS, Table
from tests.support.tables.lookup_tables import BROKER_NAMES as NAMES
from tests.support.tables.lookup_tables import (
    BUNDLES,
    NAMESPACE,
    TablesWriter,
    content,
    fresh,
    move,
    owned,
    served,
)
from tests.support.tables.spark_sql import SparkSql

_SQL_TYPES = {"long": "BIGINT", "int": "INT"}
FOLLOWED = (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP, BROKERS, NAMESPACES)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    running = SparkSql(tmp_path_factory.mktemp("spark"))
    yield running
    running.close()


def sql_name(root: Path, table: Table) -> str:
    return f"delta.`{table_path(root, table.name)}`"


def moved_by(version: int, to: str) -> str:
    """The columns of a record that moves to another broker, for a SELECT from the same table."""
    changed = {
        "version_id": str(version),
        "destination": f"'{to}'",
        "batch_id": "batch_id + 1",
        "at_ms": "at_ms + 1000",
    }
    names = [column.name for column in OWNERSHIP_EVENTS.columns]
    return ", ".join(f"{changed.get(name, name)} AS {name}" for name in names)


def insert_move(root: Path, version: int, to: str) -> str:
    events = sql_name(root, OWNERSHIP_EVENTS)
    return (
        f"INSERT INTO {events} SELECT {moved_by(version, to)} FROM {events}"
        f" WHERE bundle = '{BUNDLES[0]}' AND version_id = {version - 1}"
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = TablesWriter(tmp_path)
    writer.namespaces({NAMESPACE: "murmur3_32"})
    writer.brokers(*NAMES)
    writer.batch(owned(NAMESPACE, 4, NAMES))
    return tmp_path


def test_history_in_spark_shows_batch_epoch_and_code(spark: SparkSql, tmp_path: Path) -> None:
    writer = TableWriter(tmp_path)
    writer.claim()
    writer.use_query("q")
    metadata = {"batch_id": 7, "writer_epoch": writer.epoch, "code_version": "1a2b3c"}
    rows = arrow_schema(NAMESPACES).empty_table()
    assert writer.write(NAMESPACES.name, rows, 7, metadata) is not None
    history = spark.run(f"DESCRIBE HISTORY {sql_name(tmp_path, NAMESPACES)}")
    noted = [row["userMetadata"] for row in history if row["userMetadata"]]
    assert noted == ["batch 7, writer epoch 0, code 1a2b3c", "claim of writer epoch 0"]


def test_spark_reads_what_delta_rs_wrote(spark: SparkSql, root: Path) -> None:
    for table in (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP):
        name = sql_name(root, table)
        rows = spark.run(f"SELECT bundle, version_id, destination FROM {name} ORDER BY bundle")
        assert [tuple(row.values()) for row in rows] == content(fresh(root))


def test_follower_takes_over_sparks_appends_and_compaction(spark: SparkSql, root: Path) -> None:
    follower = fresh(root)
    spark.run(insert_move(root, 2, "b8"))
    follower.poll()
    assert (BUNDLES[0], 2, "b8") in content(follower)
    spark.run(f"OPTIMIZE {sql_name(root, OWNERSHIP_EVENTS)}")
    spark.run(insert_move(root, 3, "b9"))
    follower.poll()
    assert (BUNDLES[0], 3, "b9") in content(follower)
    assert follower.counts.reloads == {ReloadReason.START: 1}
    assert content(fresh(root)) == content(follower)


def test_engines_take_turns_at_one_table(spark: SparkSql, root: Path) -> None:
    spark.run(insert_move(root, 2, "b8"))
    writer = TablesWriter(root, "q2", epoch=2)
    writer.now_ms += 10_000
    writer.batch([move(BUNDLES[0], 3, "b7")])
    spark.run(insert_move(root, 4, "b6"))
    current, events = sql_name(root, BUNDLE_OWNERSHIP), sql_name(root, OWNERSHIP_EVENTS)
    names = ", ".join(column.name for column in BUNDLE_OWNERSHIP.columns)
    spark.run(
        f"MERGE INTO {current} t USING (SELECT {names} FROM {events} WHERE version_id = 4) s"
        " ON t.cluster = s.cluster AND t.bundle = s.bundle"
        " WHEN MATCHED AND s.version_id > t.version_id THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    assert (BUNDLES[0], 4, "b6") in content(fresh(root))
    rows = spark.run(f"SELECT version_id, destination FROM {current} WHERE version_id > 1")
    assert rows == [{"version_id": 4, "destination": "b6"}]


def test_constraint_holds_for_spark_too(spark: SparkSql, root: Path) -> None:
    with pytest.raises(RuntimeError, match="owned_has_an_owner"):
        spark.run(insert_move(root, 2, ""))
    assert (BUNDLES[0], 1, NAMES[0]) in content(fresh(root))


def test_follower_reads_tables_that_spark_made(
    spark: SparkSql, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = tmp_path_factory.mktemp("made")
    for table in FOLLOWED:
        columns = ", ".join(
            f"`{column.name}` {_SQL_TYPES.get(column.type, column.type)} NOT NULL"
            for column in table.columns
        )
        spark.run(f"CREATE TABLE {sql_name(made, table)} ({columns}) USING delta")
        spark.run(f"INSERT INTO {sql_name(made, table)} SELECT * FROM {sql_name(root, table)}")
    assert content(fresh(made)) == content(fresh(root))
    assert sorted(served(fresh(made)).brokers) == sorted(NAMES)
    assert ensure_tables(made)[OWNERSHIP_EVENTS.name].metadata().configuration
