"""Requests to placement, its state, and its answers.

The plan's assign phase makes requests and keeps the state; `place` answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lbcore.config.placement import FilterConfig, PlacementConfig
from lbcore.plan.filter.index import CandidateIndex, Verdicts
from lbcore.plan.snapshot import NOBODY, Bools, Floats, Ints, Snapshot

COUNT_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinState:
    """Position of the rotation: one candidate after the other, in a remembered order.

    The order is replaced only when the number of candidates changes, or when the next entry is no
    longer a candidate. A reordered set of equal size keeps the old order; a new broker
    waits until the turn of one that has left. Source: Pulsar 4.0.8 RoundRobinBrokerSelector.

    count: 0..COUNT_MAX, then 0 again. order: the remembered candidates.
    """

    count: int = 0
    order: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Rotation:
    """The rotation with brokers as numbers, for many choices in a row.

    names: by number, first those of a plan's brokers, then remembered ones. order: numbers.
    """

    names: tuple[str, ...]
    count: int
    order: Ints

    @staticmethod
    def of(names: Sequence[str], state: RoundRobinState) -> "Rotation":
        """Return the state in numbers. names: distinct, numbered from 0."""
        known = tuple(dict.fromkeys((*names, *state.order)))
        number = {name: at for at, name in enumerate(known)}
        order = np.array([number[name] for name in state.order], dtype=np.int64)
        return Rotation(names=known, count=state.count, order=order)

    def state(self) -> RoundRobinState:
        """The state in names."""
        order = tuple(self.names[number] for number in self.order.tolist())
        return RoundRobinState(count=self.count, order=order)

    def next(self, candidates: Ints) -> int:
        """Return the candidate whose turn it is; -1 without candidates.

        candidates: distinct, in the order of a new rotation. O(candidates).
        """
        if not len(candidates):
            return -1
        at = self.count % len(candidates)
        self.count = 0 if self.count == COUNT_MAX else self.count + 1
        if len(self.order) != len(candidates) or not (candidates == self.order[at]).any():
            self.order = candidates
        return int(self.order[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """Bundles that need a broker, k of them.

    bundles: rows of `snapshot.bundles`. usage: weighted usage of each broker, 1.0 = 100 %.
    excluded: int64[k], a broker that may not take it (Ballast: its source), -1 = none. pins:
    int64[k], broker it is pinned to. planned: int64[k], broker that the shedder chose, -1 = none.
    is_unload: bool[k], it leaves an owner; else it has none. traced: number of bundles, in order of
    placement, whose reasons are kept. usage_lags: usages are not current.
    """

    snapshot: Snapshot
    bundles: Ints
    index: CandidateIndex
    usage: Floats
    excluded: Ints
    pins: Ints
    planned: Ints
    is_unload: Bools
    traced: int = 0
    usage_lags: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSettings:
    """Everything configured that placement reads. history_weight: of SignalsConfig."""

    placement: PlacementConfig
    filters: FilterConfig
    history_weight: float = 0.9
    excluded_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementState:
    """State of placement between plans; plain data, empty at the start.

    smoothed_usage: broker → average (least resource usage). round_robin: position of the rotation;
    excluded_round_robin: the same for namespaces excluded from shedding.
    """

    smoothed_usage: Mapping[str, float] = field(default_factory=dict)
    round_robin: RoundRobinState = field(default_factory=RoundRobinState)
    excluded_round_robin: RoundRobinState = field(default_factory=RoundRobinState)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRows:
    """Reasons for the placement of k bundles, for the trace.

    Arrays in the order of the request. subject: int64[k], index into `subjects`; others: such
    indices of placed bundles that are only counted. chosen: int64[k], broker index, -1 = none;
    number: float64[k], the deciding number (message rate or usage), NaN where none decided.
    runner_up, runner_up_number: of the best of the other candidates. verdicts: int8[k, n], each
    broker's `FilterVerdict`, OK = it was a candidate.
    """

    subjects: Sequence[str]
    subject: Ints
    chosen: Ints
    number: Floats
    runner_up: Ints
    runner_up_number: Floats
    verdicts: Verdicts
    others: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Answer: brokers, int64[k] (-1 = none), the next state, and the requested trace."""

    brokers: Ints
    state: PlacementState
    trace: PlacementRows


def place_request(
    snapshot: Snapshot, bundles: Ints, index: CandidateIndex, usage: Floats
) -> PlaceRequest:
    """Return a request without exclusions, pins or plans.

    Owned bundles at rest count as unloads.
    """
    table = snapshot.bundles
    nobody = np.full(len(bundles), NOBODY, dtype=np.int64)
    is_owned: Bools = table.owner >= 0
    if table.needs_owner is not None:
        is_owned = is_owned & ~table.needs_owner
    return PlaceRequest(
        snapshot=snapshot,
        bundles=bundles,
        index=index,
        usage=usage,
        excluded=nobody,
        pins=nobody,
        planned=nobody,
        is_unload=is_owned[bundles],
    )
