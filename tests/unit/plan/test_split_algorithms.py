"""The split algorithms: Pulsar's positions in halves, ours in more parts."""

import numpy as np
import pytest

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.split.algorithms import (
    MissingPositionsError,
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
    forced_boundaries,
    load_boundaries,
    range_boundaries,
    resolve_algorithm,
    specified_boundaries,
    topic_count_boundaries,
)

SIX = [0x10000000, 0x20000000, 0x35000000, 0x65000000, 0x70000000, 0x75000000]
MIB = 1_048_576


def loads(rates: dict[int, float], throughput: float = 0.0) -> TopicLoads:
    return TopicLoads(
        hashes=np.array(list(rates), dtype=np.int64),
        msg_rate=np.array(list(rates.values()), dtype=np.float64),
        throughput=np.full(len(rates), throughput),
    )


@pytest.mark.parametrize(
    ("name", "default", "expected"),
    [
        ("topic_count_equally_divide", "flow_or_qps_equally_divide", SplitAlgorithm.TOPIC_COUNT),
        (None, "flow_or_qps_equally_divide", SplitAlgorithm.FLOW_OR_QPS),
        ("no_such", "topic_count_equally_divide", SplitAlgorithm.TOPIC_COUNT),
        ("no_such", "nor_this", SplitAlgorithm.RANGE),
        ("specified_positions_divide_force", "", SplitAlgorithm.SPECIFIED_POSITIONS_FORCED),
    ],
)
def test_algorithm_unknown_falls_back_to_default_then_range(
    name: str | None, default: str, expected: SplitAlgorithm
) -> None:
    assert resolve_algorithm(name, default) is expected


@pytest.mark.parametrize(
    ("lower", "upper", "parts", "expected"),
    [
        (0, 0x80000000, 2, [0x40000000]),
        (10, 0xFFFFFFFF, 2, [2147483652]),
        (0, 0xFFFFFFFF, 2, [0x7FFFFFFF]),
        (0, 10, 3, [3, 6]),
        (5, 6, 2, [5]),
    ],
)
def test_range_is_cut_into_equal_widths(
    lower: int, upper: int, parts: int, expected: list[int]
) -> None:
    assert list(range_boundaries(BundleRange(lower, upper), parts)) == expected


@pytest.mark.parametrize(
    ("hashes", "expected"),
    [
        (None, None),
        ([], None),
        ([5], None),
        (SIX, [0x4D000000]),
        (list(reversed(SIX)), [0x4D000000]),
        ([100, 101], [100]),
        ([7, 7], [7]),
        ([0, 10, 20], [5]),
    ],
)
def test_topic_count_is_cut_between_the_two_middle_hashes(
    hashes: list[int] | None, expected: list[int] | None
) -> None:
    found = topic_count_boundaries(hashes)
    assert (None if found is None else list(found)) == expected


def test_topic_count_in_three_puts_two_topics_in_each_part() -> None:
    assert topic_count_boundaries(SIX, 3) == (0x2A800000, 0x6A800000)


def test_topic_count_into_more_parts_than_topics_makes_one_each() -> None:
    assert topic_count_boundaries([10, 20, 30], 8) == (10, 15, 25)


@pytest.mark.parametrize(
    ("positions", "topics", "expected"),
    [
        ([-1, 0, 1, 100, 200, 1000, 1100], 2, [100, 200]),
        ([200, 100], 2, [100, 200]),
        ([1, 1000], 2, None),
        ([100], 1, None),
        ([100], 0, None),
    ],
)
def test_specified_positions_inside_are_kept_with_two_topics(
    positions: list[int], topics: int, expected: list[int] | None
) -> None:
    found = specified_boundaries(BundleRange(1, 1000), positions, topics)
    assert (None if found is None else list(found)) == expected


def test_forced_positions_do_not_ask_for_topics() -> None:
    assert forced_boundaries(BundleRange(1, 1000), [500, 1]) == (500,)
    assert forced_boundaries(BundleRange(1, 1000), [1]) is None


@pytest.mark.parametrize("positions", [None, []])
def test_specified_positions_without_any_are_refused(positions: list[int] | None) -> None:
    with pytest.raises(MissingPositionsError, match="at least one position"):
        specified_boundaries(BundleRange(1, 1000), positions, 2)
    with pytest.raises(MissingPositionsError, match="at least one position"):
        forced_boundaries(BundleRange(1, 1000), positions)


LIMIT = Splitting(max_msg_rate_per_s=1000, max_throughput_bytes_per_s=100 * MIB)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({10: 600, 20: 600, 30: 600}, [16, 26]),
        ({10: 600, 11: 600}, [11]),
        ({10: 1098, 20: 1}, None),
        ({10: 1099, 20: 1}, [16]),
        ({10: 5000}, None),
        ({10: 5000, 20: 0}, None),
        ({10: 1, 20: 5000, 30: 1}, [16, 26]),
        ({10: 400, 20: 600, 30: 400, 40: 600}, [26]),
    ],
)
def test_flow_or_qps_cuts_where_the_next_topic_would_not_fit(
    rates: dict[int, float], expected: list[int] | None
) -> None:
    found = flow_or_qps_boundaries(loads(rates), LIMIT)
    assert (None if found is None else list(found)) == expected


def test_flow_or_qps_cuts_by_throughput_alone() -> None:
    topics = loads({10: 1, 20: 1, 30: 1}, throughput=60.0 * MIB)
    assert flow_or_qps_boundaries(topics, LIMIT) == (16, 26)


def test_flow_or_qps_of_one_hash_twice_counts_the_last_ones_load() -> None:
    topics = TopicLoads(
        hashes=np.array([10, 10, 20]),
        msg_rate=np.array([2000.0, 1.0, 999.0]),
        throughput=np.zeros(3),
    )
    assert flow_or_qps_boundaries(topics, LIMIT) == (16,)
    assert flow_or_qps_boundaries(None, LIMIT) is None


@pytest.mark.parametrize(
    ("weights", "parts", "expected"),
    [
        ([1, 1, 1, 1], 2, [26]),
        ([1, 1, 1, 1], 4, [16, 26, 36]),
        ([1, 1, 1, 1], 9, [16, 26, 36]),
        ([97, 1, 1, 1], 2, [16]),
        ([2, 1, 0.5, 0.5], 3, [16, 26]),
        ([1, 2, 0.5, 0.5], 2, [16]),
        ([1, 1, 1, 97], 2, [36]),
        ([1, 97, 1, 1], 3, [16, 26]),
    ],
)
def test_load_is_cut_at_the_gaps_nearest_to_equal_shares(
    weights: list[float], parts: int, expected: list[int]
) -> None:
    found = load_boundaries(np.array([10, 20, 30, 40]), np.array(weights, dtype=float), parts)
    assert list(found) == expected


def test_load_of_one_hash_is_not_cut() -> None:
    assert load_boundaries(np.array([7, 7]), np.array([1.0, 2.0]), 2) == ()


def test_load_of_neighbouring_hashes_is_cut_between_them() -> None:
    assert load_boundaries(np.array([7, 8]), np.array([1.0, 2.0]), 2) == (8,)
