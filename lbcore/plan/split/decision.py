"""Split decisions, and the reasons for or against a split.

`decide` makes these values, the planner turns them into ownership transitions and rows. The enums'
values are also the labels of metrics. Source: Pulsar 4.0.8, SplitDecision and SplitCounter;
SplitVerdict is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.plan.split.algorithms import SplitAlgorithm

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


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
"""The limits in the order in which the first that is exceeded gives the reason."""

REASONS = (*LIMIT_REASONS, SplitReason.FAIR_SHARE)
"""Reasons for automatic splits; the last one is ours (`fair_share`)."""


class SplitVerdict(Enum):
    """Outcome for a bundle over a limit."""

    SPLIT = "split"
    HIT_COUNT = "hit_count"
    UNOWNED = "unowned"
    IN_FLIGHT = "in_flight"
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
"""Verdicts that no waiting changes: an operator must act on the topic itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDecision:
    """One bundle to split.

    bundle: index in the snapshot's BundleTable; broker: its owner's name. boundaries: strictly
    inside of the range, ascending; children: full names, ascending, one more than boundaries.
    is_adjusted: not the algorithm's own positions, but others that divide the load in no more
    children than allowed. place_children: they are to be placed anew now instead of staying with
    the owner.
    excess: the highest of value / limit over the four limits; hits: observations over a limit.
    """

    bundle: int
    name: str
    broker: str
    reason: SplitReason
    algorithm: SplitAlgorithm
    boundaries: tuple[int, ...]
    children: tuple[str, ...]
    is_adjusted: bool
    place_children: bool
    hits: int
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitState:
    """State of the split phase between cycles.

    hits: bundle -> consecutive fresh observations over a limit. unsplittable: bundle -> its number
    of topics when no boundary could divide it; others are tried before it until that changes.
    pending: bundle being split -> bundles that its namespace will have more afterwards.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    unsplittable: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTrace:
    """Verdicts of the split phase on every bundle over a limit.

    k rows, by BundleTable index. bundle: int64[k], index; reason: int64[k], index in REASONS;
    excess: float64[k], highest value / limit; hits: int64[k], after this cycle's observation;
    verdict: int64[k], index in VERDICTS.
    """

    bundle: Ints
    reason: Ints
    excess: Floats
    hits: Ints
    verdict: Ints

    def unsplittable(self) -> tuple[int, ...]:
        """Indices of the bundles that stay over a limit because nothing can divide them."""
        codes = [VERDICTS.index(verdict) for verdict in UNSPLITTABLE]
        return tuple(self.bundle[np.isin(self.verdict, codes)].tolist())

    def counts(self) -> dict[SplitVerdict, int]:
        """Return the number of bundles per verdict; verdicts without bundles are left out."""
        sums = np.bincount(self.verdict, minlength=len(VERDICTS))
        return {verdict: int(n) for verdict, n in zip(VERDICTS, sums, strict=True) if n}


EMPTY_STATE = SplitState()
