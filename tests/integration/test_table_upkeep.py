"""Upkeep of real Delta tables: as quick after many commits as at first, and nobody is disturbed.

A day of commits is written in seconds, and made to look old by the time of its files.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta import table_upkeep
from jobs.adapters.delta.table_log import ReloadReason, log_path
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_upkeep import KEPT_DAYS, TableUpkeep
from jobs.adapters.delta.table_writer import FencedError, TableWriter
from jobs.adapters.delta.tables import FILE_RETENTION, refresh, table_path
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.operating.status import ExplainQuestion, read_rows
from lbcore.config.tree import Config
from lbcore.model.tables import BROKERS as BROKERS_TABLE
from lbcore.model.tables import (
    BUNDLE_OWNERSHIP,
    CONFIG_VERSIONS,
    DECISIONS,
    GONE_DAYS,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
    RECORDS,
    REJECTED_REPORTS,
    SETTINGS_IN_FORCE,
    Table,
)
from lbcore.model.times import DAY_MS
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    CLUSTER,
    EVENTS,
    NAMESPACE,
    Row,
    TablesWriter,
    arrow_rows,
    content,
    fresh,
    move,
    owned,
)

COMMITS = 30
FILES_MAX = 10
LOG_KEPT_S = 30 * 60
DATA_KEPT_S = DAY_MS // 1_000
NOW_MS = 1_800_000_000_000


class Job:
    """The job's writer on tables that hold four bundles, each batch with a move of one of them."""

    def __init__(self, root: Path) -> None:
        first = TablesWriter(root)
        first.namespaces({NAMESPACE: "murmur3_32"})
        first.brokers(*BROKER_NAMES)
        first.batch(owned(NAMESPACE, 4, BROKER_NAMES))
        self.root = root
        self.writer = TableWriter(root)
        self.writer.claim()
        self.writer.use_query("q2")
        self.upkeep = TableUpkeep(self.writer, interval_ms=1, files_max=FILES_MAX)
        self.batch_id = 0
        self.now_ms = 2_000_000

    def batches(self, count: int) -> None:
        """So many more; the bundle's version is the batch's number and 2."""
        for _ in range(count):
            rows = [
                move(BUNDLES[0], self.batch_id + 2, BROKER_NAMES[self.batch_id % len(BROKER_NAMES)])
            ]
            self.now_ms += 1_000
            self._write(OWNERSHIP_EVENTS, rows)
            self._write(BUNDLE_OWNERSHIP, rows)
            self.batch_id += 1

    def _write(self, table: Table, rows: Sequence[Row]) -> None:
        metadata = {
            "query_id": "q2", "batch_id": self.batch_id, "now_ms": self.now_ms,
            "writer_epoch": self.writer.epoch,
        }  # fmt: skip
        stamps = {
            "writer_epoch": self.writer.epoch, "at_ms": self.now_ms, "batch_id": self.batch_id,
            "seq_in_batch": 0,
        }  # fmt: skip
        arrow = arrow_rows(table, [row.columns(table, **stamps) for row in rows])
        self.writer.write(table.name, arrow, self.batch_id, metadata)

    def age(self, name: str, seconds: int) -> None:
        then = time.time() - seconds
        for path in table_path(self.root, name).rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))

    def pass_retention(self, name: str) -> None:
        """As if the time were over for which a table's removed files are kept."""
        self.writer.refreshed(name).alter.set_table_properties(
            {FILE_RETENTION: "interval 0 seconds"}
        )

    def log_files(self, name: str) -> int:
        return len(list(log_path(table_path(self.root, name)).glob("*.json")))

    def data_files(self, name: str) -> int:
        return len(list(table_path(self.root, name).glob("*.parquet")))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_tables_after_a_day_are_as_small_as_at_first_and_say_the_same(job: Job) -> None:
    """Log, data files and cold start are bounded by the retention, not by the commits."""
    job.batches(COMMITS)
    for name in (EVENTS, BUNDLE_OWNERSHIP.name):
        job.upkeep.look_after(name, NOW_MS)
        job.age(name, DATA_KEPT_S + 60)
    job.batches(1)
    before = content(fresh(job.root))
    for name in (EVENTS, BUNDLE_OWNERSHIP.name):
        done = job.upkeep.look_after(name, NOW_MS)
        assert done["files"] <= FILES_MAX
        assert job.log_files(name) <= 6
        assert job.data_files(name) > COMMITS  # a reader may still be at an older version
        job.pass_retention(name)
        job.upkeep.look_after(name, NOW_MS)
        assert job.data_files(name) <= FILES_MAX
    loaded = fresh(job.root)
    assert content(loaded) == before
    assert loaded.view is not None
    assert loaded.view.snapshot.position.batch_id == COMMITS
    assert DeltaTable(str(table_path(job.root, EVENTS))).count() == COMMITS + 5


def test_replaced_files_go_though_no_log_tells_of_them_any_more(job: Job) -> None:
    """A checkpoint leaves out what was removed before the retention, wherever it was made."""
    name = BUNDLE_OWNERSHIP.name
    job.batches(COMMITS)
    job.pass_retention(name)
    job.age(name, LOG_KEPT_S + 60)
    (other := DeltaTable(str(table_path(job.root, name)))).create_checkpoint()
    other.cleanup_metadata()
    upkeep = TableUpkeep(TableWriter(job.root), interval_ms=1, files_max=FILES_MAX)
    assert upkeep.look_after(name, NOW_MS)["files_removed"] == job.batch_id
    assert job.data_files(name) == 1


def test_files_that_may_go_are_looked_for_some_times_a_retention(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a table has is listed for it: in an object store a request for each thousand."""
    clock = [100.0]
    monkeypatch.setattr("jobs.adapters.delta.table_upkeep.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(DeltaTable, "vacuum", lambda *_, **__: ["one"])
    looks = Counter[str]()
    for _ in range(24 * 6):
        for name in (EVENTS, BUNDLE_OWNERSHIP.name):
            looks[name] += job.upkeep.look_after(name, NOW_MS)["files_removed"]
        clock[0] += 600
    assert looks == {EVENTS: 6, BUNDLE_OWNERSHIP.name: 24 * 6}


def test_follower_and_writer_go_on_through_upkeep(job: Job) -> None:
    """Batches before, between and after turns reach a follower that loaded once."""
    follower = DeltaFollower(job.root, CLUSTER)
    follower.poll()
    for _ in range(3):
        job.batches(FILES_MAX + 2)
        follower.poll()
        for name in (EVENTS, BUNDLE_OWNERSHIP.name):
            job.age(name, LOG_KEPT_S + 60)
            job.upkeep.look_after(name, NOW_MS)
        job.batches(1)
        follower.poll()
        assert content(follower) == content(fresh(job.root))
    assert follower.counts.reloads == {ReloadReason.START: 1}
    assert follower.counts.errors == 0


def test_version_within_the_retention_can_be_read_after_upkeep(job: Job) -> None:
    """Time travel by version reaches as far back as the log is kept."""
    job.batches(15)
    job.age(EVENTS, LOG_KEPT_S + 60)
    kept = job.writer.table(EVENTS).version()
    job.batches(15)
    job.upkeep.look_after(EVENTS, NOW_MS)
    newest = job.writer.refreshed(EVENTS).version()
    counts = [
        DeltaTable(str(table_path(job.root, EVENTS)), version=version).count()
        for version in range(kept + 1, newest)
    ]
    assert counts == list(range(20, 35))


def test_last_commit_of_a_batch_is_still_known_after_upkeep(job: Job) -> None:
    """A start after a crash reads there where the last batch ended."""
    job.batches(FILES_MAX + 5)
    job.upkeep.look_after(EVENTS, NOW_MS)
    again = TableWriter(job.root)
    again.claim()
    last = again.last_commit()
    assert last is not None
    assert last["batch_id"] == FILES_MAX + 4


def test_rows_past_their_days_go_and_the_others_stay(job: Job) -> None:
    """Only tables that are kept for a time lose rows."""
    name = REJECTED_REPORTS.name
    limit_ms = NOW_MS - KEPT_DAYS[name] * DAY_MS
    for number, at_ms in enumerate((limit_ms - 2 * DAY_MS, limit_ms - 1, limit_ms, NOW_MS)):
        row = {"at_ms": at_ms, "raw": b"x", "offset": 1, "batch_id": number}
        arrow = arrow_rows(REJECTED_REPORTS, [row])
        job.writer.write(name, arrow, number, {})
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 2
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 0
    assert job.writer.refreshed(name).count() == 2


def test_who_approved_which_plan_stays_for_ever_and_hides_no_gap(job: Job) -> None:
    name = DECISIONS.name
    limit_ms = NOW_MS - KEPT_DAYS[name] * DAY_MS
    ages = ((limit_ms - 900 * DAY_MS, "plan"), (limit_ms - 900 * DAY_MS, "skip"), (NOW_MS, "skip"))
    for number, (at_ms, kind) in enumerate(ages):
        arrow = arrow_rows(DECISIONS, [{"at_ms": at_ms, "kind": kind, "batch_id": number}])
        job.writer.write(name, arrow, number, {})
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 1
    version = job.writer.refreshed(name).version()
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 0
    assert job.writer.refreshed(name).version() == version
    kept = scan(job.writer.refreshed(name), ["at_ms", "kind"]).to_pylist()
    assert sorted(row["kind"] for row in kept) == ["plan", "skip"]
    asked = ExplainQuestion(kind="cluster", name="", now_ms=NOW_MS, at_ms=limit_ms - 400 * DAY_MS)
    gaps = read_rows(TableReader(job.root, CLUSTER), Config(), asked).gaps
    assert [gap.reach_ms for gap in gaps if gap.table == name] == [NOW_MS]


@pytest.mark.parametrize("of", [CONFIG_VERSIONS, SETTINGS_IN_FORCE])
def test_settings_replaced_for_a_year_go_but_those_in_force_until_then(job: Job, of: Table) -> None:
    name = of.name
    limit_ms = NOW_MS - KEPT_DAYS[name] * DAY_MS
    for cluster, times in (("c1", (-9, -5, -1, 1, 2)), ("c2", (-9,)), ("c3", (5,))):
        rows = [
            {"cluster": cluster, "number": at, "at_ms": limit_ms + days * DAY_MS}
            for at, days in enumerate(times, start=1)
        ]
        arrow = arrow_rows(of, rows)
        job.batch_id += 1
        job.writer.write(name, arrow, job.batch_id, {})
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 2
    version = job.writer.refreshed(name).version()
    assert job.upkeep.look_after(name, NOW_MS)["rows_expired"] == 0
    table = job.writer.refreshed(name)
    assert table.version() == version
    left = pa.table(table.scan().read_all()).to_pylist()
    days = [(row["cluster"], (row["at_ms"] - limit_ms) // DAY_MS) for row in left]
    assert sorted(days) == [("c1", -1), ("c1", 1), ("c1", 2), ("c2", -9), ("c3", 5)]


@pytest.mark.parametrize(
    ("table", "gone"),
    [
        (POLICIES, {"kind": "paused"}),
        (PINS, {}),
        (RECORDS, {"record_type": "tenant", "is_deleted": True}),
        (BROKERS_TABLE, {"state": "forgotten", "advertised_listeners": "{}"}),
    ],
)
def test_rows_of_what_is_gone_go_after_a_week(
    job: Job, table: Table, gone: dict[str, object]
) -> None:
    """And those of what is there stay, however old they are."""
    there = {"is_set": True, "is_deleted": False, "state": "active", "advertised_listeners": "{}"}
    old_ms, before = NOW_MS - (GONE_DAYS + 2) * DAY_MS, job.writer.refreshed(table.name).count()
    key = table.key[-1]
    rows = [
        {**gone, key: "gone", "at_ms": old_ms},
        {**gone, key: "gone of late", "at_ms": NOW_MS - DAY_MS},
        {**gone, **there, key: "there", "at_ms": old_ms},
    ]
    job.writer.write(table.name, arrow_rows(table, rows), 0, {})
    assert job.upkeep.look_after(table.name, NOW_MS)["rows_expired"] == 1
    left = pa.table(job.writer.refreshed(table.name).scan(columns=[key]).read_all())
    assert len(left) == before + 2
    assert "gone" not in left[key].to_pylist()


def test_deleted_namespaces_go_only_where_the_floor_stands_for_their_versions(job: Job) -> None:
    """Else a bundle of the same name would begin with versions that agents have seen."""
    follower = DeltaFollower(job.root, CLUSTER)
    follower.poll()
    old = {"cluster": CLUSTER, "is_deleted": True, "at_ms": NOW_MS - (GONE_DAYS + 2) * DAY_MS}
    known = [("t/low", CLUSTER, 7), ("t/high", CLUSTER, 8), ("t/low", "another", 1)]
    rows = [
        {**old, "namespace": name, "cluster": of, "highest_version": version}
        for name, of, version in known
    ]

    def write(batch: int, rows: list[dict[str, object]]) -> None:
        job.writer.write(NAMESPACES.name, arrow_rows(NAMESPACES, rows), batch, {})

    write(0, rows)
    assert job.upkeep.look_after(NAMESPACES.name, NOW_MS)["rows_expired"] == 0
    write(1, [{**old, "namespace": "", "highest_version": 7}])
    assert job.upkeep.look_after(NAMESPACES.name, NOW_MS)["rows_expired"] == 1
    left = pa.table(job.writer.refreshed(NAMESPACES.name).scan().read_all()).to_pylist()
    assert {(row["namespace"], row["highest_version"]) for row in left if row["is_deleted"]} == {
        ("", 7),
        ("t/high", 8),
        ("t/low", 1),
    }
    follower.poll()
    assert content(follower) == content(fresh(job.root))


def test_upkeep_of_a_job_that_was_taken_over_touches_nothing(job: Job) -> None:
    job.batches(FILES_MAX + 2)
    TableWriter(job.root).claim()
    files = job.data_files(EVENTS)
    with pytest.raises(FencedError):
        job.upkeep.look_after(EVENTS, NOW_MS)
    assert job.data_files(EVENTS) == files


def test_refreshed_handle_is_new_when_all_between_was_cleaned_away(job: Job) -> None:
    """A job that slept for long finds neither its own version nor the next one in the log."""
    slept = DeltaTable(str(table_path(job.root, EVENTS)))
    job.batches(FILES_MAX + 2)
    job.age(EVENTS, LOG_KEPT_S + 60)
    job.upkeep.look_after(EVENTS, NOW_MS)
    refresh(slept)
    assert slept.version() == job.writer.refreshed(EVENTS).version()


@pytest.mark.parametrize("full", [32_000_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_joining_writes_what_there_is_a_few_times_and_not_once_a_turn(
    job: Job, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    """Replaced files stay for the retention, so what is on disk is all that was written."""
    monkeypatch.setattr(table_upkeep, "JOINED_BYTES", (50_000, 250_000, full))
    dice, root = random.Random(1), table_path(job.root, DECISIONS.name)
    for number in range(40 * FILES_MAX):
        row = {"at_ms": NOW_MS, "inputs": dice.randbytes(4_000).hex()}
        arrow = arrow_rows(DECISIONS, [row])
        write_deltalake(str(root), arrow, mode="append")
        if number % FILES_MAX == 0:
            assert job.upkeep.look_after(DECISIONS.name, NOW_MS)["files"] <= 2 * FILES_MAX
    table = DeltaTable(str(root))
    assert table.count() == 40 * FILES_MAX
    live = sum(Path(uri.removeprefix("file://")).stat().st_size for uri in table.file_uris())
    sizes = [path.stat().st_size for path in root.glob("*.parquet")]
    joined = sum(size for size in sizes if size > 20_000)
    assert live > 1_000_000
    assert live < joined < 4 * live


def test_turns_go_round_all_tables_one_an_interval(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an interval of 0 there is none."""
    clock = [100.0]
    monkeypatch.setattr("jobs.adapters.delta.table_upkeep.time.monotonic", lambda: clock[0])
    upkeep = TableUpkeep(job.writer, interval_ms=5_000, files_max=FILES_MAX)
    seen = []
    for _ in range(2 * len(KEPT_DAYS)):
        done = upkeep(NOW_MS)
        seen.append(None if done is None else done["table"])
        clock[0] += 2.5
    assert seen[1::2] == [None] * len(KEPT_DAYS)
    assert len(set(seen[::2])) == len(KEPT_DAYS)
    assert TableUpkeep(job.writer, interval_ms=0, files_max=FILES_MAX)(NOW_MS) is None


def test_commit_from_elsewhere_between_makes_a_turn_give_up(job: Job) -> None:
    job.batches(FILES_MAX + 2)
    table = job.writer.refreshed(EVENTS)
    other = DeltaTable(str(table_path(job.root, EVENTS)))
    write_deltalake(other, pa.Table.from_batches([], pa.schema(other.schema())), mode="append")
    assert table.version() < other.version()
    assert job.upkeep.look_after(EVENTS, NOW_MS)["files"] <= FILES_MAX


def test_damage_of_an_older_data_file_ends_no_job_that_only_adds_rows(job: Job) -> None:
    job.batches(3)
    files = table_path(job.root, EVENTS).glob("*.parquet")
    oldest: Path = min(files, key=lambda file: file.stat().st_mtime_ns)
    oldest.write_bytes(bytes(oldest.stat().st_size))
    upkeep = TableUpkeep(job.writer, interval_ms=1, files_max=2)
    assert oldest.name in upkeep.look_after(EVENTS, NOW_MS)["given_up"]
    job.batches(1)
    assert job.writer.has_batch(EVENTS, 3)
