"""Bundle ranges, bundle sets, hashes and names."""

import pytest

from lbcore.model.bundles import (
    FULL_RANGE,
    BundleRange,
    HashFunction,
    InvalidRangeError,
    NamespaceBundles,
    UncoveredHashError,
    children_of,
    decode_boundary,
    even_boundaries,
    explicit_boundaries,
    hash_topic,
    parse_range_leniently,
)
from lbcore.model.names import (
    FULL_UPPER,
    InvalidNameError,
    check_namespace,
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
    ("lower", "upper"), [(0, 0), (5, 4), (-1, 4), (0, FULL_UPPER + 1), (FULL_UPPER + 1,) * 2]
)
def test_range_empty_reversed_or_outside_is_refused(lower: int, upper: int) -> None:
    with pytest.raises(InvalidRangeError, match="lower="):
        BundleRange(lower, upper)


@pytest.mark.parametrize("count", [0, -1, (1 << 32) + 1])
def test_even_division_into_an_impossible_number_is_refused(count: int) -> None:
    with pytest.raises(InvalidRangeError, match="number of bundles"):
        even_boundaries(count)


@pytest.mark.parametrize("given", [["0x1", "0xffffffff"], ["0", "0x80000000"], ["0"], []])
def test_explicit_boundaries_without_both_ends_are_refused(given: list[str]) -> None:
    with pytest.raises(InvalidRangeError, match="must include"):
        explicit_boundaries(given)


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


def test_find_hash_below_the_first_boundary_fails() -> None:
    bundles = NamespaceBundles("t/ns", (0xA0000000, FULL_UPPER))
    assert bundles.find(0xA0000000) == 0
    with pytest.raises(UncoveredHashError):
        bundles.find(0x96F239F6)


def test_find_hash_outside_of_the_hash_space_fails() -> None:
    for topic_hash in (-1, FULL_UPPER + 1):
        with pytest.raises(UncoveredHashError):
            QUARTERS.find(topic_hash)


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


@pytest.mark.parametrize("function", list(HashFunction))
def test_half_surrogate_hashes_as_question_mark(function: HashFunction) -> None:
    assert hash_topic(function, "t\ud800") == hash_topic(function, "t?")


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


@pytest.mark.parametrize(
    "name", ["persistent://t/ns/a", "persistent://t/use/ns/a/b", "non-persistent://t/ns/测试"]
)
def test_namespace_taken_quickly_equals_the_parsed_one(name: str) -> None:
    assert namespace_of_topic(name) == parse_topic(name).namespace


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


def test_bundle_name_without_namespace_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_bundle("0x00000000_0xffffffff")
