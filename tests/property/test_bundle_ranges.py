"""Whatever is divided and split: bundles cover the hash space, disjoint, and no topic is lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.bundles import (
    BundleRange,
    NamespaceBundles,
    decode_boundary,
    even_boundaries,
    explicit_boundaries,
)
from lbcore.model.hashing import HashFunction
from lbcore.model.names import FULL_UPPER, format_bundle, parse_bundle, parse_topic
from tests.conformance.reference.bundle_split import split_bundles
from tests.support.models.split_models import slow_find

HASHES = st.one_of(
    st.integers(0, FULL_UPPER), st.sampled_from([0, 1, FULL_UPPER - 1, FULL_UPPER, 0x80000000])
)
LOCALS = st.text(min_size=1).filter(lambda text: text.strip() and "/" not in text)
ENTITIES = st.from_regex(r"[-=:.A-Za-z0-9_]{1,8}", fullmatch=True)


@st.composite
def bundle_sets(draw: st.DrawFn) -> NamespaceBundles:
    inner = draw(st.sets(st.integers(1, FULL_UPPER - 1), max_size=20))
    function = draw(st.sampled_from(HashFunction))
    return NamespaceBundles("t/ns", (0, *sorted(inner), FULL_UPPER), function)


def assert_covers(bundles: NamespaceBundles) -> None:
    ranges = bundles.ranges()
    assert (ranges[0].lower, ranges[-1].upper) == (0, FULL_UPPER)
    assert all(left.upper == right.lower for left, right in pairwise(ranges))
    assert not any(left.overlaps(right) for left, right in pairwise(ranges))


@given(st.integers(1, 5_000))
def test_even_division_covers_the_space_in_equal_parts(count: int) -> None:
    bundles = NamespaceBundles("t/ns", even_boundaries(count))
    assert_covers(bundles)
    widths = {each.upper - each.lower for each in bundles.ranges()[:-1]}
    assert len(bundles) == count
    assert len(widths) <= 1


@given(bundle_sets(), st.lists(HASHES, max_size=20))
def test_find_agrees_with_a_linear_scan(bundles: NamespaceBundles, hashes: list[int]) -> None:
    near = [bound + step for bound in bundles.boundaries for step in (-1, 0, 1)]
    every = [each for each in [*hashes, *near] if 0 <= each <= FULL_UPPER]
    expected = [slow_find(bundles.ranges(), each) for each in every]
    assert [bundles.find(each) for each in every] == expected


@given(bundle_sets(), st.data())
def test_split_keeps_the_space_covered_and_every_topic_in_its_parent(
    bundles: NamespaceBundles, data: st.DataObject
) -> None:
    splittable = [each for each in bundles.ranges() if each.can_split]
    target = data.draw(st.sampled_from(splittable))
    inside = st.integers(target.lower + 1, target.upper - 1)
    at = data.draw(st.sets(inside, max_size=5))
    parts = data.draw(st.integers(1, min(9, target.upper - target.lower)))
    split = split_bundles(bundles, target, at=sorted(at, reverse=True), parts=parts)
    assert_covers(split.bundles)
    assert len(split.children) == (len(at) + 1 if at else parts)
    assert len(split.bundles) == len(bundles) - 1 + len(split.children)
    assert split.bundles.hash_function is bundles.hash_function
    others = [each for each in bundles.ranges() if each != target]
    assert [each for each in split.bundles.ranges() if each not in split.children] == others
    for topic in data.draw(st.lists(LOCALS, max_size=10)):
        topic_hash = bundles.hash_of(f"persistent://t/ns/{topic}")
        before = bundles.ranges()[bundles.find(topic_hash)]
        after = split.bundles.ranges()[split.bundles.find(topic_hash)]
        assert after in split.children if before == target else after == before


@given(st.sets(HASHES, max_size=20))
def test_explicit_boundaries_survive_being_written(inner: set[int]) -> None:
    expected = sorted({0, FULL_UPPER, *inner})
    written = [f"0x{each:08X}" for each in expected] + [str(each) for each in inner]
    assert list(explicit_boundaries(written)) == expected


@given(HASHES)
def test_boundary_is_read_back_in_every_base(value: int) -> None:
    for text in (hex(value), f"#{value:X}", f"0{value:o}", str(value)):
        assert decode_boundary(text) == value


@given(ENTITIES, ENTITIES, HASHES, HASHES)
def test_bundle_name_survives_being_written(tenant: str, name: str, one: int, two: int) -> None:
    lower, upper = min(one, two), max(one, two)
    if lower == upper:
        lower, upper = FULL_UPPER, FULL_UPPER
    namespace = f"{tenant}/{name}"
    assert parse_bundle(format_bundle(namespace, lower, upper)) == (namespace, lower, upper)
    assert BundleRange.parse(BundleRange(lower, upper).text) == BundleRange(lower, upper)


@given(ENTITIES, ENTITIES, LOCALS)
def test_topic_name_survives_being_parsed(tenant: str, namespace: str, local: str) -> None:
    full = f"non-persistent://{tenant}/{namespace}/{local}"
    assert parse_topic(full).full == full
