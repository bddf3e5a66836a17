"""Bundle ranges, bundle sets, hashes and names; what all mean by crowded topics."""

import numpy as np
import pytest

from lbcore.assess.risks import crowded_partitions
from lbcore.bridge.guardian import Memory, ProbeRound, Trouble, anomalies
from lbcore.model.bundles import (
    BundleRange,
    HashFunction,
    InvalidRangeError,
    NamespaceBundles,
    children_of,
    even_boundaries,
    explicit_boundaries,
    hash_topic,
)
from lbcore.model.names import (
    FULL_UPPER,
    InvalidNameError,
    are_on_too_few,
    locate_topic,
    parse_bundle,
    partition_of,
    strip_partition,
    whole_topic,
)
from lbcore.plan.shed.ballast_search import crowded_topics
from lbcore.plan.snapshot import Partitions
from tests.conformance.reference.bundle_sets import FULL_RANGE, BundleSet
from tests.conformance.reference.bundle_split import (
    split_bundles,
)

QUARTERS = BundleSet("t/ns", even_boundaries(4), version=7)


def test_range_or_division_that_is_impossible_is_refused() -> None:
    for lower, upper in ((0, 0), (5, 4), (-1, 4), (0, FULL_UPPER + 1), (FULL_UPPER + 1,) * 2):
        with pytest.raises(InvalidRangeError, match="lower="):
            BundleRange(lower, upper)
    for count in (0, -1, (1 << 32) + 1):
        with pytest.raises(InvalidRangeError, match="number of bundles"):
            even_boundaries(count)
    for given in (["0x1", "0xffffffff"], ["0", "0x80000000"], ["0"], []):
        with pytest.raises(InvalidRangeError, match="must include"):
            explicit_boundaries(given)
    with pytest.raises(InvalidRangeError, match=r"got 0x00000001 to 0x0000ea60$"):
        explicit_boundaries(map(str, range(1, 60_001)))
    for text in ("9" * 5_000, "-" + "9" * 5_000, "0x" + "f" * 5_000, "0" + "7" * 5_000):
        with pytest.raises(InvalidRangeError, match="must be a number"):
            explicit_boundaries(["0", text])
    for at in ([0], [10], [11], [-1], [5, 5]):
        with pytest.raises(InvalidRangeError):
            children_of(BundleRange(0, 10), at)


@pytest.mark.parametrize(
    "boundaries",
    [(), (0,), (0, 5), (0, 5, 5, FULL_UPPER), (0, 9, 5, FULL_UPPER), (-1, FULL_UPPER)],
)
def test_bundle_set_with_impossible_boundaries_is_refused(boundaries: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRangeError):
        NamespaceBundles("t/ns", boundaries)


def test_find_hash_at_and_between_boundaries() -> None:
    wanted = {0: 0, 0x3FFFFFFF: 0, 0x40000000: 1, 0xC0000000: 3, FULL_UPPER: 3}
    assert {at: QUARTERS.find(at) for at in wanted} == wanted


def test_topic_of_another_namespace_is_refused() -> None:
    with pytest.raises(InvalidRangeError, match="must be of the namespace"):
        QUARTERS.hash_of("persistent://t/other/a")


def test_split_evenly_bisects_the_range_itself() -> None:
    split = split_bundles(BundleSet("t/ns", (0, FULL_UPPER), version=7), FULL_RANGE)
    assert [child.text for child in split.children] == [
        "0x00000000_0x7fffffff",
        "0x7fffffff_0xffffffff",
    ]
    assert split.bundles.version == 7


@pytest.mark.parametrize("function", list(HashFunction))
def test_half_surrogate_hashes_as_question_mark(function: HashFunction) -> None:
    assert hash_topic(function, "t\ud800") == hash_topic(function, "t?")


@pytest.mark.parametrize(
    ("topic", "partition", "stripped"),
    [
        ("persistent://t/ns/a-partition-0", 0, "persistent://t/ns/a"),
        ("persistent://t/ns/a-partition-17", 17, "persistent://t/ns/a"),
        ("a-partition-1-partition-2", 2, "a-partition-1"),
        ("a-partition-01", None, "a-partition-01"),
        ("a-partition-", None, "a-partition-"),
        ("a-partition-1x", None, "a-partition-1x"),
        ("a-partition-2147483648", None, "a-partition-2147483648"),
        ("a", None, "a"),
    ],
)
def test_partition_suffix_is_a_plain_number(
    topic: str, partition: int | None, stripped: str
) -> None:
    assert (partition_of(topic), strip_partition(topic)) == (partition, stripped)


@pytest.mark.parametrize(
    ("topic", "whole"),
    [
        ("segment://t/ns/a/0000-7fff-2", "topic://t/ns/a"),
        ("segment://t/ns/a/0000-7fff-13", "topic://t/ns/a"),
        ("segment://t/ns/a-partition-1/0000-ffff-0", "topic://t/ns/a-partition-1"),
        ("segment://t/ns/a/0000-7fff", "segment://t/ns/a/0000-7fff"),
        ("segment://t/ns/a/0000-7FFF-2", "segment://t/ns/a/0000-7FFF-2"),
        ("segment://t/ns/a/0000-7fff-02", "segment://t/ns/a/0000-7fff-02"),
        ("persistent://t/ns/a/0000-7fff-2", "persistent://t/ns/a/0000-7fff-2"),
        ("persistent://t/ns/a-partition-3", "persistent://t/ns/a"),
        ("topic://t/ns/a", "topic://t/ns/a"),
    ],
)
def test_part_is_of_its_whole_topic_and_a_whole_one_of_itself(topic: str, whole: str) -> None:
    assert whole_topic(topic) == whole


@pytest.mark.parametrize(
    "topic", ["topic://t/ns", "topic://t/ns/ ", "segment://t/n s/a", "x://a/b/c"]
)
def test_what_is_no_scalable_topic_is_no_topic(topic: str) -> None:
    with pytest.raises(InvalidNameError):
        locate_topic(topic)


def test_bundle_name_without_namespace_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_bundle("0x00000000_0xffffffff")


def test_bundle_name_with_a_reversed_range_from_the_last_hash_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_bundle("acme/ns/0xffffffff_0x00000000")


TOPIC = "persistent://acme/ns/t"


def by_planner(hosts: list[int], brokers: int) -> bool:
    rows = np.arange(len(hosts))
    ones = np.ones(len(hosts), dtype=np.int64)
    found = Partitions(rows=rows, topic=0 * rows, count=ones, keys=np.zeros(1, dtype=np.int64))
    return crowded_topics(found, np.array(hosts), brokers) == (0,)


def by_guardian(hosts: list[int], brokers: int) -> bool:
    bundles = {f"acme/ns/{at}": str(host) for at, host in enumerate(hosts)}
    seen = ProbeRound(
        listed=frozenset(map(str, range(brokers))),
        owned={
            str(broker): frozenset(name for name, host in bundles.items() if host == str(broker))
            for broker in range(brokers)
        },
        partitions={name: {TOPIC: 1} for name in bundles},
    )
    return any(one.trouble is Trouble.NARROW for one in anomalies(Memory(), seen, 8, 0))


def by_assessment(hosts: list[int], brokers: int) -> bool:
    owners = {f"{TOPIC}-partition-{at}": str(host) for at, host in enumerate(hosts)}
    return bool(crowded_partitions(owners, dict.fromkeys(map(str, range(brokers)), brokers)))


@pytest.mark.parametrize("brokers", range(1, 8))
def test_all_three_mean_the_same_by_partitions_on_too_few_brokers(brokers: int) -> None:
    for partitions in range(1, 10):
        for used in range(1, min(partitions, brokers) + 1):
            hosts = [at % used for at in range(partitions)]
            expected = used < min(partitions, brokers) / 2
            assert are_on_too_few(used, partitions, brokers) == expected
            assert by_planner(hosts, brokers) == expected
            assert by_guardian(hosts, brokers) == expected
            assert by_assessment(hosts, brokers) == expected, (used, partitions, brokers)
