"""Bundle ranges, bundle sets, hashes and names."""

import pytest

from lbcore.model.bundles import (
    FULL_RANGE,
    Bundle,
    BundleRange,
    InvalidRangeError,
    NamespaceBundles,
    UncoveredHashError,
    children_of,
    decode_boundary,
    even_boundaries,
    explicit_boundaries,
    parse_range_leniently,
)
from lbcore.model.hashing import HashFunction, crc32, hash_topic, hash_topics, murmur3_32
from lbcore.model.names import (
    FULL_UPPER,
    Domain,
    InvalidNameError,
    check_namespace,
    format_bundle,
    format_partition,
    format_topic,
    locate_topic,
    namespace_of_topic,
    parse_bundle,
    parse_range,
    parse_topic,
    partition_of,
    strip_partition,
    whole_topic,
)
from tests.conformance.reference.bundle_split import (
    UnknownBundleError,
    index_of,
    split_bundles,
    split_even,
)

QUARTERS = NamespaceBundles("t/ns", even_boundaries(4), version=7)


@pytest.mark.parametrize(
    ("lower", "upper", "topic_hash", "expected"),
    [
        (0, 10, 0, True),
        (0, 10, 10, False),
        (5, 10, 4, False),
        (5, FULL_UPPER, FULL_UPPER, True),
        (FULL_UPPER, FULL_UPPER, FULL_UPPER, True),
        (FULL_UPPER, FULL_UPPER, FULL_UPPER - 1, False),
    ],
)
def test_range_includes_its_lower_end_and_the_very_last_hash(
    lower: int, upper: int, topic_hash: int, *, expected: bool
) -> None:
    assert BundleRange(lower, upper).includes(topic_hash) is expected


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 0), (5, 4), (-1, 4), (0, FULL_UPPER + 1), (FULL_UPPER + 1,) * 2]
)
def test_range_empty_reversed_or_outside_is_refused(lower: int, upper: int) -> None:
    with pytest.raises(InvalidRangeError, match="lower="):
        BundleRange(lower, upper)


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (0, 1, False),
        (0, 2, True),
        (FULL_UPPER - 1, FULL_UPPER, False),
        (FULL_UPPER,) * 2 + (False,),
    ],
)
def test_range_wider_than_one_can_be_split(lower: int, upper: int, *, expected: bool) -> None:
    assert BundleRange(lower, upper).can_split is expected


def test_neighbours_do_not_overlap_and_a_range_overlaps_its_part() -> None:
    left, right = BundleRange(0, 10), BundleRange(10, FULL_UPPER)
    assert not left.overlaps(right)
    assert not right.overlaps(left)
    assert FULL_RANGE.overlaps(left)
    assert right.overlaps(BundleRange(FULL_UPPER, FULL_UPPER))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("a/n/0x00000000_0x10000000", "a/n/0x20000000_0x40000000", -1),
        ("a/n/0x20000000_0x40000000", "a/n/0x00000000_0x10000000", 1),
        ("a/n/0x00000000_0x10000000", "a/n/0x00000000_0x10000000", 0),
        ("b/n/0x00000000_0x10000000", "a/n/0x00000000_0x40000000", 1),
    ],
)
def test_bundles_are_ordered_by_namespace_then_range(left: str, right: str, expected: int) -> None:
    assert Bundle.parse(left).compare(Bundle.parse(right)) == expected


def test_overlapping_bundles_have_no_order() -> None:
    wide, part = Bundle("a/n", BundleRange(0, 10)), Bundle("a/n", BundleRange(5, 10))
    with pytest.raises(InvalidRangeError, match="overlap"):
        wide.compare(part)


def test_bundle_includes_topics_of_its_own_namespace_only() -> None:
    bundle = Bundle("t/ns", FULL_RANGE)
    assert bundle.includes_topic("persistent://t/ns/a")
    assert not bundle.includes_topic("persistent://t/other/a")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [0, 0xFFFFFFFF]),
        (2, [0, 0x80000000, 0xFFFFFFFF]),
        (3, [0, 0x55555555, 0xAAAAAAAA, 0xFFFFFFFF]),
    ],
)
def test_even_division_is_of_two_to_the_32(count: int, expected: list[int]) -> None:
    assert list(even_boundaries(count)) == expected


@pytest.mark.parametrize("count", [0, -1, (1 << 32) + 1])
def test_even_division_into_an_impossible_number_is_refused(count: int) -> None:
    with pytest.raises(InvalidRangeError, match="number of bundles"):
        even_boundaries(count)


def test_explicit_boundaries_are_decoded_sorted_and_made_single() -> None:
    given = ["0xFFFFFFFF", "0x80000000", "0", "2147483648", "#10"]
    assert explicit_boundaries(given) == (0, 0x10, 0x80000000, 0xFFFFFFFF)


@pytest.mark.parametrize("given", [["0x1", "0xffffffff"], ["0", "0x80000000"], ["0"], []])
def test_explicit_boundaries_without_both_ends_are_refused(given: list[str]) -> None:
    with pytest.raises(InvalidRangeError, match="must include"):
        explicit_boundaries(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0x1F", 31), ("0X1f", 31), ("#ff", 255), ("010", 8), ("+7", 7), ("0", 0)],
)
def test_boundary_is_read_as_a_java_literal(text: str, expected: int) -> None:
    assert decode_boundary(text) == expected


@pytest.mark.parametrize("text", ["", "0x", "08", "1_0", "-5", "4294967296", "ten", " 1", "0b1"])
def test_boundary_that_is_no_number_of_the_hash_space_is_refused(text: str) -> None:
    with pytest.raises(InvalidRangeError, match="boundary must be"):
        decode_boundary(text)


def test_range_as_operators_write_it_is_formatted_in_lower_case() -> None:
    assert parse_range_leniently("0X0_0xFFFFFFFF").text == "0x00000000_0xffffffff"
    with pytest.raises(InvalidRangeError, match="LOWER_UPPER"):
        parse_range_leniently("0x0")


@pytest.mark.parametrize(
    "boundaries",
    [(), (0,), (0, 5), (0, 5, 5, FULL_UPPER), (0, 9, 5, FULL_UPPER), (-1, FULL_UPPER)],
)
def test_bundle_set_with_impossible_boundaries_is_refused(boundaries: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRangeError):
        NamespaceBundles("t/ns", boundaries)


@pytest.mark.parametrize(
    ("topic_hash", "index"),
    [(0, 0), (0x3FFFFFFF, 0), (0x40000000, 1), (0xC0000000, 3), (FULL_UPPER, 3)],
)
def test_find_hash_at_and_between_boundaries(topic_hash: int, index: int) -> None:
    assert QUARTERS.find(topic_hash) == index


def test_find_as_pulsar_fails_at_the_last_hash() -> None:
    with pytest.raises(UncoveredHashError):
        QUARTERS.find_as_pulsar(FULL_UPPER)


def test_find_hash_below_the_first_boundary_fails() -> None:
    bundles = NamespaceBundles("t/ns", (0xA0000000, FULL_UPPER))
    assert bundles.find(0xA0000000) == 0
    with pytest.raises(UncoveredHashError):
        bundles.find(0x96F239F6)


def test_find_hash_outside_of_the_hash_space_fails() -> None:
    for topic_hash in (-1, FULL_UPPER + 1):
        with pytest.raises(UncoveredHashError):
            QUARTERS.find(topic_hash)


def test_hash_of_a_topic_is_by_the_namespaces_hash_function() -> None:
    topic = "persistent://t/ns/orders"
    other = NamespaceBundles("t/ns", QUARTERS.boundaries, HashFunction.MURMUR3_32)
    assert QUARTERS.hash_of(topic) == 0x7ECCC7B0
    assert other.hash_of(topic) == hash_topic(HashFunction.MURMUR3_32, topic)
    assert QUARTERS.hash_of(topic) != other.hash_of(topic)


def test_topic_of_another_namespace_is_refused() -> None:
    with pytest.raises(InvalidRangeError, match="must be of the namespace"):
        QUARTERS.hash_of("persistent://t/other/a")


def test_index_of_a_range_that_is_no_bundle_fails() -> None:
    assert index_of(QUARTERS, QUARTERS.ranges()[2]) == 2
    for stranger in (BundleRange(0, 0x80000000), BundleRange(1, 0x40000000)):
        with pytest.raises(UnknownBundleError):
            index_of(QUARTERS, stranger)


def test_split_evenly_bisects_the_range_itself() -> None:
    split = split_bundles(NamespaceBundles("t/ns", (0, FULL_UPPER), version=7), FULL_RANGE)
    assert [child.text for child in split.children] == [
        "0x00000000_0x7fffffff",
        "0x7fffffff_0xffffffff",
    ]
    assert split.bundles.version == 7


def test_split_at_boundaries_sorts_them_and_keeps_the_other_bundles() -> None:
    split = split_bundles(QUARTERS, QUARTERS.ranges()[1], at=[0x60000000, 0x50000000], parts=9)
    assert split.bundles.boundaries == (
        *(0, 0x40000000, 0x50000000, 0x60000000),
        *(0x80000000, 0xC0000000, FULL_UPPER),
    )
    assert [child.lower for child in split.children] == [0x40000000, 0x50000000, 0x60000000]


def test_split_into_three_gives_the_remainder_to_the_last() -> None:
    assert split_even(BundleRange(0, 11), 3) == (3, 6)


@pytest.mark.parametrize("parts", [0, -1, 12])
def test_split_into_an_impossible_number_of_parts_is_refused(parts: int) -> None:
    with pytest.raises(InvalidRangeError, match="parts must be"):
        split_even(BundleRange(0, 11), parts)


@pytest.mark.parametrize("at", [[0], [10], [11], [-1], [5, 5]])
def test_children_at_boundaries_on_or_outside_the_ends_are_refused(at: list[int]) -> None:
    with pytest.raises(InvalidRangeError):
        children_of(BundleRange(0, 10), at)


def test_split_of_a_range_that_is_too_narrow_is_refused() -> None:
    narrow = NamespaceBundles("t/ns", (0, 1, FULL_UPPER))
    with pytest.raises(InvalidRangeError, match="wider than 1"):
        split_bundles(narrow, narrow.ranges()[0])


def test_split_of_a_range_that_is_no_bundle_fails() -> None:
    with pytest.raises(UnknownBundleError):
        split_bundles(QUARTERS, FULL_RANGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 0xE8B7BE43),
        ("123456789", 0xCBF43926),
        ("persistent://pulsar/global/ns1/topic-1", 0x2924FAD1),
        ("persistent://tenant/namespace/topic-é", 0xD5895DA4),
    ],
)
def test_crc32_known_text_gives_published_value(text: str, expected: int) -> None:
    assert crc32(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("test", 0xBA6BD213),
        ("Hello, world!", 0xC0363E43),
        ("The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        ("123456789", 0xB4FEF382),
    ],
)
def test_murmur3_known_text_gives_published_value(text: str, expected: int) -> None:
    assert murmur3_32(text) == expected


@pytest.mark.parametrize("function", list(HashFunction))
def test_half_surrogate_hashes_as_question_mark(function: HashFunction) -> None:
    assert hash_topic(function, "t\ud800") == hash_topic(function, "t?")


def test_domain_changes_the_hash() -> None:
    stored = hash_topic(HashFunction.CRC32, "persistent://t/ns/a")
    assert stored != hash_topic(HashFunction.CRC32, "non-persistent://t/ns/a")


@pytest.mark.parametrize("function", list(HashFunction))
def test_many_topics_hash_as_one_by_one(function: HashFunction) -> None:
    topics = [f"persistent://t/ns/a-partition-{i}" for i in range(50)]
    assert hash_topics(function, topics).tolist() == [hash_topic(function, t) for t in topics]


def test_function_is_found_by_the_name_in_tables() -> None:
    assert HashFunction("murmur3_32") is HashFunction.MURMUR3_32


@pytest.mark.parametrize(
    ("name", "namespace", "local", "full"),
    [
        ("persistent://t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
        ("non-persistent://t/ns/a b", "t/ns", "a b", "non-persistent://t/ns/a b"),
        ("PERSISTENT://t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
        ("persistent://t/use/ns/a/b", "t/use/ns", "a/b", "persistent://t/use/ns/a/b"),
        ("a", "public/default", "a", "persistent://public/default/a"),
        ("t/ns/a", "t/ns", "a", "persistent://t/ns/a"),
    ],
)
def test_topic_name_is_read_as_pulsar_does(
    name: str, namespace: str, local: str, full: str
) -> None:
    topic = parse_topic(name)
    assert (topic.namespace, topic.local, topic.full) == (namespace, local, full)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kafka://t/ns/a",
        "persistent://t/ns",
        "persistent://t/ns/ ",
        "persistent://t//a",
        "persistent://t é/ns/a",
        "t/a",
        "a/b/c/d",
    ],
)
def test_malformed_topic_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_topic(name)


def test_v1_topic_keeps_its_cluster() -> None:
    topic = parse_topic("persistent://t/use/ns/a")
    assert (topic.tenant, topic.cluster, topic.namespace_portion) == ("t", "use", "ns")
    assert parse_topic("persistent://t/ns/a").cluster is None


@pytest.mark.parametrize(
    "name", ["persistent://t/ns/a", "persistent://t/use/ns/a/b", "non-persistent://t/ns/测试"]
)
def test_namespace_taken_quickly_equals_the_parsed_one(name: str) -> None:
    assert namespace_of_topic(name) == parse_topic(name).namespace


def test_formatted_topic_is_read_back() -> None:
    topic = parse_topic(format_topic("t/ns", "a", Domain.NON_PERSISTENT))
    assert (topic.domain, topic.namespace, topic.local) == (Domain.NON_PERSISTENT, "t/ns", "a")


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
    ("topic", "located"),
    [
        ("segment://t/ns/a/0000-7fff-2", ("t/ns", "segment://t/ns/a/0000-7fff-2")),
        ("topic://t/ns/a", ("t/ns", "topic://t/ns/a")),
        ("persistent://t/use/ns/a", ("t/use/ns", "persistent://t/use/ns/a")),
        ("a", ("public/default", "persistent://public/default/a")),
    ],
)
def test_topic_is_located_by_its_namespace_and_the_name_that_is_hashed(
    topic: str, located: tuple[str, str]
) -> None:
    assert locate_topic(topic) == located
    assert namespace_of_topic(located[1]) == located[0]


@pytest.mark.parametrize(
    "topic", ["topic://t/ns", "topic://t/ns/ ", "segment://t/n s/a", "x://a/b/c"]
)
def test_what_is_no_scalable_topic_is_no_topic(topic: str) -> None:
    with pytest.raises(InvalidNameError):
        locate_topic(topic)


def test_partition_name_is_read_back() -> None:
    assert partition_of(format_partition("persistent://t/ns/a", 12)) == 12
    assert parse_topic("persistent://t/ns/a-partition-12").partition == 12


def test_bundle_name_is_read_back() -> None:
    name = format_bundle("t/ns", 0x40000000, 0xFFFFFFFF)
    assert name == "t/ns/0x40000000_0xffffffff"
    assert parse_bundle(name) == ("t/ns", 0x40000000, 0xFFFFFFFF)


@pytest.mark.parametrize("namespace", ["t/ns", "t/use/ns", "pulsar/host-1.a:8080", "a=b/c_d"])
def test_namespace_well_formed_is_accepted(namespace: str) -> None:
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["t", "t/", "/ns", "t.ns", "a/b/c/d", "t/n s", "t/né", ""])
def test_namespace_malformed_is_refused(namespace: str) -> None:
    with pytest.raises(InvalidNameError, match="namespace must be"):
        check_namespace(namespace)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x00000000",
        "0x00000000_0xFFFFFFFF",
        "0x0_0xffffffff",
        "0x00000000_0x1ffffffff",
        "0x80000000_0x40000000",
        "0x40000000_0x40000000",
        " 0x00000000_0xffffffff",
        "0x00000000_0xffffffff\n",
        "0x0000_000_0xffffffff",
    ],
)
def test_range_text_in_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_range(text)


def test_range_of_the_last_value_alone_is_accepted() -> None:
    assert parse_range("0xffffffff_0xffffffff") == (0xFFFFFFFF, 0xFFFFFFFF)


def test_bundle_name_without_namespace_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_bundle("0x00000000_0xffffffff")
