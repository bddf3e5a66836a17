"""Brokers for many bundles at once, each choice counting the ones before it.

Decides the destination of every bundle of a list, by the rule of least long-term message rate; not
which brokers are allowed (filters), nor when a bundle moves. Runs in the plan's assign phase, for
created and freed bundles, failover and unloads without a destination. Source: Pulsar 4.0.8
LeastLongTermMessageRate; counting what the same plan has placed, and the order, are ours.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.choice import choose
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Bools, Floats, Ints, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Which brokers may take which bundle; bundles of equal policies share a row.

    masks: bool[rows, brokers]. row: int64[bundles], the row of each bundle to assign.
    excluded: int64[bundles], one broker more that may not take it (its source), -1 = none.
    """

    masks: Bools
    row: Ints
    excluded: Ints

    @staticmethod
    def everywhere(allowed: Bools, bundle_count: int) -> "Candidates":
        """One row for all bundles. allowed: bool[brokers], e.g. alive and not draining."""
        return Candidates(
            masks=allowed[np.newaxis, :],
            row=np.zeros(bundle_count, dtype=np.int64),
            excluded=np.full(bundle_count, -1, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRequest:
    """Bundles to assign.

    bundles: indices into `snapshot.bundles`. usage: weighted usage of each broker, 1.0 = 100 %.
    """

    snapshot: Snapshot
    bundles: Ints
    candidates: Candidates
    usage: Floats


def assign_bundles(request: AssignRequest, config: PlacementConfig, seed: int) -> Ints:
    """The destination of each bundle of the request, as a broker index; -1 where none is allowed.

    The rule, one bundle after the other: among its candidates the least score; of equal ones
    `choose`. A score is infinite above the overload threshold, else the long-term message rate of
    the broker's bundles plus that of those placed on it before. When all are infinite every
    candidate is equal. O(bundles x brokers), vectorised over brokers.
    """
    scores = long_term_scores(request.snapshot, request.usage, config)
    rates = _bundle_rates(request, config)
    members = [np.flatnonzero(mask) for mask in request.candidates.masks]
    names = request.snapshot.bundles.names
    versions = request.snapshot.bundles.versions
    result = np.full(len(request.bundles), -1, dtype=np.int64)
    for position in _placing_order(request, config).tolist():
        best = _best_of(request.candidates, members, scores, position)
        if not len(best):
            continue
        bundle = int(request.bundles[position])
        broker = best[choose(len(best), names[bundle], int(versions[bundle]), seed)]
        result[position] = broker
        scores[broker] += rates[position]
    return result


def long_term_scores(snapshot: Snapshot, usage: Floats, config: PlacementConfig) -> Floats:
    """Each broker's score: infinite when overloaded, else the long-term msg/s of its bundles.

    Pulsar 4.0.8 LeastLongTermMessageRate.getScore; overloaded means strictly above the threshold.
    """
    bundles = snapshot.bundles
    brokers = len(snapshot.brokers.names)
    is_owned = bundles.owner >= 0
    owner = bundles.owner[is_owned]
    rate_in = np.bincount(owner, weights=bundles.long[is_owned, RATE_IN], minlength=brokers)
    rate_out = np.bincount(owner, weights=bundles.long[is_owned, RATE_OUT], minlength=brokers)
    is_overloaded = usage > config.overloaded_threshold_percent / 100.0
    scores: Floats = np.where(is_overloaded, np.inf, rate_in + rate_out)
    return scores


def _bundle_rates(request: AssignRequest, config: PlacementConfig) -> Floats:
    """What each bundle adds to the broker that gets it, msg/s."""
    if not config.count_planned:
        return np.zeros(len(request.bundles))
    long = request.snapshot.bundles.long[request.bundles]
    rates: Floats = long[:, RATE_IN] + long[:, RATE_OUT]
    return np.maximum(rates, config.planned_rate_floor_msg_per_s)


def _placing_order(request: AssignRequest, config: PlacementConfig) -> Ints:
    """Positions in the request, heaviest bundle first (equal ones: as given) or as given."""
    if not config.heaviest_first:
        return np.arange(len(request.bundles))
    long = request.snapshot.bundles.long[request.bundles]
    return np.argsort(-(long[:, RATE_IN] + long[:, RATE_OUT]), kind="stable")


def _best_of(candidates: Candidates, members: list[Ints], scores: Floats, position: int) -> Ints:
    """The brokers with the least score among those that may take the bundle, ascending."""
    allowed = members[int(candidates.row[position])]
    excluded = int(candidates.excluded[position])
    if excluded >= 0:
        allowed = allowed[allowed != excluded]
    if not len(allowed):
        return allowed
    own = scores[allowed]
    best: Ints = allowed[own == own.min()]
    return best
