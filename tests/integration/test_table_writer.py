"""Batches in the tables, each once, and what a rebuild makes of half a batch."""

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.adapters.delta import table_writer
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import (
    BatchRowsError,
    FencedError,
    TableWriter,
    newest_batch,
)
from jobs.adapters.delta.tables import arrow_schema
from jobs.adapters.spark import recovery
from jobs.adapters.spark.batch_sink import ForkedError, JobEndingError
from jobs.adapters.spark.checkpoint import (
    LAYOUT,
    CheckpointMismatchError,
    ClaimedTables,
    Manifest,
    Resumption,
    choose_checkpoint,
    write_manifest,
)
from jobs.adapters.spark.recovery import (
    claimed_tables,
    complete_last_batch,
    raise_versions,
    rebuilt_states,
    send_all_records,
)
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.commands import REMEMBERED_COMMANDS
from lbcore.balancer.effects import (
    RESEND,
    TOMBSTONE,
    Effect,
    record_row,
)
from lbcore.config.tree import Config
from lbcore.model.tables import BUNDLE_OWNERSHIP, COMMANDS, NAMESPACES, TABLES
from lbcore.ownership.records import parse_record
from tests.support.tables.commands_table import (
    LOST,
    WON,
    assert_says_so,
    ends,
    race,
    started,
    write_checkpoint,
)
from tests.support.tables.lookup_tables import arrow_rows
from tests.support.tables.small_batches import (
    BUNDLE_A,
    BUNDLE_B,
    BUNDLE_C,
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


def test_batch_repeated_writes_nothing_twice_and_with_other_effects_stops_the_job(
    tmp_path: Path,
) -> None:
    sent = Sent()
    for _ in range(2):
        sink_on(tmp_path, sent)(batch(record("t/n/a", 1), record("t/n/b", 1)), 0)
    assert len(rows(tmp_path, "ownership_events")) == 2
    assert len(rows(tmp_path, "bundle_ownership")) == 2
    assert len(sent.messages) == 4
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


def test_job_that_ends_writes_what_it_is_at_and_nothing_of_what_follows(tmp_path: Path) -> None:
    sent = Sent()
    sink = sink_on(tmp_path, sent)
    sink(batch(record("t/n/a", 1)), 0)
    assert sink.end_with(1) == 1
    sink(batch(record("t/n/a", 2)), 1)
    with pytest.raises(JobEndingError, match="leaves 2 to the next one"):
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
            lasts.append(sink.end_with(0))

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

    def counted(table: DeltaTable, schema: pa.Schema) -> pa.Table:
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


def test_quiet_batches_commit_only_when_a_heartbeat_is_due_whatever_they_send_again(
    tmp_path: Path,
) -> None:
    sent = Sent()
    sink = sink_on(tmp_path, sent)
    table = DeltaTable(str(tmp_path / "ownership_events"))
    begun = table.version()
    again = Effect(kind=RESEND, rows=[record_row(record(BUNDLE_B, 7), 0)])
    for number, now_ms in enumerate((20_000, 25_000, 29_999, 30_000)):
        effects = batch(now_ms=now_ms).effects
        sink(EffectsFrame([*effects, again] if number == 1 else effects, "local"), number)
    table.update_incremental()
    assert table.version() == begun + 2
    assert len(sent.messages) == 1


def test_newest_batch_has_its_own_version_whatever_the_handle_knows(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 1)), 0)
    stale = DeltaTable(str(tmp_path / "ownership_events"))
    sink(batch(record("t/n/a", 2)), 1)
    newest = newest_batch(stale)
    assert newest is not None
    assert (newest.version, newest.metadata["batch_id"]) == (stale.version() + 1, 1)


def test_commit_says_what_was_read_when_and_by_whom(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 1)), 0)
    metadata = TableWriter(tmp_path).last_commit()
    assert metadata is not None
    assert metadata["offsets"] == {"acks": {"0": 7}}
    assert (metadata["query_id"], metadata["batch_id"], metadata["now_ms"]) == (QUERY, 0, 1_000)
    assert (metadata["code_version"], metadata["config_version"]) == ("c", "f")


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


def test_command_of_a_batch_left_half_written_is_done_when_all_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_on(tmp_path)
    sink.passed = crash_at("events_committed")
    pin = {"cluster": "local", "bundle": BUNDLE_A, "broker": "b", "until_ms": 0, "owner": ""}
    pin |= {"reason": "", "is_set": True, "principal": "", "command_id": "one", "at_ms": 1}
    effects = [
        Effect(kind="commands", rows=[command_row("one")]),
        Effect(kind="pins", rows=[pin]),
    ]
    with pytest.raises(CrashError):
        sink(EffectsFrame([*batch(record(BUNDLE_A, 1)).effects, *effects], "local"), 0)
    writer, written, write = claimed(tmp_path), list[str](), TableWriter.write

    def noted(self: TableWriter, name: str, *rest: Any) -> Any:
        written.append(name)
        return write(self, name, *rest)

    monkeypatch.setattr(TableWriter, "write", noted)
    complete_last_batch(writer)
    assert written[-1] == "commands"
    assert "pins" in written


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


def test_rows_of_a_batch_whose_events_were_never_committed_are_taken_back_once(
    tmp_path: Path,
) -> None:
    named = Effect(kind="namespaces", rows=[namespace_row("t/n", 1)])
    sink_on(tmp_path)(EffectsFrame([*batch(record(BUNDLE_A, 1)).effects, named], "local"), 0)
    writer = claimed(tmp_path)
    writer.use_query(QUERY)
    table = arrow_rows(NAMESPACES, [namespace_row("t/never", 1)], batch_id=1)
    writer.write(NAMESPACES.name, table, 1, {**(writer.last_commit() or {}), "batch_id": 1})
    assert len(rows(tmp_path, NAMESPACES.name)) == 2
    config = Config()
    (cluster,) = config.pipeline.clusters
    chunks = {name: blob for _, name, blob in rebuilt_states(config, claimed(tmp_path))}
    state = ClusterBalancer(cluster=cluster, config=config).unpack(chunks)
    assert list(state.namespaces) == ["t/n"]
    assert state.ledger.names == [BUNDLE_A]
    assert [row["namespace"] for row in rows(tmp_path, NAMESPACES.name)] == ["t/n"]
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


def test_of_jobs_that_claim_at_once_one_has_the_tables(tmp_path: Path) -> None:
    TableWriter(tmp_path)
    for number, spread_s in enumerate((0.0, 0.01, 0.1), start=1):
        writers = race(started(tmp_path), started(tmp_path, spread_s))
        assert ends(writers, number) == {WON: 1, LOST: 1}
        assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [number]


def test_of_jobs_that_make_the_tables_at_once_one_has_them(tmp_path: Path) -> None:
    writers = race(*[started(tmp_path)] * 3)
    assert ends(writers, 1) == {WON: 1, LOST: 2}


@pytest.mark.long
@pytest.mark.parametrize("jobs", [2, 3, 4])
def test_of_jobs_that_claim_again_and_again_one_always_has_the_tables(
    jobs: int, tmp_path: Path
) -> None:
    TableWriter(tmp_path)
    dice = random.Random(jobs)
    for number in range(1, 61):
        starts = [started(tmp_path, dice.choice((0.0, 0.3)) * dice.random()) for _ in range(jobs)]
        assert ends(race(*starts), number) == {WON: 1, LOST: jobs - 1}


def test_claim_while_an_older_job_writes_takes_the_tables(tmp_path: Path) -> None:
    older = sink_on(tmp_path)
    fenced: list[FencedError] = []
    is_writing = threading.Event()

    def write_on() -> None:
        for number in range(1_000):
            try:
                older(batch(record("t/n/a", number + 1)), number)
            except FencedError as error:
                fenced.append(error)
                return
            is_writing.set()

    thread = threading.Thread(target=write_on)
    thread.start()
    is_writing.wait()
    newer = sink_on(tmp_path)
    thread.join()
    assert_says_so(fenced[0])
    (known,) = rows(tmp_path, "bundle_ownership")
    newer.use_query("newer")
    newer(batch(record("t/n/a", known["version_id"] + 9)), 0)


@pytest.mark.parametrize("at", [1, 2])
def test_claim_whose_answer_a_store_lost_is_the_jobs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The store has the commit, and the client's retry finds it there: a conflict with itself."""
    calls: list[DeltaTable] = []

    def lose_answer(table: DeltaTable, rows: pa.Table, **options: Any) -> None:
        calls.append(table)
        is_lost = len(calls) == at
        write_deltalake(DeltaTable(table.table_uri) if is_lost else table, rows, **options)
        if is_lost:
            raise CommitFailedError("the version exists")

    monkeypatch.setattr(table_writer, "write_deltalake", lose_answer)
    other, writer = TableWriter(tmp_path), TableWriter(tmp_path)
    assert writer.claim("mine") == 0
    assert writer.claimed_by() == "mine"
    assert len(calls) == len(TABLES)
    assert other.claim("theirs") == 1
    with pytest.raises(FencedError):
        writer.refreshed(NAMESPACES.name)


def test_checkpoint_whose_job_lost_the_race_is_refused_later(tmp_path: Path) -> None:
    """It was marked with the epoch that the winner has: only the claim's id tells them apart."""
    tables, state_dir = tmp_path / "tables", tmp_path / "state"
    manifest = Manifest(
        layout=LAYOUT, code_version="c", config_version="f", scorer_groups=1, epoch=0, claim="mine"
    )
    checkpoint = state_dir / "checkpoints" / "epoch-0"
    write_checkpoint(checkpoint, begun=1, ended=1)
    write_manifest(state_dir, manifest, Resumption(checkpoint=checkpoint, reason=""))
    TableWriter(tables).claim("theirs")
    writer = TableWriter(tables)
    tables_seen = ClaimedTables(epoch=writer.epoch, claimed_by=lambda: "mine")
    with pytest.raises(CheckpointMismatchError, match="and won"):
        choose_checkpoint(state_dir, manifest, replace(tables_seen, claimed_by=writer.claimed_by))
    chosen = choose_checkpoint(state_dir, manifest, tables_seen)
    assert not chosen.is_rebuilt


CLUSTERS = ("local", "other", "it's")
EACH = 2 * REMEMBERED_COMMANDS


def command(cluster: str, number: int) -> dict[str, Any]:
    """Every 500th has not ended."""
    return {
        "cluster": cluster,
        "command_id": f"c{number}",
        "status": "done" if number % 500 else "accepted",
        "at_ms": 1_000 + number // 3,
    }


def test_rebuild_reads_open_commands_and_as_many_as_are_remembered(
    tmp_path: Path,
) -> None:
    rows = [command(cluster, number) for cluster in CLUSTERS for number in range(EACH)]
    writer = TableWriter(tmp_path)
    writer.claim()
    writer.use_query("q")
    result = '{"deadline_ms": 0, "queued": false}'
    table = arrow_rows(COMMANDS, rows, kind="unload_bundle", arguments="{}", result=result)
    writer.write(COMMANDS.name, table, 0, {"query_id": "q", "batch_id": 0, "writer_epoch": 0})
    config = Config()
    (cluster,) = config.pipeline.clusters
    commands = writer.table(COMMANDS.name)
    read = scan(commands, ("command_id",), recovery.needed_commands(commands))
    assert len(read) <= len(CLUSTERS) * (REMEMBERED_COMMANDS + EACH // 500 + 2)
    chunks = {name: blob for _, name, blob in recovery.rebuilt_states(config, writer)}
    state = ClusterBalancer(cluster=cluster, config=config).unpack(chunks)
    mine = sorted((row for row in rows if row["cluster"] == cluster), key=_age)
    assert set(state.commands) == {row["command_id"] for row in mine[-REMEMBERED_COMMANDS:]}
    assert set(state.waiting) == {row["command_id"] for row in mine if row["status"] == "accepted"}


def _age(row: dict[str, Any]) -> tuple[int, str]:
    return row["at_ms"], row["command_id"]
