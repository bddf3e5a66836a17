"""Split decisions, algorithms, boundaries and requested splits."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.splitting import (
    DEFAULT_ALGORITHM,
    FLOW_OR_QPS,
    RANGE,
    SPECIFIED_POSITIONS,
    TOPIC_COUNT,
    Splitting,
)
from lbcore.model.bundles import BundleRange
from lbcore.model.names import parse_range
from lbcore.packing import from_plain, to_plain
from lbcore.plan.phases.split import decide_splits
from lbcore.plan.shed.common import TooBig
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import (
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
)
from lbcore.plan.split.boundaries import CutRequest, RangeCut, divide_too_big, find_cut
from lbcore.plan.split.decision import (
    EMPTY_STATE,
    VERDICTS,
    SplitDecision,
    SplitReason,
    SplitRequest,
    SplitState,
    SplitVerdict,
    requested_boundaries,
)
from tests.support.values.clusters import broker_table, bundle_table, snapshot

MIB = 1_048_576


def loads(rates: dict[int, float], throughput: float = 0.0) -> TopicLoads:
    return TopicLoads(
        hashes=np.array(list(rates), dtype=np.int64),
        msg_rate=np.array(list(rates.values()), dtype=np.float64),
        throughput=np.full(len(rates), throughput),
    )


LIMIT = Splitting(max_msg_rate_per_s=1000, max_throughput_bytes_per_s=100 * MIB)


OURS = Splitting(max_msg_rate_per_s=1000)
TARGET = BundleRange(0, 1000)


def request(topics: TopicLoads | None, **changes: object) -> CutRequest:
    asked = CutRequest(
        target=TARGET, topics=topics, reason=SplitReason.MSG_RATE, excess=1.5, max_parts=8
    )
    return replace(asked, **changes)


def cut(asked: CutRequest, config: Splitting = OURS) -> RangeCut:
    found = find_cut(asked, config)
    assert isinstance(found, RangeCut), found
    return found


def test_cut_by_rates_in_more_parts_than_allowed_is_evened_out() -> None:
    topics = loads(dict.fromkeys(range(50, 1000, 100), 900.0))
    assert cut(request(topics, max_parts=2)).boundaries == (501,)


def test_rates_within_the_tolerance_are_left_alone() -> None:
    assert find_cut(request(loads({100: 500.0, 200: 550.0})), OURS) is SplitVerdict.WITHIN_TOLERANCE


def test_halves_that_would_leave_no_topic_in_the_lower_one_are_moved_between_them() -> None:
    config = replace(OURS, automatic_algorithm=DEFAULT_ALGORITHM)
    assert cut(request(loads({910: 900.0, 920: 900.0})), config).boundaries == (916,)


def test_cut_by_rates_in_exactly_the_parts_allowed_is_kept() -> None:
    topics = loads(dict.fromkeys((100, 200, 300), 1000.0))
    assert cut(request(topics, max_parts=3)).boundaries == (151, 251)
    assert cut(request(topics, max_parts=2)).boundaries == (151,)


def test_neighbouring_hashes_are_separated() -> None:
    topics = loads({0: 1.0, 1: 1.0})
    assert cut(request(topics, reason=SplitReason.TOPICS)).boundaries == (1,)


def test_last_hash_of_all_belongs_to_the_last_bundle() -> None:
    target = BundleRange(0xFFFFFF00, 0xFFFFFFFF)
    topics = loads({0xFFFFFFFF: 900.0, 0xFFFFFF00: 900.0})
    assert cut(request(topics, target=target)).boundaries == (0xFFFFFF80,)


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        ("topic_count_equally_divide", (100, 200, 900), SplitAlgorithm.TOPIC_COUNT),
        ("topic_count_equally_divide", (), SplitAlgorithm.RANGE),
        ("range_equally_divide", (100, 200, 900), SplitAlgorithm.RANGE),
        (SPECIFIED_POSITIONS, (100, 200, 900), SplitAlgorithm.FLOW_OR_QPS),
        ("", (100, 200, 900), SplitAlgorithm.FLOW_OR_QPS),
    ],
)
def test_namespaces_own_algorithm_cuts_its_bundles_unless_it_needs_positions(
    own: str, known: tuple[int, ...], expected: SplitAlgorithm
) -> None:
    topics = loads(dict.fromkeys(known, 900.0)) if known else None
    assert cut(request(topics, algorithm=own)).algorithm is expected


@pytest.mark.parametrize(
    ("supported", "own", "known", "expected"),
    [
        ((RANGE, TOPIC_COUNT), "", True, SplitAlgorithm.RANGE),
        ((TOPIC_COUNT, FLOW_OR_QPS), FLOW_OR_QPS, True, SplitAlgorithm.FLOW_OR_QPS),
        ((RANGE, TOPIC_COUNT), FLOW_OR_QPS, True, SplitAlgorithm.RANGE),
        ((TOPIC_COUNT, FLOW_OR_QPS), "", False, None),
        ((TOPIC_COUNT, FLOW_OR_QPS), TOPIC_COUNT, False, None),
        ((TOPIC_COUNT, FLOW_OR_QPS), FLOW_OR_QPS, False, None),
    ],
)
def test_cut_is_made_by_a_supported_algorithm_or_not_at_all(
    supported: tuple[str, ...], own: str, *, known: bool, expected: SplitAlgorithm | None
) -> None:
    config = replace(OURS, supported_algorithms=supported, algorithm=supported[0])
    topics = loads(dict.fromkeys((100, 200, 900), 900.0)) if known else None
    found = find_cut(request(topics, algorithm=own), config)
    assert (found.algorithm if isinstance(found, RangeCut) else None) is expected


HOT = [20_000.0, 20_000.0, 0.0, 0.0]
AT_ONCE = Splitting(hit_count_threshold=0)
LEFT, RIGHT = "t/a/0x00000000_0x80000000", "t/a/0x80000000_0xffffffff"


def cluster(traffic: Mapping[str, Sequence[float]], **columns: object) -> Snapshot:
    """One broker that owns bundles with these short-term averages; 5 topics each."""
    count = len(traffic)
    given = {
        "short": np.array(list(traffic.values()), dtype=np.float64),
        "owner": np.zeros(count, dtype=np.int64),
        "topics": np.full(count, 5, dtype=np.int64),
    }
    return snapshot(broker_table(["b1"]), bundle_table(list(traffic), **(given | columns)))


def nothing(_bundle: str) -> TopicLoads | None:
    return None


def run(
    view: Snapshot,
    state: SplitState = EMPTY_STATE,
    config: Splitting = AT_ONCE,
    topics_of: Callable[[str], TopicLoads | None] = nothing,
    blocked: Sequence[str] = (),
) -> tuple[tuple[SplitDecision, ...], SplitState, dict[str, SplitVerdict]]:
    mask = np.array([name in blocked for name in view.bundles.names], dtype=np.bool_)
    decisions, after, trace = decide_splits(replace(view, topics_of=topics_of), state, config, mask)
    names, verdicts = view.bundles.names, tuple(SplitVerdict)
    seen = {
        names[at]: verdicts[code]
        for at, code in zip(trace.bundle.tolist(), trace.verdict.tolist(), strict=True)
    }
    return decisions, from_plain(SplitState, json.loads(json.dumps(to_plain(after)))), seen


def test_split_under_way_counts_towards_the_namespaces_maximum() -> None:
    view, config = cluster({LEFT: HOT, RIGHT: HOT}), replace(AT_ONCE, max_namespace_bundles=3)
    decisions, state, _ = run(view, config=config)
    assert [decision.name for decision in decisions] == [LEFT]
    assert run(view, state, config, blocked=(LEFT,))[0] == ()
    assert [each.name for each in run(view, state, config)[0]] == [LEFT]


def test_bundles_above_a_fair_share_count_splits_of_their_namespace_towards_its_maximum() -> None:
    view, config = cluster({LEFT: HOT, RIGHT: HOT}), replace(AT_ONCE, max_namespace_bundles=3)
    too_big = TooBig(
        rows=np.array([0, 1]),
        excess=np.array([2.0, 1.5]),
        by_rate=np.array([True, True]),
        stays=np.array([False, False]),
    )
    mask = np.zeros(2, dtype=np.bool_)
    decisions, after, seen = divide_too_big(view, too_big, EMPTY_STATE, config, mask)
    assert [decision.name for decision in decisions] == [LEFT]
    assert seen.verdict.tolist() == [
        VERDICTS.index(one) for one in (SplitVerdict.SPLIT, SplitVerdict.NAMESPACE_FULL)
    ]
    assert after.pending == {LEFT: 1}
    elsewhere = replace(EMPTY_STATE, pending={"t/b/0x00000000_0xffffffff": 1})
    assert len(divide_too_big(view, too_big, elsewhere, config, mask)[0]) == 1


def one_hot(bundle: str) -> TopicLoads:
    """One hot topic at 0x12345678 and four idle ones, those of the bundle's range only."""
    lower, upper = parse_range(bundle.rpartition("/")[2])
    hashes = np.array([0x12345678, 0x10, 0x20000000, 0x60000000, 0x7FFFFFFF])
    inside = (hashes >= lower) & (hashes < upper)
    return TopicLoads(
        hashes=hashes[inside],
        msg_rate=np.array([40_000.0, 0, 0, 0, 0])[inside],
        throughput=np.zeros(int(inside.sum())),
    )


def test_one_hot_topic_is_reported_and_never_split() -> None:
    view, state = cluster({LEFT: HOT}), SplitState()
    for _ in range(10):
        decisions, state, seen = run(view, state, topics_of=one_hot)
        assert (decisions, seen) == ((), {LEFT: SplitVerdict.SINGLE_HASH})
    assert state.unsplittable == {LEFT: 5}


RANGE_OF_SPLIT_REQUEST, COUNT = SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT
AT, FLOW = SplitAlgorithm.SPECIFIED_POSITIONS, SplitAlgorithm.FLOW_OR_QPS
CONFIG = Splitting(max_msg_rate_per_s=1_000)
HASHES = (100, 200, 300, 900)


def request_of(
    algorithm: SplitAlgorithm, *hashes: int, rate: float = 600.0, **changes: object
) -> SplitRequest:
    topics = TopicLoads(
        hashes=np.array(hashes, dtype=np.int64),
        msg_rate=np.full(len(hashes), rate),
        throughput=np.zeros(len(hashes)),
    )
    asked = SplitRequest(
        target=BundleRange(0, 1_000), algorithm=algorithm, topics=topics, topic_count=len(hashes)
    )
    return replace(asked, **changes)


@pytest.mark.parametrize(
    ("asked", "boundaries"),
    [
        (request_of(RANGE_OF_SPLIT_REQUEST), (500,)),
        (request_of(RANGE_OF_SPLIT_REQUEST, parts=4), (250, 500, 750)),
        (request_of(COUNT, *HASHES), (250,)),
        (request_of(COUNT, *HASHES, parts=4), (150, 250, 600)),
        (request_of(FLOW, *HASHES), (151, 251, 601)),
        (request_of(FLOW, 100, 100, 100, 300), (101, 201)),
        (request_of(AT, *HASHES, positions=(700, 0, 2_000, 400, 700)), (400, 700)),
        (request_of(AT, 100, positions=(700,), is_forced=True), (700,)),
        (replace(request_of(AT, positions=(700,)), topics=None, topic_count=2), (700,)),
    ],
)
def test_request_is_cut_by_its_algorithm(asked: SplitRequest, boundaries: tuple[int, ...]) -> None:
    assert requested_boundaries(asked, CONFIG) == boundaries


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request_of(RANGE_OF_SPLIT_REQUEST, parts=1_001), "too narrow"),
        (replace(request_of(RANGE_OF_SPLIT_REQUEST), target=BundleRange(7, 8)), "too narrow"),
        (request_of(RANGE_OF_SPLIT_REQUEST, positions=(5,)), "specified_positions_divide"),
        (request_of(COUNT, 100), "1 of its topics"),
        (replace(request_of(COUNT), topics=None, topic_count=9), "0 of its topics"),
        (request_of(COUNT, 0, 0), "two hash values"),
        (request_of(FLOW, *HASHES, rate=100.0), "within their limits"),
        (request_of(FLOW, *HASHES, parts=2), "leave parts out"),
        (request_of(AT, *HASHES), "needs positions"),
        (request_of(AT, *HASHES, positions=(0, 1_000)), "inside of 0x00000000_0x000003e8"),
        (request_of(AT, 100, positions=(700,)), "force it"),
    ],
)
def test_request_that_is_not_possible_is_told_why(asked: SplitRequest, why: str) -> None:
    found = requested_boundaries(asked, CONFIG)
    assert isinstance(found, str)
    assert why in found


def test_flow_or_qps_tolerates_less_than_the_limit_and_its_tolerance_alone() -> None:
    exact = replace(LIMIT, max_msg_rate_per_s=1_000, flow_or_qps_tolerance_percent=50.0)
    assert flow_or_qps_boundaries(loads({10: 749, 20: 750}), exact) is None
    assert flow_or_qps_boundaries(loads({10: 750, 20: 750}), exact) == (16,)
    assert flow_or_qps_boundaries(loads({10: 1, 20: 1}, throughput=75.0 * MIB), exact) == (16,)
