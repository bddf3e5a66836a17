"""The follower on damaged tables: it keeps what it has, says so, and comes back."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.delta.tables import table_path
from jobs.adapters.following.delta_follower import DeltaFollower
from lbcore.model.tables import NAMESPACES
from lbcore.route.bundles import Unsound
from tests.support.tables.lookup_tables import (
    BUNDLES,
    EVENTS,
    NAMESPACE,
    TOPIC,
    Row,
    TablesWriter,
    content,
    fresh,
    move,
    owned,
    poll_until,
    poll_until_reloaded,
    served,
)

HALVES = ("0x00000000_0x20000000", "0x20000000_0x40000000")


def test_unsound_batch_is_refused_and_its_correction_taken_over(
    follower: DeltaFollower, writer: TablesWriter
) -> None:
    before, view = content(follower), follower.view
    writer.batch([Row(bundle=BUNDLES[2], version=2, state="Deleted", source="b1")])
    for _ in range(3):
        follower.poll()
    assert content(follower) == before
    assert follower.view is view
    assert follower.counts.refused[Unsound.GAP] >= 1
    assert "gap at acme/orders" in follower.counts.last_error
    writer.batch([move(BUNDLES[2], 3, "b3")])
    follower.poll()
    assert (BUNDLES[2], 3, "b3") in content(follower)


def test_unsound_tables_at_the_start_are_not_served(tmp_path: Path, writer: TablesWriter) -> None:
    writer.batch([Row(bundle="acme/orders/0x00000000_0x80000000", version=1, destination="b1")])
    follower = fresh(tmp_path)
    assert follower.view is None
    assert follower.counts.refused == {Unsound.OVERLAP: 1}


def test_broken_commit_keeps_the_last_snapshot_until_it_is_mended(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    version = writer.batch([move(BUNDLES[0], 2, "b9")])
    commit = table_path(tmp_path, EVENTS) / "_delta_log" / f"{version:020d}.json"
    whole = commit.read_bytes()
    commit.write_bytes(whole[: len(whole) // 2])
    before, view = content(follower), follower.view
    for _ in range(3):
        follower.poll()
    assert content(follower) == before
    assert follower.view is view
    assert follower.counts.errors >= 1
    commit.write_bytes(whole)
    poll_until_reloaded(follower, ReloadReason.UNREADABLE)
    assert (BUNDLES[0], 2, "b9") in content(follower)


@pytest.mark.parametrize("damage", ["missing", "truncated", "noise"])
def test_broken_data_file_keeps_the_last_snapshot_until_it_is_mended(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter, damage: str
) -> None:
    folder = Path(str(table_path(tmp_path, EVENTS)))
    old = set(folder.glob("*.parquet"))
    writer.batch([move(BUNDLES[0], 2, "b9")], current=False)
    (path,) = set(folder.glob("*.parquet")) - old
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(whole[:100] if damage == "truncated" else b"\x00" * len(whole))
    before = content(follower)
    for _ in range(3):
        follower.poll()
    assert content(follower) == before
    assert follower.counts.errors >= 1
    path.write_bytes(whole)
    poll_until_reloaded(follower, ReloadReason.UNREADABLE)
    assert (BUNDLES[0], 2, "b9") in content(follower)


def test_namespace_row_that_no_job_writes_costs_that_namespace_alone(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    before = content(follower)
    writer.namespaces({"acme/odd": "md5"})
    writer.batch([move(BUNDLES[0], 2, "b9")])
    follower.poll()
    assert "md5" in follower.counts.last_error
    assert (BUNDLES[0], 2, "b9") in content(follower)
    assert content(fresh(tmp_path)) == content(follower) != before
    writer.namespaces({NAMESPACE: "md5"})
    follower.poll()
    assert served(follower).lookup(TOPIC) is not None
    writer.namespaces({NAMESPACE: "crc32", "acme/odd": "crc32"})
    follower.poll()
    assert follower.counts.last_error == ""


UNREAD = {
    "unknown state": {"state": "Frozen", "destination": "b9"},
    "no bundle's name": {"state": "Owned", "destination": "b9", "bundle": f"{NAMESPACE}/odd"},
}


@pytest.mark.parametrize("unread", UNREAD)
@pytest.mark.parametrize("is_loaded", [False, True], ids=["followed", "loaded"])
def test_record_that_cannot_be_read_leaves_its_bundle_as_it_was_and_others_go_on(
    follower: DeltaFollower, writer: TablesWriter, unread: str, *, is_loaded: bool
) -> None:
    odd = Row(**{"bundle": BUNDLES[0], "version": 2, **UNREAD[unread]})  # type: ignore[arg-type]
    writer.batch([odd, move(BUNDLES[1], 2, "b9")])
    if is_loaded:
        writer.tables[EVENTS].alter.add_constraint({"batch_is_known": "batch_id >= 0"})
    follower.poll()
    assert follower.counts.reloads[ReloadReason.REWRITTEN] == is_loaded
    assert (BUNDLES[0], 1, "b1") in content(follower)
    assert (BUNDLES[1], 2, "b9") in content(follower)
    assert odd.bundle in follower.counts.last_error
    assert follower.view is not None
    age_ms = follower.view.confirmed_ms
    follower.poll()
    assert follower.view.confirmed_ms > age_ms
    writer.batch([move(odd.bundle, 3, "b3")] if odd.bundle in BUNDLES else [])
    follower.poll()
    assert (follower.counts.last_error == "") is (odd.bundle in BUNDLES)


def test_namespace_without_a_record_that_cannot_be_read_is_answered_as_before(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    writer.namespaces({"acme/other": "crc32"})
    writer.batch(owned("acme/other", 2, ["b2"]))
    follower.poll()
    before = [row for row in content(follower) if row[0].startswith(NAMESPACE)]
    children = [Row(bundle=f"{NAMESPACE}/{half}", version=1, destination="b1") for half in HALVES]
    odd = replace(children[1], state="Frozen")
    parent = Row(bundle=BUNDLES[0], version=2, state="Deleted", source="b1")
    writer.batch([parent, children[0], odd, *owned("acme/other", 2, ["b3"], version=2)])
    follower.poll()
    assert [row for row in content(follower) if row[0].startswith(NAMESPACE)] == before
    assert {row[2] for row in content(follower) if row not in before} == {"b3"}
    assert odd.bundle in follower.counts.last_error
    started = fresh(tmp_path)
    route = served(started).lookup(TOPIC)
    assert route is not None
    assert (route.version_id, route.broker) == (0, "")
    writer.batch([replace(children[1], version=2)])
    for one in (follower, started):
        one.poll()
        assert {row[0] for row in content(one)} >= {child.bundle for child in children}
        assert one.counts.last_error == ""


def test_deleted_tables_keep_the_last_snapshot_and_new_ones_are_another_history(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    writer.batch([move(BUNDLES[0], 9, "b9")])
    follower.poll()
    before = content(follower)
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    for _ in range(3):
        follower.poll()
    assert content(follower) == before
    assert follower.counts.errors >= 1
    again = TablesWriter(tmp_path)
    again.namespaces({NAMESPACE: "crc32"})
    again.batch(owned(NAMESPACE, 2, ["b5"]))
    poll_until(follower, lambda: {broker for _, _, broker in content(follower)} == {"b5"})
    assert follower.counts.reloads[ReloadReason.LOG_FILE_MISSING] == 1


def test_tables_put_back_to_an_older_version_are_refused(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    backup = tmp_path.with_name("backup")
    shutil.copytree(tmp_path, backup)
    for version in (2, 3):
        writer.batch([move(BUNDLES[0], version, "b9")])
    follower.poll()
    before = content(follower)
    shutil.rmtree(tmp_path)
    shutil.copytree(backup, tmp_path)
    poll_until_reloaded(follower, ReloadReason.LOG_FILE_MISSING)
    assert content(follower) == before
    assert follower.counts.refused == {Unsound.VERSION_WENT_BACK: 1}
    restored = TablesWriter(tmp_path, "q2", epoch=2)
    restored.batch([move(BUNDLES[0], 4, "b3")])
    follower.poll()
    assert (BUNDLES[0], 4, "b3") in content(follower)


def test_thread_goes_on_after_whatever_a_poll_raises(
    follower: DeltaFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    stop = threading.Event()

    def poll() -> None:
        calls.append(1)
        if len(calls) == 3:
            stop.set()
        raise RuntimeError("bug")

    monkeypatch.setattr(follower, "poll", poll)
    follower.run(stop, poll_ms=1)
    assert len(calls) == 3
    assert follower.counts.errors == 3


def test_namespaces_table_alone_gone_keeps_the_last_snapshot(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    assert writer.batch_id == 0
    before = content(follower)
    shutil.rmtree(table_path(tmp_path, NAMESPACES.name))
    for _ in range(2):
        follower.poll()
    assert content(follower) == before
    assert follower.counts.errors >= 1
