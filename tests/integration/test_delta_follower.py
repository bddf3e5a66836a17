"""The follower on real Delta tables: what it takes over, under whatever the writer does."""

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.delta.tables import table_path
from jobs.adapters.following.delta_follower import DeltaFollower
from lbcore.route.snapshot import LookupOutcome
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    CLUSTER,
    EVENTS,
    NAMESPACE,
    Row,
    TablesWriter,
    content,
    fresh,
    move,
    owned,
    served,
)


def test_follower_without_tables_waits_until_they_are_there(tmp_path: Path) -> None:
    follower = DeltaFollower(tmp_path / "later", CLUSTER)
    follower.poll()
    assert follower.view is None
    assert follower.counts.errors == 0
    writer = TablesWriter(tmp_path / "later")
    writer.namespaces({NAMESPACE: "murmur3_32"})
    writer.batch(owned(NAMESPACE, 4, BROKER_NAMES))
    follower.poll()
    assert len(content(follower)) == 4


def test_follower_takes_over_several_batches_in_one_swap_without_a_reload(
    follower: DeltaFollower, writer: TablesWriter
) -> None:
    swaps: list[int] = []
    follower.on_change(lambda: swaps.append(1))
    for version in (2, 3, 4):
        newest = writer.batch([move(BUNDLES[0], version, f"b{version}")])
    follower.poll()
    assert (BUNDLES[0], 4, "b4") in content(follower)
    assert swaps == [1]
    position = served(follower).position
    assert (position.table_version, position.batch_id) == (newest, 3)
    assert follower.counts.reloads == {ReloadReason.START: 1}


def test_follower_after_a_split_answers_with_the_children(
    follower: DeltaFollower, writer: TablesWriter
) -> None:
    children = ["acme/orders/0x00000000_0x20000000", "acme/orders/0x20000000_0x40000000"]
    writer.batch([Row(bundle=BUNDLES[0], version=2, state="Splitting", source="b1")])
    follower.poll()
    assert (BUNDLES[0], 2, "b1") in content(follower)
    deleted = Row(bundle=BUNDLES[0], version=3, state="Deleted", source="b1")
    writer.batch([*(Row(bundle=c, version=1, destination="b1") for c in children), deleted])
    follower.poll()
    assert [bundle for bundle, _, _ in content(follower)] == [*children, *BUNDLES[1:]]


def test_load_after_a_crash_between_events_and_current_records_has_the_events(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter
) -> None:
    writer.batch([move(BUNDLES[1], 2, "b9")], current=False)
    follower.poll()
    assert (BUNDLES[1], 2, "b9") in content(follower)
    assert content(fresh(tmp_path)) == content(follower)


@pytest.mark.parametrize("epoch", [1, 2])
def test_load_with_batch_ids_that_began_anew_has_the_new_querys_events(
    tmp_path: Path, writer: TablesWriter, epoch: int
) -> None:
    for version in range(2, 6):
        writer.batch([move(BUNDLES[0], version, "b2")])
    rebuilt = TablesWriter(tmp_path, "q2", epoch=epoch, first_batch=0)
    rebuilt.now_ms = writer.now_ms
    rebuilt.batch([move(BUNDLES[0], 6, "b7")], current=False)
    loaded = fresh(tmp_path)
    assert (BUNDLES[0], 6, "b7") in content(loaded)
    assert served(loaded).position.query_id == "q2"


def test_load_reads_only_the_events_that_the_current_records_may_lack(
    tmp_path: Path, writer: TablesWriter, caplog: pytest.LogCaptureFixture
) -> None:
    writer.now_ms += 3_600_000
    writer.batch([move(BUNDLES[0], 2, "b2")])
    caplog.set_level("INFO")
    fresh(tmp_path)
    loads = [
        record.__dict__["fields"] for record in caplog.records if record.msg == "tables_loaded"
    ]
    assert [fields["events_added"] for fields in loads] == [1]


def test_follower_takes_over_brokers_and_namespaces(
    follower: DeltaFollower, writer: TablesWriter
) -> None:
    writer.brokers("b1", port=7777)
    writer.namespaces({"acme/new": "murmur3_32"})
    writer.batch(owned("acme/new", 2, ["b1"]))
    follower.poll()
    answer = served(follower).answer("persistent://acme/new/t1")
    assert answer.address is not None
    assert answer.address.pulsar_service_url == "pulsar://b1:7777"
    writer.namespaces({"acme/new": "murmur3_32"}, deleted=["acme/new"])
    follower.poll()
    outcome = served(follower).answer("persistent://acme/new/t1").outcome
    assert outcome is LookupOutcome.NAMESPACE_NOT_FOUND


def test_follower_sees_only_its_cluster(tmp_path: Path, writer: TablesWriter) -> None:
    assert writer.batch_id == 0
    other = DeltaFollower(tmp_path, "other'cluster")
    other.poll()
    assert len(served(other).names) == len(served(other).brokers) == 0
    writer.batch([move(BUNDLES[0], 2, "b9")])
    other.poll()
    assert served(other).namespaces == {}


def test_ages_are_since_the_last_look_and_since_the_writers_batch(
    follower: DeltaFollower, writer: TablesWriter
) -> None:
    view = follower.view
    assert view is not None
    assert view.age_ms(view.confirmed_ms + 250) == 250
    assert view.writer_silent_ms(writer.now_ms + 1_500) == 1_500
    writer.batch([])
    follower.poll()
    beaten = follower.view
    assert beaten is not None
    assert beaten.confirmed_ms >= view.confirmed_ms
    assert beaten.writer_silent_ms(writer.now_ms) == 0
    assert beaten.snapshot.namespaces is view.snapshot.namespaces


def test_writer_is_known_although_the_newest_commit_is_a_compaction(
    tmp_path: Path, writer: TablesWriter
) -> None:
    writer.batch([move(BUNDLES[0], 2, "b9")])
    DeltaTable(str(table_path(tmp_path, EVENTS))).optimize.compact()
    view = fresh(tmp_path).view
    assert view is not None
    assert view.writer is not None
    assert view.writer.batch_id == 1


@pytest.mark.parametrize("seed", range(3))
def test_following_equals_loading_at_any_moment(
    tmp_path: Path, follower: DeltaFollower, writer: TablesWriter, seed: int
) -> None:
    generator = random.Random(seed)
    versions = dict.fromkeys(BUNDLES, 1)
    for _ in range(12):
        chosen = generator.sample(BUNDLES, generator.randrange(0, 4))
        for bundle in chosen:
            versions[bundle] += 1
        rows = [move(bundle, versions[bundle], generator.choice(BROKER_NAMES)) for bundle in chosen]
        writer.batch(rows, current=generator.random() < 0.7)
        if generator.random() < 0.2:
            table = DeltaTable(str(table_path(tmp_path, EVENTS)))
            table.optimize.compact()
            writer.tables[EVENTS].update_incremental()
        if generator.random() < 0.5:
            follower.poll()
            assert content(follower) == content(fresh(tmp_path))
