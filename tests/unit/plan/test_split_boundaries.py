"""One bundle's cut: which algorithm, how many parts, and what can't be divided."""

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
from lbcore.plan.split.algorithms import SplitAlgorithm, TopicLoads
from lbcore.plan.split.boundaries import CutRequest, RangeCut, find_cut
from lbcore.plan.split.decision import SplitReason, SplitVerdict

OURS = Splitting(max_msg_rate_per_s=1000)
PULSAR = replace(
    OURS, automatic_algorithm=DEFAULT_ALGORITHM, max_children=2, require_division=False
)
TARGET = BundleRange(0, 1000)


def loads(rates: dict[int, float]) -> TopicLoads:
    return TopicLoads(
        hashes=np.array(list(rates), dtype=np.int64),
        msg_rate=np.array(list(rates.values()), dtype=np.float64),
        throughput=np.zeros(len(rates)),
    )


def request(topics: TopicLoads | None, **changes: object) -> CutRequest:
    asked = CutRequest(
        target=TARGET, topics=topics, reason=SplitReason.MSG_RATE, excess=1.5, max_parts=8
    )
    return replace(asked, **changes)


def cut(asked: CutRequest, config: Splitting = OURS) -> RangeCut:
    found = find_cut(asked, config)
    assert isinstance(found, RangeCut), found
    return found


def test_cut_of_unknown_topics_is_by_range_in_as_many_parts_as_the_excess() -> None:
    assert cut(request(None, excess=4.2)) == RangeCut(
        algorithm=SplitAlgorithm.RANGE, boundaries=(200, 400, 600, 800), is_adjusted=False
    )


@pytest.mark.parametrize(("excess", "children"), [(1.01, 2), (2.0, 2), (2.01, 3), (99.0, 8)])
def test_cut_parts_are_the_excess_rounded_up_within_the_limit(excess: float, children: int) -> None:
    assert len(cut(request(None, excess=excess)).boundaries) == children - 1


def test_cut_for_too_many_topics_is_by_their_count() -> None:
    topics = loads(dict.fromkeys((100, 200, 300, 900), 1.0))
    found = cut(request(topics, reason=SplitReason.TOPICS))
    assert (found.algorithm, found.boundaries) == (SplitAlgorithm.TOPIC_COUNT, (250,))


def test_cut_for_a_high_rate_is_by_the_rates() -> None:
    found = cut(request(loads({100: 900.0, 200: 900.0, 900: 10.0})))
    assert (found.algorithm, found.boundaries) == (SplitAlgorithm.FLOW_OR_QPS, (151,))


def test_cut_by_rates_in_more_parts_than_allowed_is_evened_out() -> None:
    topics = loads(dict.fromkeys(range(50, 1000, 100), 900.0))
    found = cut(request(topics, max_parts=2))
    assert (found.boundaries, found.is_adjusted) == ((501,), True)


def test_rates_within_the_tolerance_are_left_alone() -> None:
    assert find_cut(request(loads({100: 500.0, 200: 550.0})), OURS) is SplitVerdict.WITHIN_TOLERANCE


@pytest.mark.parametrize(
    "rates", [{100: 9000.0}, {100: 9000.0, 200: 0.0}, {}, {5000: 1.0, 100: 9000.0}]
)
def test_one_hot_topic_is_unsplittable(rates: dict[int, float]) -> None:
    assert find_cut(request(loads(rates)), OURS) is SplitVerdict.SINGLE_HASH


def test_range_of_one_value_is_unsplittable() -> None:
    narrow = request(None, target=BundleRange(5, 6))
    assert find_cut(narrow, OURS) is SplitVerdict.NARROW_RANGE


def test_halves_that_would_leave_all_topics_in_one_are_moved_between_them() -> None:
    config = replace(OURS, automatic_algorithm=DEFAULT_ALGORITHM)
    found = cut(request(loads({10: 900.0, 20: 900.0})), config)
    assert found == RangeCut(algorithm=SplitAlgorithm.RANGE, boundaries=(16,), is_adjusted=True)


def test_halves_that_would_leave_no_topic_in_the_lower_one_are_moved_between_them() -> None:
    config = replace(OURS, automatic_algorithm=DEFAULT_ALGORITHM)
    found = cut(request(loads({910: 900.0, 920: 900.0})), config)
    assert (found.boundaries, found.is_adjusted) == ((916,), True)


def test_cut_by_rates_in_exactly_the_parts_allowed_is_kept() -> None:
    topics = loads(dict.fromkeys((100, 200, 300), 1000.0))
    assert cut(request(topics, max_parts=3)).boundaries == (151, 251)
    assert cut(request(topics, max_parts=2)).boundaries == (151,)


def test_halves_as_pulsar_makes_them_may_be_empty() -> None:
    found = cut(request(loads({10: 900.0, 20: 900.0}), max_parts=2), PULSAR)
    assert found == RangeCut(algorithm=SplitAlgorithm.RANGE, boundaries=(500,), is_adjusted=False)


def test_neighbouring_hashes_are_separated() -> None:
    topics = loads({0: 1.0, 1: 1.0})
    assert cut(request(topics, reason=SplitReason.TOPICS)).boundaries == (1,)


@pytest.mark.parametrize(
    ("algorithm", "topics"),
    [(FLOW_OR_QPS, None), (SPECIFIED_POSITIONS, loads({10: 900.0, 20: 900.0}))],
)
def test_algorithm_that_has_no_answer_gives_no_boundary(
    algorithm: str, topics: TopicLoads | None
) -> None:
    config = replace(OURS, automatic_algorithm=DEFAULT_ALGORITHM, algorithm=algorithm)
    assert find_cut(request(topics), config) is SplitVerdict.NO_BOUNDARY


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
