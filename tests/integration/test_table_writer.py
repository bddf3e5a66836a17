"""The writer of the tables on real Delta tables: once a batch, and only by the newest job."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters import table_writer
from jobs.adapters.batch_sink import BatchSink, ForkedError, Identity
from jobs.adapters.current_rows import CurrentRows
from jobs.adapters.delta_tables import arrow_schema
from jobs.adapters.ownership_publisher import Keyed
from jobs.adapters.recovery import (
    complete_last_batch,
    lift_versions,
    rebuilt_states,
    send_all_records,
)
from jobs.adapters.table_writer import FencedError, TableWriter
from lbcore.config.tree import Config
from lbcore.machines.balancer import ClusterBalancer
from lbcore.machines.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    Effect,
    event_row,
    record_row,
)
from lbcore.model.tables import BUNDLE_OWNERSHIP, NAMESPACES
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.wire_record import parse_record
from tests.effects_frame import EffectsFrame

QUERY = "query-1"
READ = {"offsets": {"acks": {"0": 9}}, "topics": {"acks": "anew"}}
BUNDLE_A, BUNDLE_B, BUNDLE_C = (f"t/n/0x{i}0000000_0x{i + 1}0000000" for i in range(3))


class Sent:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[Keyed] = []

    def publish(self, messages: Sequence[Keyed]) -> None:
        self.messages += messages


def record(bundle: str, version: int) -> OwnershipRecord:
    return OwnershipRecord(
        cluster="local", bundle=bundle, state=State.FREE, version_id=version, timestamp_ms=5
    )


def batch(*records: OwnershipRecord, now_ms: int = 1_000) -> EffectsFrame:
    ends = {"acks": {"0": 7}}
    report = {"cluster": "local", "now_ms": now_ms, "ends": ends, "is_debugging": False}
    effects = [Effect(kind=REPORT, rows=[report])]
    if records:
        rows = [event_row(None, r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="ownership_events", rows=rows))
        rows = [record_row(r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="bundle_ownership", rows=rows))
    return EffectsFrame(effects, "local")


def sink_on(root: Path, sent: Sent | None = None) -> BatchSink:
    lines: list[Mapping[str, Any]] = []
    sink = BatchSink(
        writer=claimed(root),
        publisher=sent or Sent(),
        identity=Identity(query_id="", code_version="c", config_version="f"),
        heartbeat_ms=10_000,
        log=lines.append,
    )
    sink.use_query(QUERY)
    return sink


def claimed(root: Path) -> TableWriter:
    writer = TableWriter(root)
    writer.claim()
    return writer


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(
        DeltaTable(str(root / table)).scan().read_all()
    ).to_pylist()
    return found


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


def test_older_job_is_fenced_at_its_next_commit(tmp_path: Path) -> None:
    older = sink_on(tmp_path)
    older(batch(record("t/n/a", 1)), 0)
    newer = sink_on(tmp_path)
    with pytest.raises(FencedError, match="took over"):
        older(batch(record("t/n/a", 2)), 1)
    newer(batch(record("t/n/a", 2)), 1)
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [2]
    assert len(rows(tmp_path, "ownership_events")) == 2


class CrashError(Exception):
    """The job is gone at a point of a batch."""


def crash_at(point: str) -> Callable[[str], None]:
    def passed(reached: str) -> None:
        if reached == point:
            raise CrashError

    return passed


def command_row(command_id: str) -> dict[str, Any]:
    texts = ("kind", "arguments", "principal", "address", "status", "reason", "result")
    return {"cluster": "local", "command_id": command_id, "at_ms": 1, **dict.fromkeys(texts, "x")}


def namespace_row(name: str, version: int) -> dict[str, Any]:
    return {
        "cluster": "local",
        "namespace": name,
        "hash": "crc32",
        "is_deleted": False,
        "highest_version": version,
        "properties": "{}",
        "at_ms": 1,
    }


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
        assert lift_versions(writer, now_ms, READ) == 2
        last = writer.last_commit()
        assert last is not None
        assert {name: last[name] for name in READ} == READ
        current = {row["bundle"]: row for row in rows(tmp_path, "bundle_ownership")}
        for bundle, row in current.items():
            assert row["version_id"] == now_ms
            same = ("state", "source", "destination", "destination_incarnation", "children")
            assert [row[name] for name in same] == [before[bundle][name] for name in same]
        assert [row["highest_version"] for row in rows(tmp_path, "namespaces")] == [now_ms]
        assert {cluster for cluster, _, _ in rebuilt_states(Config(), writer)} == {"local"}
    lift_versions(claimed(tmp_path), 5, READ)  # the clock was put back
    versions = [row["version_id"] for row in rows(tmp_path, "bundle_ownership")]
    assert versions == [now_ms + 1] * 2
    assert lift_versions(claimed(tmp_path / "empty"), 9, READ) == 0


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


def test_every_current_record_is_sent_again_under_the_new_epoch(tmp_path: Path) -> None:
    sink_on(tmp_path)(batch(record(BUNDLE_B, 4), record(BUNDLE_A, 1)), 0)
    sent, writer = Sent(), claimed(tmp_path)
    assert send_all_records(writer, sent) == 2
    told = [parse_record(key, value) for key, value in sent.messages]
    assert [(r.bundle, r.version_id, r.writer_epoch) for r in told if r] == [
        (BUNDLE_A, 1, writer.epoch),
        (BUNDLE_B, 4, writer.epoch),
    ]


def test_newest_record_of_a_bundle_wins_in_the_current_table(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 3)), 0)
    sink(batch(record("t/n/a", 2)), 1)
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [3]


def test_rows_of_the_current_table_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = table_writer.read_current, list[int]()

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
    rewrite, crossed = table_writer.commit_current, list[bool]()

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


def test_commit_says_what_was_read_when_and_by_whom(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 1)), 0)
    about = TableWriter(tmp_path).last_commit()
    assert about is not None
    assert about["offsets"] == {"acks": {"0": 7}}
    assert (about["query_id"], about["batch_id"], about["now_ms"]) == (QUERY, 0, 1_000)
    assert (about["code_version"], about["config_version"]) == ("c", "f")
