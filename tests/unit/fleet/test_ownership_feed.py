"""The feed of ownership records: news only, and to whom it matters."""

from jobs.adapters.kafka.clients import Received
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from lbcore.agent.state import RecordForgotten, RecordRead
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.wire_record import format_record
from tests.support.processes.agent_talk import assigning, owned, releasing

BUNDLE = "t/n/0x00000000_0xffffffff"


def message(record: OwnershipRecord) -> Received:
    key, value = format_record(record)
    return raw(key.decode(), value)


def raw(key: str, value: bytes | None) -> Received:
    return Received(partition=0, offset=0, timestamp_ms=0, key=key, value=value)


def test_feed_drops_versions_that_are_not_newer() -> None:
    first = assigning(BUNDLE, "b1", "i", version=4)
    feed = OwnershipFeed("c")
    taken = feed.take([message(first), message(first), message(assigning(BUNDLE, "b2", "i", 3))])
    assert [(news.event, news.brokers) for news in taken] == [(RecordRead(record=first), ("b1",))]


def test_feed_tells_former_owners_too() -> None:
    first = assigning(BUNDLE, "b1", "i")
    moved = releasing(owned(first), destination="b2")
    later = assigning(BUNDLE, "b3", "i", version=9)
    feed = OwnershipFeed("c")
    taken = feed.take([message(record) for record in (first, moved, later)])
    assert [news.brokers for news in taken] == [("b1",), ("b1", "b2"), ("b1", "b2", "b3")]


def test_feed_of_a_tombstone_forgets_the_bundle() -> None:
    feed = OwnershipFeed("c")
    feed.take([message(assigning(BUNDLE, "b1", "i", version=7))])
    (gone,) = feed.take([raw(f"c/{BUNDLE}", None)])
    assert (gone.event, gone.brokers) == (RecordForgotten(bundle=BUNDLE), ("b1",))
    assert feed.records == {}


def test_feed_ignores_other_clusters_and_counts_what_is_no_record() -> None:
    feed = OwnershipFeed("c")
    other = message(assigning(BUNDLE, "b1", "i"))
    assert feed.take([raw(f"cc/{BUNDLE}", other.value), raw(f"c/{BUNDLE}", b"{")]) == []
    assert feed.rejected == 1


def test_feed_gives_a_starting_broker_the_newest_records_that_name_it() -> None:
    low, high = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
    feed = OwnershipFeed("c")
    moved = releasing(owned(assigning(high, "b1", "i")), destination="b2")
    feed.take(
        [message(moved), message(assigning(low, "b1", "i")), message(assigning(BUNDLE, "b3", "i"))]
    )
    assert [read.record.bundle for read in feed.current("b1")] == [low, high]
    assert [read.record.bundle for read in feed.current("b2")] == [high]
    assert feed.current("b9") == []


def test_feed_of_one_broker_remembers_no_other_that_ever_was() -> None:
    feed, all_of_it = OwnershipFeed("c", told=("b7",)), OwnershipFeed("c")
    for version in range(1, 1_000):
        news = message(assigning(BUNDLE, f"b{version}", "i", version=version))
        ((mine,), (told,)) = (feed.take([news]), all_of_it.take([news]))
        assert mine.brokers == (("b7",) if version >= 7 else ())
        assert "b7" in told.brokers or version < 7
    assert feed._concerned == {BUNDLE: {"b7"}}  # noqa: SLF001 (what grew is seen nowhere else)
