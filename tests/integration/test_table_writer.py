"""The writer of the tables on real Delta tables: once a batch, and only by the newest job."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta import table_writer
from jobs.adapters.delta.table_writer import CurrentRows, FencedError, TableWriter, newest_batch
from jobs.adapters.delta.tables import arrow_schema
from jobs.adapters.spark.batch_sink import ForkedError, LeftError
from jobs.adapters.spark.recovery import claimed_tables
from lbcore.balancer.state.effects import (
    RESEND,
    TOMBSTONE,
    Effect,
    record_row,
)
from lbcore.model.tables import BUNDLE_OWNERSHIP, NAMESPACES
from lbcore.ownership.records import parse_record
from tests.support.tables.small_batches import (
    BUNDLE_A,
    BUNDLE_B,
    BUNDLE_C,
    QUERY,
    EffectsFrame,
    Sent,
    batch,
    claimed,
    record,
    rows,
    sink_on,
)


def test_batch_repeated_writes_nothing_twice_and_sends_again(tmp_path: Path) -> None:
    sent = Sent()
    sink_on(tmp_path, sent)(batch(record("t/n/a", 1), record("t/n/b", 1)), 0)
    sink_on(tmp_path, sent)(batch(record("t/n/a", 1), record("t/n/b", 1)), 0)
    assert len(rows(tmp_path, "ownership_events")) == 2
    assert len(rows(tmp_path, "bundle_ownership")) == 2
    assert len(sent.messages) == 4


def test_batch_repeated_with_other_effects_stops_the_job(tmp_path: Path) -> None:
    sink_on(tmp_path)(batch(record("t/n/a", 1)), 0)
    with pytest.raises(ForkedError, match="ballast state rebuild"):
        sink_on(tmp_path)(batch(record("t/n/b", 1)), 0)


def test_tombstones_go_before_records_and_those_sent_again_after_without_a_row(
    tmp_path: Path,
) -> None:
    sent = Sent()
    gone = Effect(
        kind=TOMBSTONE,
        rows=[{"cluster": "local", "bundle": name, "at_ms": 5} for name in (BUNDLE_A, BUNDLE_C)],
    )
    again = Effect(kind=RESEND, rows=[record_row(record(BUNDLE_B, 7), 0)])
    effects = batch(record(BUNDLE_A, 9)).effects
    sink_on(tmp_path, sent)(EffectsFrame([*effects, again, gone], "local"), 0)
    told = [(key, parse_record(key, value)) for key, value in sent.messages]
    assert [key for key, _ in told] == [
        f"local/{name}".encode() for name in (BUNDLE_A, BUNDLE_C, BUNDLE_A, BUNDLE_B)
    ]
    assert [found and found.version_id for _, found in told] == [None, None, 9, 7]
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [9]


def test_quiet_batch_that_sends_something_again_commits_nothing(tmp_path: Path) -> None:
    sent = Sent()
    sink = sink_on(tmp_path, sent)
    sink(batch(now_ms=20_000), 0)
    begun = DeltaTable(str(tmp_path / "ownership_events")).version()
    again = Effect(kind=RESEND, rows=[record_row(record(BUNDLE_B, 7), 0)])
    sink(EffectsFrame([*batch(now_ms=20_100).effects, again], "local"), 1)
    assert DeltaTable(str(tmp_path / "ownership_events")).version() == begun
    assert len(sent.messages) == 1


def test_job_that_ends_writes_what_it_is_at_and_nothing_of_what_follows(tmp_path: Path) -> None:
    sent = Sent()
    sink = sink_on(tmp_path, sent)
    sink(batch(record("t/n/a", 1)), 0)
    assert sink.last.end_with(1) == 1
    sink(batch(record("t/n/a", 2)), 1)
    with pytest.raises(LeftError, match="leaves 2 to the next one"):
        sink(batch(record("t/n/a", 3)), 2)
    knows = claimed_tables(claimed(tmp_path)).has_batch
    assert [knows(number, QUERY) for number in range(3)] == [True, True, False]
    assert not knows(0, "another")
    assert len(sent.messages) == 2


def test_batch_that_is_being_written_when_a_job_ends_is_written_to_its_end(tmp_path: Path) -> None:
    """Spark had begun it before anybody looked which it is at."""
    lasts: list[int] = []
    sink = sink_on(tmp_path)

    def passed(point: str) -> None:
        if point == "events_committed":
            lasts.append(sink.last.end_with(0))

    sink.passed = passed
    sink(batch(record("t/n/a", 1)), 1)
    assert lasts == [1]
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [1]


def test_older_job_is_fenced_at_its_next_commit(tmp_path: Path) -> None:
    older = sink_on(tmp_path)
    older(batch(record("t/n/a", 1)), 0)
    newer = sink_on(tmp_path)
    with pytest.raises(FencedError, match="took over"):
        older(batch(record("t/n/a", 2)), 1)
    newer(batch(record("t/n/a", 2)), 1)
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [2]
    assert len(rows(tmp_path, "ownership_events")) == 2


def test_writer_asks_the_log_what_it_has_only_after_a_commit_of_another(tmp_path: Path) -> None:
    """Its own newest commit says whose the table is, and which batch it has."""
    name = NAMESPACES.name
    writer, other = TableWriter(tmp_path), TableWriter(tmp_path)
    writer.claim()
    writer.use_query(QUERY)
    rows = arrow_schema(NAMESPACES).empty_table()
    asked: list[str] = []
    handle = writer.table(name)
    ask = handle.transaction_version
    handle.transaction_version = lambda app_id: asked.append(app_id) or ask(app_id)  # type: ignore[method-assign]
    assert writer.write(name, rows, 1, {}) is not None
    assert asked == ["writer_epoch", f"{name}:{QUERY}"]
    asked.clear()
    assert writer.write(name, rows, 1, {}) is None
    assert writer.write(name, rows, 2, {}) is not None
    assert writer.has_batch(name, 2)
    assert not writer.has_batch(name, 3)
    assert asked == []
    writer.refreshed(name).alter.set_table_properties({"delta.checkpointInterval": "90"})
    assert writer.write(name, rows, 2, {}) is None
    assert writer.write(name, rows, 3, {}) is not None
    assert asked
    other.claim()
    with pytest.raises(FencedError):
        writer.write(name, rows, 4, {})
    with pytest.raises(FencedError):
        writer.refreshed(name)


def test_newest_record_of_a_bundle_wins_in_the_current_table(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 3)), 0)
    sink(batch(record("t/n/a", 2)), 1)
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [3]


def test_rows_of_the_current_table_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = table_writer.read_current, list[int]()  # type: ignore[attr-defined]

    def counted(table: DeltaTable, schema: pa.Schema) -> CurrentRows:
        reads.append(table.version())
        return read(table, schema)

    monkeypatch.setattr(table_writer, "read_current", counted)
    sink = sink_on(tmp_path)
    for number in range(3):
        sink(batch(record("t/n/a", number + 1)), number)
    assert len(reads) == 1
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [3]


def append_another(table: Path, bundle: str) -> None:
    """The table's one row once more, for another bundle."""
    (row,) = DeltaTable(table).to_pyarrow_table().to_pylist()
    another = pa.Table.from_pylist([{**row, "bundle": bundle}], arrow_schema(BUNDLE_OWNERSHIP))
    write_deltalake(table, another, mode="append")


def test_rows_that_another_commit_brought_stay_in_the_current_table(tmp_path: Path) -> None:
    """Upkeep joins files between two batches, and a restore may change rows."""
    name, sink = "bundle_ownership", sink_on(tmp_path)
    sink(batch(record("t/n/a", 3)), 0)
    append_another(tmp_path / name, "t/n/b")
    sink(batch(record("t/n/c", 1)), 1)
    found = sorted(row["bundle"] for row in rows(tmp_path, name))
    assert found == ["t/n/a", "t/n/b", "t/n/c"]


def test_commit_between_the_look_and_the_rewrite_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, sink = "bundle_ownership", sink_on(tmp_path)
    sink(batch(record("t/n/a", 3)), 0)
    rewrite, crossed = table_writer.commit_current, list[bool]()  # type: ignore[attr-defined]

    def crossing(*arguments: Any) -> None:
        if not crossed:
            crossed.append(True)
            append_another(tmp_path / name, "t/n/b")
        rewrite(*arguments)

    monkeypatch.setattr(table_writer, "commit_current", crossing)
    sink(batch(record("t/n/c", 1)), 1)
    assert crossed
    found = sorted(row["bundle"] for row in rows(tmp_path, name))
    assert found == ["t/n/a", "t/n/b", "t/n/c"]


def test_quiet_batches_commit_only_when_a_heartbeat_is_due(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    table = DeltaTable(str(tmp_path / "ownership_events"))
    begun = table.version()
    for number, now_ms in enumerate((20_000, 25_000, 29_999, 30_000)):
        sink(batch(now_ms=now_ms), number)
    table.update_incremental()
    assert table.version() == begun + 2


def test_newest_batch_has_its_own_version_whatever_the_handle_knows(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 1)), 0)
    stale = DeltaTable(str(tmp_path / "ownership_events"))
    sink(batch(record("t/n/a", 2)), 1)
    newest = newest_batch(stale)
    assert newest is not None
    assert (newest.table_version, newest.about["batch_id"]) == (stale.version() + 1, 1)


def test_commit_says_what_was_read_when_and_by_whom(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 1)), 0)
    about = TableWriter(tmp_path).last_commit()
    assert about is not None
    assert about["offsets"] == {"acks": {"0": 7}}
    assert (about["query_id"], about["batch_id"], about["now_ms"]) == (QUERY, 0, 1_000)
    assert (about["code_version"], about["config_version"]) == ("c", "f")
