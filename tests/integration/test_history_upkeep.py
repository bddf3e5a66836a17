"""History that leaves the job's tables: only what the archive has, and nobody misses a row."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_upkeep import HistoryUpkeep
from jobs.adapters.delta.tables import open_table, table_path
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.local.prober import EventsHistory
from lbcore.balancer import commands
from lbcore.config.pipeline import DROPPED, KEPT
from lbcore.model.tables import ARCHIVES, COMMANDS, OWNERSHIP_EVENTS
from lbcore.model.times import DAY_MS
from tests.support.tables.lookup_tables import CLUSTER
from tests.support.tables.small_batches import BUNDLES, AgedHistory, day

NOW_MS = 20_000 * DAY_MS + 7_000
DAYS = 10
AGES = range(30, 0, -1)


@pytest.fixture(autouse=True)
def few_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.adapters.delta.table_upkeep.REMEMBERED_COMMANDS", 12)
    assert commands.REMEMBERED_COMMANDS > 12


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> AgedHistory:
    """A batch a day for thirty days; two bundles went twelve days ago."""
    made = AgedHistory(tmp_path_factory.mktemp("month"), days=DAYS)
    for age in AGES:
        made.batch(day(age, now_ms=NOW_MS), gone=age <= 12)
    return made


@pytest.fixture
def history(month: AgedHistory, tmp_path: Path) -> AgedHistory:
    return month.copied_to(tmp_path)


def copy(root: Path, name: str, condition: str) -> None:
    """What the archive job does for rows that meet a condition."""
    rows = scan(open_table(root, name), [c.name for c in ARCHIVES[name].table.columns], condition)
    rows = rows.append_column("month", pa.array(["1970-01"] * len(rows)))
    path = table_path(root, ARCHIVES[name].name)
    write_deltalake(str(path), rows, mode="append", partition_by=["month"])


def ended(name: str) -> str:
    return ARCHIVES[name].ended or "true"


def copy_due(root: Path, name: str) -> None:
    copy(root, name, f"at_ms < {NOW_MS - DAYS * DAY_MS} AND {ended(name)}")


def check_past(history: AgedHistory) -> None:
    reader = TableReader(history.root, CLUSTER)
    for age in AGES:
        at_ms = day(age, now_ms=NOW_MS)
        found = {row["bundle"]: row["destination"] for row in reader.at_time(at_ms).rows}
        assert found == history.owners_at(at_ms)
    newest = {row["bundle"]: row["destination"] for row in reader.newest().rows}
    assert newest == history.owners_at(NOW_MS)


def live(root: Path, name: str) -> int:
    return DeltaTable(str(table_path(root, name))).count()


def test_rows_go_once_the_archive_has_them_and_are_read_as_before(
    tmp_path: Path, history: AgedHistory
) -> None:
    follower = DeltaFollower(tmp_path, CLUSTER)
    judge = EventsHistory(tmp_path / OWNERSHIP_EVENTS.name)
    judge.poll()
    assert history.look_after(NOW_MS) == 0  # nothing is archived yet
    before = live(tmp_path, OWNERSHIP_EVENTS.name)
    for name in ARCHIVES:
        copy_due(tmp_path, name)
        history.check()
    assert live(tmp_path, OWNERSHIP_EVENTS.name) == before
    follower.poll()
    gone = history.look_after(NOW_MS)
    assert gone > 40
    assert live(tmp_path, OWNERSHIP_EVENTS.name) <= before - 40
    history.check()
    check_past(history)
    assert judge.poll()[0] == []
    history.batch(NOW_MS, gone=True)
    assert len(judge.poll()[0]) == 3
    assert history.look_after(NOW_MS) == 0
    history.check()
    follower.poll()  # which loads again once, where the table is append-only no more
    assert follower.counts.reloads[ReloadReason.REWRITTEN] <= 1
    assert history.look_after(NOW_MS + 3 * DAY_MS) == 0  # rows of the days since are not archived


@pytest.mark.long
def test_second_time_no_follower_loads_again(tmp_path: Path, history: AgedHistory) -> None:
    first_ms, until_ms = day(25, now_ms=NOW_MS), NOW_MS - DAYS * DAY_MS
    for name in ARCHIVES:
        copy(tmp_path, name, f"at_ms < {first_ms} AND {ended(name)}")
    assert history.look_after(NOW_MS)
    follower = DeltaFollower(tmp_path, CLUSTER)
    follower.poll()
    for name in ARCHIVES:
        later = f"at_ms >= {first_ms} AND at_ms < {until_ms}"
        copy(tmp_path, name, f"{later} AND {ended(name)}")
    assert history.look_after(NOW_MS)
    history.batch(NOW_MS, gone=True)
    follower.poll()
    assert follower.counts.reloads == {ReloadReason.START: 1}
    history.check()
    check_past(history)


@pytest.mark.long
def test_row_that_the_archive_lacks_stays_with_all_of_its_bundle(
    tmp_path: Path, history: AgedHistory
) -> None:
    lacks = {
        OWNERSHIP_EVENTS.name: "bundle LIKE '%gone%' AND version_id = 3 OR version_id = 2",
        COMMANDS.name: "command_id = 'c3'",
    }
    for name in ARCHIVES:
        limit = f"at_ms < {NOW_MS - DAYS * DAY_MS} AND {ended(name)}"
        copy(tmp_path, name, f"{limit} AND NOT ({lacks[name]})")
    assert history.look_after(NOW_MS) > 0
    history.check()
    check_past(history)
    found = scan(open_table(tmp_path, COMMANDS.name), ["command_id"])["command_id"].to_pylist()
    assert "c3" in found


@pytest.mark.long
def test_clock_that_was_ahead_or_behind_loses_nothing(tmp_path: Path, history: AgedHistory) -> None:
    for name in ARCHIVES:
        copy_due(tmp_path, name)
    history.batch(day(28, now_ms=NOW_MS), gone=True)  # dated before what was copied
    assert history.look_after(NOW_MS) > 0
    history.check()
    check_past(history)


@pytest.mark.long
def test_command_that_was_carried_out_again_has_one_row(
    tmp_path: Path, history: AgedHistory
) -> None:
    for name in ARCHIVES:
        copy_due(tmp_path, name)
    history.look_after(NOW_MS)
    history.batch_id += 1
    history.command("c1", "accepted", NOW_MS)
    history.check()
    rows = TableReader(tmp_path, CLUSTER).rows("commands", condition="status = 'done'")
    assert "c1" not in {row["command_id"] for row in rows}


@pytest.mark.long
def test_open_and_remembered_commands_stay(tmp_path: Path) -> None:
    history = AgedHistory(tmp_path, days=DAYS, kind=DROPPED)
    for age in range(60, 30, -1):
        history.batch(day(age, now_ms=NOW_MS))
    history.look_after(NOW_MS)
    left = scan(open_table(tmp_path, COMMANDS.name), ["command_id", "status"])
    ids = set(left["command_id"].to_pylist())
    assert ids == {f"c{number}" for number in range(30) if number % 5 == 0 or number >= 18}


@pytest.mark.parametrize(("kind", "is_less"), [(DROPPED, True), (KEPT, False)])
def test_without_an_archive_history_goes_only_where_that_is_set(
    month: AgedHistory, tmp_path: Path, kind: str, *, is_less: bool
) -> None:
    history = month.copied_to(tmp_path, kind)
    before = live(tmp_path, OWNERSHIP_EVENTS.name)
    history.look_after(NOW_MS)
    assert (live(tmp_path, OWNERSHIP_EVENTS.name) < before) == is_less
    reader = TableReader(tmp_path, CLUSTER)
    for age in range(DAYS - 1, -1, -1):
        at_ms = day(age, now_ms=NOW_MS)
        found = {row["bundle"]: row["destination"] for row in reader.at_time(at_ms).rows}
        assert found == history.owners_at(at_ms)


@pytest.mark.long
def test_much_history_goes_in_turns(month: AgedHistory, tmp_path: Path) -> None:
    history = month.copied_to(tmp_path, DROPPED)
    history.upkeep.history = HistoryUpkeep(kind=DROPPED, days=DAYS, rows_max=8)
    turns = [history.look_after(NOW_MS) for _ in range(30)]
    assert turns[-1] == 0
    assert sum(1 for gone in turns if gone) > 1
    rows = scan(open_table(tmp_path, OWNERSHIP_EVENTS.name), ["bundle", "at_ms"])
    old = rows.filter(pc.less(rows["at_ms"], NOW_MS - DAYS * DAY_MS))
    assert sorted(old["bundle"].to_pylist()) == sorted(BUNDLES)
