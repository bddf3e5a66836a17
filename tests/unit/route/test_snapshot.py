"""One moment's answers, and how the next moment is made from it."""

import pytest

from lbcore.model.hashing import HashFunction, hash_topic
from lbcore.model.names import InvalidNameError
from lbcore.ownership.records import State
from lbcore.route.addresses import BrokerAddress, ListenerUrls
from lbcore.route.batch import BatchIndex
from lbcore.route.bundles import Unsound
from lbcore.route.snapshot import (
    DIGESTS,
    LookupOutcome,
    LookupSnapshot,
    TablePosition,
    find_regressions,
)
from tests.unit.route.test_bundles import HIGH, LOW, route

CRC, MURMUR = HashFunction.CRC32, HashFunction.MURMUR3_32
B1 = BrokerAddress(
    broker="b1",
    pulsar_service_url="pulsar://b1:6650",
    listeners={"inside": ListenerUrls(service_url="pulsar://10.0.0.1:6650")},
)
TOPICS = [f"persistent://t/n/topic-{number}" for number in range(50)]


def snapshot(function: HashFunction = CRC) -> LookupSnapshot:
    halves = [route(LOW, destination="b1"), route(HIGH, destination="b2")]
    return (
        LookupSnapshot(cluster="c")
        .with_namespaces({"t/n": function})
        .with_routes(halves)
        .with_brokers([B1])
    )


@pytest.mark.parametrize("function", [CRC, MURMUR])
def test_lookup_finds_the_half_that_the_namespaces_hash_says(function: HashFunction) -> None:
    found = snapshot(function)
    for topic in TOPICS:
        expected = LOW if hash_topic(function, topic) < 0x80000000 else HIGH
        route_found = found.lookup(topic)
        assert route_found is not None
        assert route_found.bundle == expected


@pytest.mark.parametrize("function", [CRC, MURMUR])
def test_digests_equal_the_models_hashes(function: HashFunction) -> None:
    for topic in ("", "123456789", "persistent://t/n/käse-\u4e3b\U0001f9c0"):
        assert DIGESTS[function](topic.encode()) == hash_topic(function, topic)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("t/n/x", "persistent://t/n/x"),
        ("PERSISTENT://t/n/x", "persistent://t/n/x"),
        ("persistent://t/n/\ud800", "persistent://t/n/?"),
    ],
)
def test_lookup_of_another_spelling_gives_the_full_names_bundle(short: str, full: str) -> None:
    found = snapshot()
    assert found.lookup(short) == found.lookup(full) is not None
    index = BatchIndex(found)
    assert index.find([short]).tolist() == index.find([full]).tolist() != [-1]


@pytest.mark.parametrize(
    "topic",
    ["segment://t/n/orders/0000-7fff-0", "segment://t/n/orders/8000-ffff-1", "topic://t/n/o"],
)
def test_lookup_of_a_segment_and_of_a_scalable_topic_is_by_its_own_name(topic: str) -> None:
    found = snapshot()
    located = found.lookup(topic)
    assert located is not None
    assert located.bundle == (LOW if hash_topic(CRC, topic) < 0x80000000 else HIGH)
    index = BatchIndex(found)
    assert [index.routes[at] for at in index.find([topic]).tolist()] == [located]
    assert found.lookup(topic.replace("//t/n/", "//t/other/")) is None


def test_lookup_of_a_v1_name_is_of_the_v1_namespace() -> None:
    bundle = "p/c/n/0x00000000_0xffffffff"
    found = LookupSnapshot(cluster="c").with_namespaces({"p/c/n": CRC}).with_routes([route(bundle)])
    for topic in ("persistent://p/c/n/x", "persistent://p/c/n/x/y"):
        located = found.lookup(topic)
        assert located is not None
        assert located.bundle == bundle


@pytest.mark.parametrize("name", ["http://t/n/x", "persistent://t/x", "a/b", "persistent://t/ /x"])
def test_lookup_of_what_is_no_topic_raises(name: str) -> None:
    with pytest.raises(InvalidNameError):
        snapshot().lookup(name)


def test_answer_by_what_is_known() -> None:
    found = snapshot()
    of_b1 = next(t for t in TOPICS if hash_topic(CRC, t) < 0x80000000)
    of_b2 = next(t for t in TOPICS if hash_topic(CRC, t) >= 0x80000000)
    free = found.with_routes([route(LOW, 2, State.FREE, "b1", "")])
    outcomes = [
        found.answer(of_b1).outcome,
        found.answer(of_b1, "inside").outcome,
        found.answer(of_b1, "outside").outcome,
        found.answer(of_b2).outcome,
        found.answer("persistent://t/other/x").outcome,
        free.answer(of_b1).outcome,
    ]
    assert outcomes == [
        LookupOutcome.FOUND,
        LookupOutcome.FOUND,
        LookupOutcome.LISTENER_UNKNOWN,
        LookupOutcome.BROKER_UNKNOWN,
        LookupOutcome.NAMESPACE_NOT_FOUND,
        LookupOutcome.NO_OWNER,
    ]


def test_namespace_without_records_has_no_owner_yet() -> None:
    found = LookupSnapshot(cluster="c").with_namespaces({"t/n": CRC})
    assert found.answer(TOPICS[0]).outcome is LookupOutcome.NO_OWNER
    assert BatchIndex(found).find_brokers(TOPICS[:1]).tolist() == [""]
    assert not found.unsound


def test_records_of_an_unknown_namespace_are_kept_until_it_is_known() -> None:
    records_first = LookupSnapshot(cluster="c").with_routes([route(LOW), route(HIGH)])
    assert records_first.lookup(TOPICS[0]) is None
    assert records_first.bundle_count == 0
    known = records_first.with_namespaces({"t/n": CRC})
    assert known.lookup(TOPICS[0]) is not None
    assert known.bundle_count == 2


def test_deleted_namespace_is_not_found_and_may_come_back_with_another_hash() -> None:
    gone = snapshot(CRC).with_namespaces({})
    assert gone.answer(TOPICS[0]).outcome is LookupOutcome.NAMESPACE_NOT_FOUND
    assert gone.namespace_count == 0
    back = gone.with_namespaces({"t/n": MURMUR})
    assert [back.lookup(t) for t in TOPICS] == [snapshot(MURMUR).lookup(t) for t in TOPICS]


def test_unsound_namespace_is_named_only_while_it_exists_and_is_unsound() -> None:
    gap = LookupSnapshot(cluster="c").with_routes([route(LOW)])
    assert not gap.unsound
    assert gap.with_namespaces({"t/n": CRC}).unsound == {"t/n": Unsound.GAP}
    healed = gap.with_namespaces({"t/n": CRC}).with_routes([route(HIGH)])
    assert not healed.unsound


def test_change_leaves_the_snapshot_it_was_made_from_alone() -> None:
    before = snapshot()
    answers = [before.lookup(topic) for topic in TOPICS]
    after = before.with_routes([route(LOW, 2, destination="b9")]).at(TablePosition(table_version=7))
    assert [before.lookup(topic) for topic in TOPICS] == answers
    assert before.position.table_version == -1
    assert {found.broker for t in TOPICS if (found := after.lookup(t))} == {"b9", "b2"}


def test_regressions_are_lower_versions_of_bundles_in_both() -> None:
    old = snapshot().with_routes([route(LOW, 5), route(HIGH, 5)])
    new = LookupSnapshot(cluster="c").with_routes([route(LOW, 4)])
    assert find_regressions(old, new) == [LOW]
    assert find_regressions(new, old) == []
