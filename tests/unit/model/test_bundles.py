"""Ranges and bundle sets: ends, look-ups, even and explicit division, splits."""

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
from lbcore.model.hashing import HashFunction, hash_topic
from lbcore.model.names import FULL_UPPER
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
