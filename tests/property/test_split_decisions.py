"""Splits and divisions of bundles: as slow models say, and losing no topic."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.splitting import ALGORITHMS, Splitting
from lbcore.model.bundles import (
    BundleRange,
    HashFunction,
    decode_boundary,
    even_boundaries,
    explicit_boundaries,
)
from lbcore.model.names import FULL_UPPER, format_bundle, parse_bundle, parse_topic
from lbcore.plan.phases.split import decide_splits
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import (
    TopicLoads,
    load_boundaries,
    topic_count_boundaries,
)
from lbcore.plan.split.boundaries import CutRequest, RangeCut, find_cut
from lbcore.plan.split.decision import EMPTY_STATE, LIMIT_REASONS, SplitState, SplitVerdict
from tests.conformance.reference.bundle_sets import BundleSet
from tests.conformance.reference.bundle_split import split_bundles
from tests.support.models.split_models import (
    slow_decide,
    slow_load_boundaries,
)
from tests.support.values.clusters import broker_table, bundle_table, snapshot

HASHES = st.one_of(st.integers(0, FULL_UPPER), st.integers(0, 40))
RATES = st.one_of(st.just(0.0), st.floats(0, 2_000), st.integers(0, 2_000).map(float))
VERDICTS = tuple(SplitVerdict)
TARGETS = st.one_of(
    st.sampled_from([BundleRange(0, FULL_UPPER), BundleRange(0, 41), BundleRange(0, 100)]),
    st.tuples(HASHES, HASHES)
    .filter(lambda ends: ends[0] != ends[1])
    .map(lambda ends: BundleRange(min(ends), max(ends))),
)


@st.composite
def topic_loads(draw: st.DrawFn) -> TopicLoads:
    hashes = draw(st.lists(HASHES, max_size=30, unique=True))
    rates = draw(st.lists(RATES, min_size=len(hashes), max_size=len(hashes)))
    flows = draw(st.lists(RATES, min_size=len(hashes), max_size=len(hashes)))
    return TopicLoads(
        hashes=np.array(hashes, dtype=np.int64),
        msg_rate=np.array(rates, dtype=np.float64),
        throughput=np.array(flows, dtype=np.float64),
    )


@st.composite
def configs(draw: st.DrawFn) -> Splitting:
    return Splitting(
        algorithm=draw(st.sampled_from(ALGORITHMS)),
        automatic_algorithm=draw(st.sampled_from(["by_reason", "default"])),
        flow_or_qps_tolerance_percent=draw(st.sampled_from([0, 10, 100])),
        max_topics=draw(st.sampled_from([3, 1_000])),
        max_sessions=draw(st.sampled_from([-1, 0, 3, 1_000])),
        max_msg_rate_per_s=draw(st.sampled_from([1, 500, 5_000])),
        max_throughput_bytes_per_s=draw(st.sampled_from([500, 5_000])),
        averages=draw(st.sampled_from(["short", "long"])),
        hit_count_threshold=draw(st.integers(0, 2)),
        max_namespace_bundles=draw(st.integers(1, 12)),
        max_splits_per_cycle=draw(st.integers(1, 3)),
        max_children=draw(st.integers(2, 6)),
        require_division=draw(st.booleans()),
    )


@given(
    st.dictionaries(HASHES, st.one_of(st.integers(1, 3), st.integers(1, 1_000)), max_size=20),
    st.integers(2, 9),
)
def test_load_boundaries_agree_with_the_slow_model(weights: dict[int, int], parts: int) -> None:
    hashes = np.array(list(weights), dtype=np.int64)
    given_weights = np.array(list(weights.values()), dtype=np.float64)
    found = load_boundaries(hashes, given_weights, parts)
    assert list(found) == slow_load_boundaries(weights, parts)


@given(st.lists(HASHES, min_size=2, max_size=60, unique=True), st.integers(2, 9))
def test_topic_count_parts_differ_by_the_topics_at_a_boundary_only(
    hashes: list[int], parts: int
) -> None:
    boundaries = topic_count_boundaries(hashes, parts)
    assert boundaries is not None
    ends = [-1, *boundaries, FULL_UPPER + 1]
    sizes = [sum(low <= each < high for each in hashes) for low, high in pairwise(ends)]
    assert sum(sizes) == len(hashes)
    if len(boundaries) == parts - 1 and not set(boundaries) & set(hashes):
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=500)
@given(topic_loads(), configs(), st.sampled_from(LIMIT_REASONS), st.floats(1, 50), st.data())
def test_cut_is_strictly_inside_and_divides_what_must_be_divided(
    topics: TopicLoads,
    config: Splitting,
    reason: object,
    excess: float,
    data: st.DataObject,
) -> None:
    target = data.draw(TARGETS)
    request = CutRequest(
        target=target, topics=topics, reason=reason, excess=excess, max_parts=config.max_children
    )
    found = find_cut(request, config)
    if not isinstance(found, RangeCut):
        return
    assert list(found.boundaries) == sorted(set(found.boundaries))
    assert 1 <= len(found.boundaries) < config.max_children
    assert all(target.lower < boundary < target.upper for boundary in found.boundaries)
    if config.require_division:
        ends = [target.lower, *found.boundaries, FULL_UPPER + 1]
        inside = [each for each in topics.hashes.tolist() if target.includes(each)]
        parts = pairwise(ends)
        assert all(any(low <= each < high for each in inside) for low, high in parts)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    brokers = draw(st.integers(1, 4))
    names = [
        f"t/n{space}/{each.text}"
        for space in range(draw(st.integers(1, 3)))
        for each in BundleSet("t/n", even_boundaries(draw(st.integers(1, 6)))).ranges()
    ]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = len(names)
    return snapshot(
        broker_table([f"b{index}" for index in range(brokers)], is_fresh=rng.random(brokers) < 0.7),
        bundle_table(
            names,
            owner=rng.integers(-1, brokers, count),
            short=rng.integers(0, 4, (count, 4)) * 200.0,
            long=rng.integers(0, 4, (count, 4)) * 200.0,
            topics=rng.integers(0, 6, count),
            sessions=rng.integers(0, 6, count),
        ),
    )


def topics_from(seed: int) -> Callable[[str], TopicLoads | None]:
    """Topics for each bundle by its name and a seed; unknown for a third of them."""

    def topics_of(bundle: str) -> TopicLoads | None:
        _, lower, upper = parse_bundle(bundle)
        rng = np.random.default_rng([seed, lower, upper])
        if rng.random() < 0.3:
            return None
        count = int(rng.integers(0, 6))
        return TopicLoads(
            hashes=rng.integers(lower, upper, count),
            msg_rate=rng.integers(0, 4, count) * 300.0,
            throughput=rng.integers(0, 4, count) * 300.0,
        )

    return topics_of


@settings(max_examples=300)
@given(clusters(), configs(), st.integers(0, 1_000), st.data())
def test_split_phase_agrees_with_the_slow_model_cycle_after_cycle(
    view: Snapshot, config: Splitting, seed: int, data: st.DataObject
) -> None:
    fast_state = slow_state = EMPTY_STATE
    count = len(view.bundles.names)
    for _ in range(4):
        blocked = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        decisions, fast_state, trace = decide_splits(
            replace(view, topics_of=topics_from(seed)), fast_state, config, np.array(blocked)
        )
        expected, slow_state, verdicts = slow_decide(
            view, slow_state, config, topics_from(seed), blocked
        )
        assert [(each.name, each.boundaries) for each in decisions] == expected
        assert fast_state == slow_state
        names = [view.bundles.names[at] for at in trace.bundle.tolist()]
        seen = [VERDICTS[code] for code in trace.verdict.tolist()]
        assert dict(zip(names, seen, strict=True)) == verdicts


@given(clusters(), configs(), st.integers(0, 1_000))
def test_decided_splits_keep_every_namespace_covered_and_within_its_maximum(
    view: Snapshot, config: Splitting, seed: int
) -> None:
    hits = dict.fromkeys(view.bundles.names, config.hit_count_threshold + 1)
    blocked = np.zeros(len(hits), dtype=np.bool_)
    view = replace(view, topics_of=topics_from(seed))
    decisions, _, _ = decide_splits(view, SplitState(hits=hits), config, blocked)
    assert len(decisions) <= config.max_splits_per_cycle
    sets = {name: _set_of(view, name) for name in view.bundles.namespaces}
    sizes = {name: len(each) for name, each in sets.items()}
    for decision in decisions:
        namespace, lower, upper = parse_bundle(decision.name)
        split = split_bundles(sets[namespace], BundleRange(lower, upper), at=decision.boundaries)
        sets[namespace] = split.bundles
        assert decision.children == tuple(f"{namespace}/{each.text}" for each in split.children)
    for name, each in sets.items():
        assert each.boundaries[0] == 0
        assert len(each) <= max(config.max_namespace_bundles, sizes[name])


def _set_of(view: Snapshot, namespace: str) -> BundleSet:
    parsed = [parse_bundle(name) for name in view.bundles.names]
    lowers = [lower for name, lower, _ in parsed if name == namespace]
    return BundleSet(namespace, (*lowers, FULL_UPPER))


HASHES_OF_BUNDLE_RANGES = st.one_of(
    st.integers(0, FULL_UPPER), st.sampled_from([0, 1, FULL_UPPER - 1, FULL_UPPER, 0x80000000])
)
LOCALS = st.text(min_size=1).filter(lambda text: text.strip() and "/" not in text)
ENTITIES = st.from_regex(r"[-=:.A-Za-z0-9_]{1,8}", fullmatch=True)


@st.composite
def bundle_sets(draw: st.DrawFn) -> BundleSet:
    inner = draw(st.sets(st.integers(1, FULL_UPPER - 1), max_size=20))
    function = draw(st.sampled_from(HashFunction))
    return BundleSet("t/ns", (0, *sorted(inner), FULL_UPPER), function)


def assert_covers(bundles: BundleSet) -> None:
    ranges = bundles.ranges()
    assert (ranges[0].lower, ranges[-1].upper) == (0, FULL_UPPER)
    assert all(left.upper == right.lower for left, right in pairwise(ranges))
    assert not any(left.overlaps(right) for left, right in pairwise(ranges))


@given(st.integers(1, 5_000))
def test_even_division_covers_the_space_in_equal_parts(count: int) -> None:
    bundles = BundleSet("t/ns", even_boundaries(count))
    assert_covers(bundles)
    widths = {each.upper - each.lower for each in bundles.ranges()[:-1]}
    assert len(bundles) == count
    assert len(widths) <= 1


@given(bundle_sets(), st.data())
def test_split_keeps_the_space_covered_and_every_topic_in_its_parent(
    bundles: BundleSet, data: st.DataObject
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


@given(st.sets(HASHES_OF_BUNDLE_RANGES, max_size=20))
def test_explicit_boundaries_survive_being_written(inner: set[int]) -> None:
    expected = sorted({0, FULL_UPPER, *inner})
    written = [f"0x{each:08X}" for each in expected] + [str(each) for each in inner]
    assert list(explicit_boundaries(written)) == expected


@given(HASHES_OF_BUNDLE_RANGES)
def test_boundary_is_read_back_in_every_base(value: int) -> None:
    for text in (hex(value), f"#{value:X}", f"0{value:o}", str(value)):
        assert decode_boundary(text) == value


@given(ENTITIES, ENTITIES, HASHES_OF_BUNDLE_RANGES, HASHES_OF_BUNDLE_RANGES)
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
