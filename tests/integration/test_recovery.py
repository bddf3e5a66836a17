"""What a job that lost its checkpoint makes of the tables, and of what a crash left out."""

from pathlib import Path

import pyarrow as pa
import pytest

from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import BatchRowsError, TableWriter
from jobs.adapters.delta.tables import arrow_schema
from jobs.adapters.spark.recovery import (
    complete_last_batch,
    raise_versions,
    rebuilt_states,
    send_all_records,
)
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.state.effects import (
    Effect,
)
from lbcore.config.tree import Config
from lbcore.model.tables import BUNDLE_OWNERSHIP, NAMESPACES
from lbcore.ownership.wire_record import parse_record
from tests.support.tables.small_batches import (
    BUNDLE_A,
    BUNDLE_B,
    QUERY,
    READ,
    CrashError,
    EffectsFrame,
    Sent,
    batch,
    claimed,
    command_row,
    crash_at,
    namespace_row,
    record,
    rows,
    sink_on,
)


def test_batch_left_half_written_is_completed_before_a_rebuild(tmp_path: Path) -> None:
    sink_on(tmp_path)(batch(record(BUNDLE_A, 1), record(BUNDLE_B, 1)), 0)
    sink = sink_on(tmp_path)
    sink.passed = crash_at("events_committed")
    outcome = Effect(kind="commands", rows=[command_row("one")])
    told = batch(record(BUNDLE_A, 2), record(BUNDLE_A, 3), now_ms=5)  # when records are made
    with pytest.raises(CrashError):
        sink(EffectsFrame([*told.effects, outcome], "local"), 1)
    assert {row["version_id"] for row in rows(tmp_path, "bundle_ownership")} == {1}
    for _ in range(2):
        complete_last_batch(claimed(tmp_path))
        versions = {r["bundle"]: r["version_id"] for r in rows(tmp_path, "bundle_ownership")}
        assert versions == {BUNDLE_A: 3, BUNDLE_B: 1}
        assert [row["command_id"] for row in rows(tmp_path, "commands")] == ["one"]


def test_restored_tables_are_lifted_above_all_versions_that_anybody_has_seen(
    tmp_path: Path,
) -> None:
    named = Effect(kind="namespaces", rows=[namespace_row("t/n", 1)])
    told = batch(record(BUNDLE_A, 1), record(BUNDLE_B, 4))
    sink_on(tmp_path)(EffectsFrame([*told.effects, named], "local"), 0)
    before = {row["bundle"]: row for row in rows(tmp_path, "bundle_ownership")}
    for now_ms in (1_700_000_000_000, 1_700_000_001_000):
        writer = claimed(tmp_path)
        assert raise_versions(writer, now_ms, READ) == 2
        last = writer.last_commit()
        assert last is not None
        assert {name: last[name] for name in READ} == READ
        current = {row["bundle"]: row for row in rows(tmp_path, "bundle_ownership")}
        for bundle, row in current.items():
            assert row["version_id"] == now_ms
            same = ("state", "source", "destination", "destination_incarnation", "children")
            assert [row[name] for name in same] == [before[bundle][name] for name in same]
        highest = {r["namespace"]: r["highest_version"] for r in rows(tmp_path, "namespaces")}
        assert highest == {"t/n": now_ms, "": now_ms}, "a forgotten one may be made again"
        assert {cluster for cluster, _, _ in rebuilt_states(Config(), writer)} == {"local"}
    raise_versions(claimed(tmp_path), 5, READ)  # the clock was put back
    versions = [row["version_id"] for row in rows(tmp_path, "bundle_ownership")]
    assert versions == [now_ms + 1] * 2
    assert raise_versions(claimed(tmp_path / "empty"), 9, READ) == 0


def test_rows_of_a_batch_whose_events_were_never_committed_are_not_rebuilt_from(
    tmp_path: Path,
) -> None:
    named = Effect(kind="namespaces", rows=[namespace_row("t/n", 1)])
    sink_on(tmp_path)(EffectsFrame([*batch(record(BUNDLE_A, 1)).effects, named], "local"), 0)
    writer = claimed(tmp_path)
    writer.use_query(QUERY)
    table = pa.Table.from_pylist(
        [{**namespace_row("t/never", 1), "batch_id": 1}], arrow_schema(NAMESPACES)
    )
    writer.write(NAMESPACES.name, table, 1, {**(writer.last_commit() or {}), "batch_id": 1})
    assert len(rows(tmp_path, NAMESPACES.name)) == 2
    config = Config()
    (cluster,) = config.pipeline.clusters
    chunks = {name: blob for _, name, blob in rebuilt_states(config, claimed(tmp_path))}
    state = ClusterBalancer(cluster=cluster, config=config).unpack(chunks)
    assert list(state.namespaces) == ["t/n"]
    assert state.ledger.names == [BUNDLE_A]
    assert [row["namespace"] for row in rows(tmp_path, NAMESPACES.name)] == ["t/n"]


def test_batch_taken_back_stays_so_when_its_old_version_is_gone(tmp_path: Path) -> None:
    named = Effect(kind="namespaces", rows=[namespace_row("t/n", 1)])
    sink_on(tmp_path)(EffectsFrame([*batch(record(BUNDLE_A, 1)).effects, named], "local"), 0)
    writer = claimed(tmp_path)
    writer.use_query(QUERY)
    never = {**namespace_row("t/never", 1), "batch_id": 1}
    table = pa.Table.from_pylist([never], arrow_schema(NAMESPACES))
    writer.write(NAMESPACES.name, table, 1, {**(writer.last_commit() or {}), "batch_id": 1})
    complete_last_batch(claimed(tmp_path))
    version = TableWriter(tmp_path).version(NAMESPACES.name)
    complete_last_batch(claimed(tmp_path))
    assert TableWriter(tmp_path).version(NAMESPACES.name) == version + 1  # the claim
    assert [row["namespace"] for row in rows(tmp_path, NAMESPACES.name)] == ["t/n"]


def left_after_the_events(root: Path) -> Path:
    """The file of the rows that a crash kept from the tables."""
    sink = sink_on(root)
    sink.passed = crash_at("events_committed")
    outcome = Effect(kind="commands", rows=[command_row("one")])
    with pytest.raises(CrashError):
        sink(EffectsFrame([*batch(record(BUNDLE_A, 2)).effects, outcome], "local"), 0)
    (file,) = (root / "ownership_events" / "_batches").iterdir()
    return file


def test_rows_put_aside_that_are_damaged_or_gone_stop_the_rebuild_with_what_to_do(
    tmp_path: Path,
) -> None:
    file = left_after_the_events(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?")
    with pytest.raises(BatchRowsError, match=r"not what the batch wrote[\s\S]*make an empty file"):
        complete_last_batch(claimed(tmp_path))
    file.unlink()
    with pytest.raises(BatchRowsError, match="it is not there"):
        complete_last_batch(claimed(tmp_path))
    file.write_bytes(b"")
    complete_last_batch(claimed(tmp_path))
    assert rows(tmp_path, "commands") == []
    file.write_bytes(whole)
    complete_last_batch(claimed(tmp_path))
    assert [row["command_id"] for row in rows(tmp_path, "commands")] == ["one"]


def test_rows_that_earlier_jobs_put_aside_go_when_nobody_needs_them(tmp_path: Path) -> None:
    file = left_after_the_events(tmp_path)
    sink = sink_on(tmp_path)
    upkeep = TableUpkeep(sink.writer, 1_000, 10)
    upkeep.look_after("ownership_events", 0)
    assert file.exists()  # the newest commit names it
    sink(batch(record(BUNDLE_A, 3)), 1)
    sink(batch(record(BUNDLE_A, 4)), 2)
    assert upkeep.look_after("ownership_events", 0)["files_removed"] == 1
    assert sorted(one.name for one in file.parent.iterdir()) == ["1-0.arrow", "1-1.arrow"]


def test_every_current_record_is_sent_again_under_the_new_epoch(tmp_path: Path) -> None:
    sink_on(tmp_path)(batch(record(BUNDLE_B, 4), record(BUNDLE_A, 1)), 0)
    sent, writer = Sent(), claimed(tmp_path)
    assert send_all_records(writer, sent) == 2
    told = [parse_record(key, value) for key, value in sent.messages]
    assert [(r.bundle, r.version_id, r.writer_epoch) for r in told if r] == [
        (BUNDLE_A, 1, writer.epoch),
        (BUNDLE_B, 4, writer.epoch),
    ]


def test_row_that_cannot_be_read_costs_a_rebuild_and_kafka_no_other(tmp_path: Path) -> None:
    newer = {"bundle": BUNDLE_A, "version_id": 7, "state": "Frozen"}
    sink_on(tmp_path)(batch(record(BUNDLE_B, 4)), 0)
    writer = claimed(tmp_path)
    writer.use_query("newer")
    row = {**rows(tmp_path, "bundle_ownership")[0], **newer}
    table = pa.Table.from_pylist([row], arrow_schema(BUNDLE_OWNERSHIP))
    writer.write(BUNDLE_OWNERSHIP.name, table, 1, {**(writer.last_commit() or {}), "batch_id": 0})
    config, sent = Config(), Sent()
    chunks = {name: blob for _, name, blob in rebuilt_states(config, writer)}
    state = ClusterBalancer(cluster="local", config=config).unpack(chunks)
    assert [fault["item"] for fault in state.unread] == [f"{BUNDLE_OWNERSHIP.name} {BUNDLE_A}"]
    assert state.ledger.names == [BUNDLE_A, BUNDLE_B]
    assert send_all_records(writer, sent) == 2
    told = [parse_record(key, value) for key, value in sent.messages]
    assert [(one.bundle, one.version_id, one.state.value) for one in told if one] == [
        (BUNDLE_A, 7, "Free"),
        (BUNDLE_B, 4, "Free"),
    ]
