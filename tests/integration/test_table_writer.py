"""The writer of the tables on real Delta tables: once a batch, and only by the newest job."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.adapters.batch_sink import BatchSink, ForkedError, Identity
from jobs.adapters.ownership_publisher import Keyed
from jobs.adapters.table_writer import FencedError, TableWriter
from lbcore.machines.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    Effect,
    event_row,
    pack_effect,
    record_row,
)
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.wire_record import parse_record

QUERY = "query-1"
BUNDLE_A, BUNDLE_B, BUNDLE_C = (f"t/n/0x{i}0000000_0x{i + 1}0000000" for i in range(3))


class Frame:
    """What foreachBatch hands over, as far as the sink uses it."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.effects = effects

    def toArrow(self) -> pa.Table:  # noqa: N802 Spark's name
        return pa.table(
            {
                "cluster": ["local"] * len(self.effects),
                "kind": [effect.kind for effect in self.effects],
                "blob": [pack_effect(effect) for effect in self.effects],
            }
        )


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


def batch(*records: OwnershipRecord, now_ms: int = 1_000) -> Frame:
    report = {"cluster": "local", "now_ms": now_ms, "ends": {"acks": {"0": 7}}}
    effects = [Effect(kind=REPORT, rows=[report])]
    if records:
        rows = [event_row(None, r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="ownership_events", rows=rows))
        rows = [record_row(r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="bundle_ownership", rows=rows))
    return Frame(effects)


def sink_on(root: Path, sent: Sent | None = None) -> BatchSink:
    lines: list[Mapping[str, Any]] = []
    sink = BatchSink(
        writer=TableWriter(root),
        publisher=sent or Sent(),
        identity=Identity(query_id="", code_version="c", config_version="f"),
        heartbeat_ms=10_000,
        log=lines.append,
    )
    sink.use_query(QUERY)
    return sink


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
    with pytest.raises(ForkedError, match="delete the job's state folder"):
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
    sink_on(tmp_path, sent)(Frame([*effects, again, gone]), 0)
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
    sink(Frame([*batch(now_ms=20_100).effects, again]), 1)
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


def test_newest_record_of_a_bundle_wins_in_the_current_table(tmp_path: Path) -> None:
    sink = sink_on(tmp_path)
    sink(batch(record("t/n/a", 3)), 0)
    sink(batch(record("t/n/a", 2)), 1)
    assert [row["version_id"] for row in rows(tmp_path, "bundle_ownership")] == [3]


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
