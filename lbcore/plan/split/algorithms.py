"""Boundaries that each split algorithm proposes, and the algorithms by name.

Sorted inner boundaries, or None for "no split". Source: Pulsar 4.0.8, the classes of
NamespaceBundleSplitAlgorithm; more than two parts are Ballast's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from lbcore.config import splitting
from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.signals.averages import Bools, Floats, Ints

Boundaries: TypeAlias = tuple[int, ...]


class SplitAlgorithm(Enum):
    """The algorithms by Pulsar's names."""

    RANGE = splitting.RANGE
    TOPIC_COUNT = splitting.TOPIC_COUNT
    SPECIFIED_POSITIONS = splitting.SPECIFIED_POSITIONS
    SPECIFIED_POSITIONS_FORCED = splitting.SPECIFIED_POSITIONS_FORCED
    FLOW_OR_QPS = splitting.FLOW_OR_QPS


BY_POSITIONS = (SplitAlgorithm.SPECIFIED_POSITIONS, SplitAlgorithm.SPECIFIED_POSITIONS_FORCED)
"""Algorithms for commands, which name the positions."""
_BY_NAME = {algorithm.value: algorithm for algorithm in SplitAlgorithm}


class MissingPositionsError(ValueError):
    """A split at specified positions that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoads:
    """Known load of the topics in a bundle, k rows in any order.

    hashes: int64[k], 0 .. 0xffffffff. msg_rate, throughput: float64[k], in and out together, msg/s
    and bytes/s; 0 for a topic without statistics.
    """

    hashes: Ints
    msg_rate: Floats
    throughput: Floats

    @property
    def is_loaded(self) -> Bools:
        """bool[k]: which topics have any traffic."""
        return (self.msg_rate > 0) | (self.throughput > 0)


def resolve_algorithm(name: str | None, default: str) -> SplitAlgorithm:
    """Return the algorithm of this name, else the default, else range_equally_divide.

    Source: NamespaceService.getNamespaceBundleSplitAlgorithmByName.
    """
    for candidate in (name, default):
        if candidate in _BY_NAME:
            return _BY_NAME[candidate]
    return SplitAlgorithm.RANGE


def range_boundaries(target: BundleRange, parts: int = 2) -> Boundaries:
    """Cut the range into `parts` of equal width, whatever its topics.

    [0x00000000, 0x80000000) gives 0x40000000. In a range narrower than `parts` boundaries repeat;
    the split itself refuses them. Source: RangeEquallyDivideBundleSplitAlgorithm.
    """
    width = (target.upper - target.lower) // parts
    return tuple(target.lower + index * width for index in range(1, parts))


def topic_count_boundaries(hashes: Sequence[int] | None, parts: int = 2) -> Boundaries | None:
    """Cut into parts of equally many topics, within one. O(k log k).

    hashes: of the bundle's topics, any order, with duplicates; None = unknown to the owner. A
    boundary is the middle of two neighbouring hashes, rounded down: between 100 and 101 it is 100,
    and the topic at 100 falls in the *upper* part. 0x10000000, 0x20000000, 0x35000000, 0x65000000,
    0x70000000, 0x75000000 give 0x4d000000. None below two topics. Source:
    TopicCountEquallyDivideBundleSplitAlgorithm.
    """
    if hashes is None or len(hashes) < 2:  # noqa: PLR2004 one topic can't be divided
        return None
    ordered = sorted(hashes)
    cuts = (index * len(ordered) // parts for index in range(1, parts))
    middles = [_middle(ordered[max(cut - 1, 0)], ordered[cut]) for cut in cuts]
    return tuple(sorted(set(middles)))


def _middle(low: int, high: int) -> int:
    return low + (high - low) // 2


def specified_boundaries(
    target: BundleRange, positions: Sequence[int] | None, topic_count: int
) -> Boundaries | None:
    """Return the given positions strictly inside of the range, ascending.

    topic_count: of the bundle's topics as the owner knows them, 0 = unknown. None below two of
    them, or without a position inside. Raises MissingPositionsError without positions. Source:
    SpecifiedPositionsBundleSplitAlgorithm.
    """
    inside = forced_boundaries(target, positions)
    return inside if topic_count >= 2 else None  # noqa: PLR2004 one topic can't be divided


def forced_boundaries(target: BundleRange, positions: Sequence[int] | None) -> Boundaries | None:
    """Return them as `specified_boundaries`, for any number of topics.

    For a split whose boundaries were decided earlier. Source:
    SpecifiedPositionsBundleSplitAlgorithm(force = true).
    """
    if not positions:
        message = "split at specified positions must name at least one position: add boundaries"
        raise MissingPositionsError(message)
    return tuple(cut for cut in sorted(positions) if target.lower < cut < target.upper) or None


def flow_or_qps_boundaries(topics: TopicLoads | None, config: Splitting) -> Boundaries | None:
    """Cut in hash order whenever the next topic would take a part over a rate limit.

    None with fewer than two topics, with fewer than two hashes with traffic, or while both totals
    are below their limits plus the tolerance. A topic that alone is over a limit gets a part of its
    own. A boundary is the middle of two hashes, rounded down, *plus one*. Of topics with the same
    hash the last one's numbers count. Limits 1000 msg/s; hashes 10, 20, 30 with 600 msg/s each give
    16, 26. O(k log k); may be empty. Source: FlowOrQpsEquallyDivideBundleSplitAlgorithm.
    """
    if topics is None or len(topics.hashes) < 2:  # noqa: PLR2004 one topic can't be divided
        return None
    loaded = topics.is_loaded
    hashes, rates, flows = topics.hashes[loaded], topics.msg_rate[loaded], topics.throughput[loaded]
    columns = (hashes.tolist(), rates.tolist(), flows.tolist())
    load_of = {key: (rate, flow) for key, rate, flow in zip(*columns, strict=True)}
    if len(load_of) < 2:  # noqa: PLR2004 as above
        return None
    factor = 1 + config.flow_or_qps_tolerance_percent / 100.0
    rate, flow = float(np.cumsum(rates)[-1]), float(np.cumsum(flows)[-1])  # in order, as Pulsar
    if (
        rate < config.max_msg_rate_per_s * factor
        and flow < config.max_throughput_bytes_per_s * factor
    ):
        return None
    return _greedy_boundaries(sorted(hashes.tolist()), load_of, config)


def _greedy_boundaries(
    hashes: Sequence[int], load_of: dict[int, tuple[float, float]], config: Splitting
) -> Boundaries:
    cuts: list[int] = []
    part_rate, part_flow = load_of[hashes[0]]
    for before, key in pairwise(hashes):
        rate, flow = load_of[key]
        if (
            part_rate + rate > config.max_msg_rate_per_s
            or part_flow + flow > config.max_throughput_bytes_per_s
        ):
            cuts.append(_middle(before, key) + 1)
            part_rate, part_flow = rate, flow
        else:
            part_rate += rate
            part_flow += flow
    return tuple(cuts)


def load_boundaries(hashes: Ints, weights: Floats, parts: int) -> Boundaries:
    """Cut into at most `parts` of about equal weight, each with a topic. O(k log k).

    hashes: int64[k], any order; weights: float64[k], positive. A boundary lies between two
    different hashes, above the lower one. There are fewer than parts-1 where one topic outweighs a
    part, none with a single hash. Used where flow_or_qps would make more parts than allowed, and
    where another algorithm would leave a part without topics.
    """
    places, inverse = np.unique(hashes, return_inverse=True)
    if len(places) < 2:  # noqa: PLR2004 one hash can't be divided
        return ()
    below = np.cumsum(np.bincount(inverse, weights=weights))
    goals = below[-1] * np.arange(1, parts) / parts
    right = np.clip(np.searchsorted(below, goals), 1, len(places) - 1)
    is_left_nearer = goals - below[right - 1] <= below[right] - goals
    gaps = np.unique(np.minimum(np.where(is_left_nearer, right - 1, right), len(places) - 2))
    lows, highs = places[gaps], places[gaps + 1]
    return tuple((lows + (highs - lows) // 2 + 1).tolist())


def inside_of(target: BundleRange, proposed: Boundaries) -> Boundaries:
    """Return the boundaries strictly inside of the range, ascending, each once."""
    return tuple(sorted({cut for cut in proposed if target.lower < cut < target.upper}))


def boundaries_without_positions(
    algorithm: SplitAlgorithm,
    target: BundleRange,
    topics: TopicLoads | None,
    parts: int,
    config: Splitting,
) -> Boundaries | None:
    """Return the boundaries of an algorithm that needs no positions; None for others.

    topics: None = unknown. parts: ignored by flow_or_qps_equally_divide.
    """
    if algorithm is SplitAlgorithm.RANGE:
        return range_boundaries(target, parts)
    if algorithm is SplitAlgorithm.TOPIC_COUNT:
        return topic_count_boundaries(None if topics is None else topics.hashes.tolist(), parts)
    if algorithm is SplitAlgorithm.FLOW_OR_QPS:
        return flow_or_qps_boundaries(topics, config)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """A rule that selects bundles to split.

    name: Ballast's; pulsar_class: simple name of Pulsar's class, "" = none; summary: one line.
    """

    name: str
    pulsar_class: str
    summary: str


RULES = (
    SplitRule(
        name="ballast",
        pulsar_class="",
        summary="Over one of four limits in more than `hit_count_threshold` fresh observations in "
        "a row: the worst first, each into as many parts as it is over its limit.",
    ),
    SplitRule(
        name="extensible",
        pulsar_class="DefaultNamespaceBundleSplitStrategyImpl",
        summary="For comparison, never run: each broker for its own bundles, in the order of its "
        "map: over a limit in more than `hit_count_threshold` cycles in a row, at one boundary.",
    ),
    SplitRule(
        name="modular",
        pulsar_class="BundleSplitterTask",
        summary="For comparison, never run: the leader for all bundles: over a limit once, by "
        "long-term averages, without hit counts and without a limit a cycle.",
    ),
)

ALGORITHM_SUMMARIES = {
    SplitAlgorithm.RANGE: "In halves of equal width, whatever the topics.",
    SplitAlgorithm.TOPIC_COUNT: "With as many topics on each side.",
    SplitAlgorithm.SPECIFIED_POSITIONS: "At the positions that the command names; needs 2 topics.",
    SplitAlgorithm.SPECIFIED_POSITIONS_FORCED: "At the positions that the command names.",
    SplitAlgorithm.FLOW_OR_QPS: "Wherever the next topic would take a part over a rate limit.",
}
