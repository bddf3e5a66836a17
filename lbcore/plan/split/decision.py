"""Split decisions, and the reasons for or against a split.

The planner turns them into ownership transitions and rows; the enums' values are labels of metrics.
Source: Pulsar 4.0.8, SplitDecision and SplitCounter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.split.algorithms import (
    BY_POSITIONS,
    Boundaries,
    SplitAlgorithm,
    TopicLoads,
    boundaries_without_positions,
    forced_boundaries,
    inside_of,
    specified_boundaries,
)
from lbcore.signals.averages import Floats, Ints


class SplitReason(Enum):
    """Limit that a bundle exceeds, or the requester, by Pulsar's names."""

    TOPICS = "Topics"
    SESSIONS = "Sessions"
    MSG_RATE = "MsgRate"
    BANDWIDTH = "Bandwidth"
    FAIR_SHARE = "FairShare"
    ADMIN = "Admin"
    BALANCED = "Balanced"
    UNKNOWN = "Unknown"


LIMIT_REASONS = (
    SplitReason.TOPICS,
    SplitReason.SESSIONS,
    SplitReason.MSG_RATE,
    SplitReason.BANDWIDTH,
)
"""The limits; the first one exceeded gives the reason."""

REASONS = (*LIMIT_REASONS, SplitReason.FAIR_SHARE)
"""Reasons for automatic splits; `fair_share` is not Pulsar's."""


class SplitVerdict(Enum):
    """Outcome for a bundle over a limit."""

    SPLIT = "split"
    HIT_COUNT = "hit_count"
    UNOWNED = "unowned"
    DEFERRED = "deferred"
    SINGLE_TOPIC = "single_topic"
    SINGLE_HASH = "single_hash"
    NARROW_RANGE = "narrow_range"
    NAMESPACE_FULL = "namespace_full"
    WITHIN_TOLERANCE = "within_tolerance"
    NO_BOUNDARY = "no_boundary"
    CYCLE_LIMIT = "cycle_limit"


VERDICTS = tuple(SplitVerdict)
UNSPLITTABLE = frozenset(
    {SplitVerdict.SINGLE_TOPIC, SplitVerdict.SINGLE_HASH, SplitVerdict.NARROW_RANGE}
)
"""Verdicts that waiting does not change: an operator must act on the topic itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDecision:
    """One bundle to split.

    bundle: index in the snapshot's BundleTable; broker: its owner's name. boundaries: strictly
    inside of the range, ascending; children: full names, ascending, one more than boundaries.
    place_children: they are placed at once instead of staying with the owner. excess: the highest
    of value / limit over the four limits, for FAIR_SHARE the number of parts; hits: observations
    over a limit, for FAIR_SHARE as many as are needed.
    """

    bundle: int
    name: str
    broker: str
    reason: SplitReason
    algorithm: SplitAlgorithm
    boundaries: tuple[int, ...]
    children: tuple[str, ...]
    place_children: bool
    hits: int
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """State of the split phase between cycles.

    hits: bundle → consecutive fresh observations over a limit. unsplittable: bundle → its number of
    topics when no boundary could divide it; others go before it until that changes. pending: bundle
    being split → further bundles that its namespace will have.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    unsplittable: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTrace:
    """Verdicts of the split phase on every bundle over a limit, or of FAIR_SHARE.

    k rows, by BundleTable index. bundle: int64[k], index; reason: int64[k], index in REASONS;
    excess, hits: float64[k], int64[k], as in `SplitDecision`; verdict: int64[k], index in VERDICTS.
    """

    bundle: Ints
    reason: Ints
    excess: Floats
    hits: Ints
    verdict: Ints


EMPTY_STATE = SplitState()


Refusal: TypeAlias = str
"""A sentence after the bundle's name: the fault, and what to do."""

_BY_PARTS = (SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """One bundle, and how to cut it.

    topics: None = unknown; topic_count: by the owner, of known and unknown names. positions: 0 ..
    0xffffffff, any order. parts: 0 = by the algorithm. is_forced: at the positions for any number
    of topics.
    """

    target: BundleRange
    algorithm: SplitAlgorithm
    topics: TopicLoads | None = None
    topic_count: int = 0
    positions: tuple[int, ...] = ()
    parts: int = 0
    is_forced: bool = False


def requested_boundaries(request: SplitRequest, config: Splitting) -> Boundaries | Refusal:
    """Return the boundaries, ascending, strictly inside of the range, or the refusal.

    In [0x00000000, 0x40000000), specified_positions_divide at 0x33000000 and 0x90000000 gives
    0x33000000. O(k log k), k topics.
    """
    refusal = _contradiction(request)
    if refusal:
        return refusal
    target, algorithm = request.target, request.algorithm
    if algorithm not in BY_POSITIONS:
        parts = request.parts or 2
        proposed = boundaries_without_positions(algorithm, target, request.topics, parts, config)
    elif request.is_forced or algorithm is SplitAlgorithm.SPECIFIED_POSITIONS_FORCED:
        proposed = forced_boundaries(target, request.positions)
    else:
        proposed = specified_boundaries(target, request.positions, request.topic_count)
    return inside_of(target, proposed or ()) or _why_not(request)


def _contradiction(request: SplitRequest) -> Refusal:
    name = request.algorithm.value
    width = request.target.upper - request.target.lower
    if request.positions and request.algorithm not in BY_POSITIONS:
        return f"positions are for specified_positions_divide: name that, not {name}"
    if not request.positions and request.algorithm in BY_POSITIONS:
        return f"{name} needs positions: name one at least"
    if request.parts and request.algorithm not in _BY_PARTS:
        return f"{name} finds the number of parts by itself: leave parts out"
    if max(request.parts, 2) > width:
        return f"its range has {width} hash values: that is too narrow to be divided so"
    return ""


def _why_not(request: SplitRequest) -> Refusal:
    known = 0 if request.topics is None else len(request.topics.hashes)
    if request.algorithm in BY_POSITIONS:
        if forced_boundaries(request.target, request.positions) is None:
            return f"none of the positions lies inside of {request.target.text}: choose others"
        return (
            f"it has {request.topic_count} topics, and one can't be divided: force it all the same"
        )
    if known < 2:  # noqa: PLR2004 one topic can't be divided
        return (
            f"{known} of its topics are known, and it takes two to cut between them: wait for its "
            "owner's report, or name range_equally_divide"
        )
    if request.algorithm is SplitAlgorithm.FLOW_OR_QPS:
        return (
            "both its rates are within their limits, or one topic has all the load: name "
            "topic_count_equally_divide or range_equally_divide"
        )
    return "its topics can't be divided between two hash values: name range_equally_divide"
