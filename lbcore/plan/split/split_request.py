"""Cut of a requested split, or a sentence that tells why it is refused.

Decides positions only. The command's handler decides if the bundle can be split now, and how many
children may be without topics. Source: Pulsar 4.0.8 NamespaceService.getSplitBoundary; more than
two parts are ours.
"""

from dataclasses import dataclass
from typing import TypeAlias

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.split.algorithms import (
    Boundaries,
    SplitAlgorithm,
    TopicLoads,
    flow_or_qps_boundaries,
    forced_boundaries,
    range_boundaries,
    specified_boundaries,
    topic_count_boundaries,
)

Refusal: TypeAlias = str
"""A sentence, to follow the bundle's name: what is wrong, and what to do."""

_BY_POSITIONS = (SplitAlgorithm.SPECIFIED_POSITIONS, SplitAlgorithm.SPECIFIED_POSITIONS_FORCED)
_BY_PARTS = (SplitAlgorithm.RANGE, SplitAlgorithm.TOPIC_COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """One bundle, and how it is to be cut.

    topics: what is known of them, None = nothing; topic_count: as the owner counts them, named or
    not. positions: 0 .. 0xffffffff, any order. parts: 0 = as the algorithm says. is_forced: at the
    positions whatever the number of topics.
    """

    target: BundleRange
    algorithm: SplitAlgorithm
    topics: TopicLoads | None = None
    topic_count: int = 0
    positions: tuple[int, ...] = ()
    parts: int = 0
    is_forced: bool = False


def requested_boundaries(request: SplitRequest, config: Splitting) -> Boundaries | Refusal:
    """The boundaries, ascending and strictly inside of the range, one at least.

    In [0x00000000, 0x40000000), specified_positions_divide at 0x33000000 and 0x90000000 gives
    0x33000000. O(k log k), k topics.
    """
    refusal = _contradiction(request)
    if refusal:
        return refusal
    found = _proposed(request, config) or ()
    inside = tuple(cut for cut in found if request.target.lower < cut < request.target.upper)
    return inside or _why_not(request)


def _contradiction(request: SplitRequest) -> Refusal:
    name = request.algorithm.value
    width = request.target.upper - request.target.lower
    if request.positions and request.algorithm not in _BY_POSITIONS:
        return f"positions are for specified_positions_divide: name that, not {name}"
    if not request.positions and request.algorithm in _BY_POSITIONS:
        return f"{name} needs positions: name one at least"
    if request.parts and request.algorithm not in _BY_PARTS:
        return f"{name} finds the number of parts by itself: leave parts out"
    if max(request.parts, 2) > width:
        return f"its range has {width} hash values: that is too narrow to be divided so"
    return ""


def _proposed(request: SplitRequest, config: Splitting) -> Boundaries | None:
    parts = request.parts or 2
    if request.algorithm is SplitAlgorithm.RANGE:
        return range_boundaries(request.target, parts)
    if request.algorithm is SplitAlgorithm.TOPIC_COUNT:
        hashes = None if request.topics is None else request.topics.hashes.tolist()
        return topic_count_boundaries(hashes, parts)
    if request.algorithm is SplitAlgorithm.FLOW_OR_QPS:
        return flow_or_qps_boundaries(request.topics, config)
    if request.is_forced or request.algorithm is SplitAlgorithm.SPECIFIED_POSITIONS_FORCED:
        return _once(forced_boundaries(request.target, request.positions))
    return _once(specified_boundaries(request.target, request.positions, request.topic_count))


def _once(positions: Boundaries | None) -> Boundaries | None:
    return None if positions is None else tuple(sorted(set(positions)))


def _why_not(request: SplitRequest) -> Refusal:
    known = 0 if request.topics is None else len(request.topics.hashes)
    if request.algorithm in _BY_POSITIONS:
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
