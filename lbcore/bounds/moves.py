"""The fewest moves and the least imbalance that any balancer can reach.

Moves cost nothing here and take no time. `least_moves` and `least_imbalance` are proven lower
bounds for a balancer that knows the future; `moves_by_report` is a plan for one that knows what was
reported. Loads are percent of a broker, weights are points: percent of a broker of capacity 1.
Source: the bounds of bin packing and of parallel machines by counting large items (Martello and
Toth, Knapsack Problems, chapter 8), here for brokers of any capacity and with foreign load.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_ROUNDS = 4
_RANKS = 48
_SAFE = 1.0 - 1e-12
"""Factor that makes bounds slightly lower than computed: rounding must not make them wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Live brokers.

    capacity: float64[n] above 0. foreign: float64[n], load by other processes, percent, from 0.
    """

    capacity: Floats
    foreign: Floats

    def most_mean(self, total: float) -> float:
        """Return an upper bound of the mean load, percent. total: of all bundles, points."""
        own = total / float(self.capacity.min()) + float(np.cumsum(self.foreign)[-1])
        return own / len(self.capacity)


def least_highest(weights: Floats, brokers: Brokers) -> float:
    """Return a lower bound of the highest load, percent, that whole bundles make.

    A broker's load is its foreign load plus what its bundles make over its capacity. The highest
    load H of an assignment is at least:

    1. the foreign load of every broker, and the level L with room for all bundles:
       sum(capacity × max(0, L - foreign)) = what they make.
    2. for each k: the k-th smallest of foreign + j × w_k / capacity, over all brokers and
       j = 1, 2, ...: the k heaviest bundles weigh w_k or more each; below it, fewer than k fit.
    3. for each j: the load of the j + 1 lightest of the j × n + 1 heaviest bundles, as some of the
       n brokers has j + 1 of these.

    weights: float64[bundles], points. O(bundles log bundles).
    """
    ordered = np.sort(weights[weights > 0.0])[::-1]
    found = max(
        float(brokers.foreign.max()),
        _level(float(np.cumsum(ordered)[-1]) if len(ordered) else 0.0, brokers),
        *(
            _by_count(ordered, rank, brokers)
            for rank in _ranks(len(ordered), len(brokers.capacity))
        ),
        *(_by_pigeonhole(ordered, rounds, brokers) for rounds in range(1, _ROUNDS + 1)),
    )
    return found * _SAFE


def least_imbalance(weights: Floats, brokers: Brokers) -> float:
    """Return a lower bound of the highest over the mean load, from 1.

    1 without load. With equal capacities every assignment has the same mean load; otherwise none
    has a higher one than all bundles on the smallest broker.
    """
    mean = brokers.most_mean(float(np.cumsum(weights)[-1]) if len(weights) else 0.0)
    return max(1.0, least_highest(weights, brokers) / mean) if mean > 0.0 else 1.0


def _level(total: float, brokers: Brokers) -> float:
    """Return the highest load, percent, if bundles could be divided freely (bound 1)."""
    order = np.argsort(brokers.foreign, kind="stable")
    foreign, room = brokers.foreign[order], np.cumsum(brokers.capacity[order])
    return float(((total + np.cumsum(brokers.capacity[order] * foreign)) / room).min())


def _ranks(bundles: int, brokers: int) -> list[int]:
    """Return some k for bound 2: the best of these bounds is near the best of all."""
    last = min(bundles, _ROUNDS * brokers)
    even = np.linspace(1, last, min(last, _RANKS)).astype(int).tolist() if last else []
    return sorted({*even, *(r for r in (1, brokers, brokers + 1) if r <= bundles)})


def _by_count(ordered: Floats, rank: int, brokers: Brokers) -> float:
    """Return bound 2 of `least_highest` for k = rank. ordered: heaviest first."""
    weight = ordered[rank - 1]
    is_alike = (brokers.capacity == brokers.capacity[0]).all() and not brokers.foreign.any()
    most = -(-rank // len(brokers.capacity)) if is_alike else rank
    counts = np.arange(1, most + 1, dtype=float)
    places = brokers.foreign[:, np.newaxis] + counts * (weight / brokers.capacity)[:, np.newaxis]
    return float(np.partition(places.reshape(-1), rank - 1)[rank - 1])


def _by_pigeonhole(ordered: Floats, rounds: int, brokers: Brokers) -> float:
    """Return bound 3 of `least_highest` for j = rounds. ordered: heaviest first."""
    last = rounds * len(brokers.capacity) + 1
    if last > len(ordered):
        return 0.0
    on_one_broker = float(np.cumsum(ordered[last - rounds - 1 : last])[-1])
    return float((brokers.foreign + on_one_broker / brokers.capacity).min())


NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Load over time, and the first owners of the bundles.

    weights: float64[times, bundles], points. first: int64[bundles], the broker's number, NOBODY =
    none. capacity, foreign: float64[brokers]. is_there: bool[times, brokers], True while a broker
    is live. bar: limit of the highest over the mean load, above 1.
    """

    weights: Floats
    first: NDArray[np.int64]
    capacity: Floats
    foreign: Floats
    is_there: NDArray[np.bool_]
    bar: float

    def brokers_at(self, at: int) -> Brokers:
        """Return the brokers that are live at a time."""
        there = self.is_there[at]
        return Brokers(capacity=self.capacity[there], foreign=self.foreign[there])

    def limits(self) -> Floats:
        """Return the load, percent, that no broker may exceed: float64[times].

        inf while no broker is live.
        """
        found = np.full(len(self.weights), np.inf)
        for at in np.flatnonzero(self.is_there.any(axis=1)).tolist():
            total = float(np.cumsum(self.weights[at])[-1])
            found[at] = self.bar * self.brokers_at(at).most_mean(total)
        return found


def least_moves(course: Course, counts: NDArray[np.bool_]) -> int:
    """Return a lower bound of the moves that keep loads under the bar.

    Let B be the bundles that broker b had at first. If at some moment the heaviest k - 1 of them
    weigh less than what B is above b's limit, at least k bundles of B are elsewhere then, so each
    has moved at least once. No bundle had two owners at first, so the sum over brokers of their
    worst moments is a bound. It counts a bundle's first move only.

    counts: bool[times]; False for times that don't count, as the bar can't be kept then.
    O(times × bundles log bundles).
    """
    limits, moves = course.limits(), 0
    for broker, (capacity, foreign) in enumerate(
        zip(course.capacity.tolist(), course.foreign.tolist(), strict=True)
    ):
        own = course.weights[:, course.first == broker]
        if not own.size:
            continue
        taken = np.cumsum(np.sort(own, axis=1)[:, ::-1], axis=1)
        excess = taken[:, -1] - (limits - foreign) * capacity * (1.0 + 1e-9)
        needed = np.where(excess > 0.0, 1 + (taken < excess[:, np.newaxis]).sum(axis=1), 0)
        needed = np.where(counts, np.minimum(needed, own.shape[1]), 0)
        is_gone = course.is_there.any(axis=1) & ~course.is_there[:, broker]
        moves += int(np.where(is_gone, own.shape[1], needed).max())
    return moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Result of the plan of `moves_by_report`.

    moves: number of moves. imbalance: float64[times].
    """

    moves: int
    imbalance: Floats


def moves_by_report(course: Course, lag: int) -> Reported:
    """Return the result of moving bundles when the last report is above the bar.

    While a broker is above its limit, the fullest one gives the emptiest its lightest bundle that
    is enough, else the heaviest that fits. This is a plan, not a bound: another balancer with the
    same reports may need fewer moves.

    lag: age of the load by which the plan moves, in times, from 1. Before that it only replaces
    brokers that are gone. O(times × moves × bundles).
    """
    owners = course.first.copy()
    moves = 0
    found = np.ones(len(course.weights))
    for at in range(len(found)):
        if not course.is_there[at].any():
            continue
        moves += _replace_gone(course, owners, at)
        if at >= lag:
            moves += _even_out(course, owners, course.weights[at - lag], at)
        loads = _loads(course, owners, course.weights[at])[course.is_there[at]]
        mean = float(np.cumsum(loads)[-1]) / len(loads)
        found[at] = float(loads.max()) / mean if mean > 0.0 else 1.0
    return Reported(moves=moves, imbalance=found)


def _loads(course: Course, owners: NDArray[np.int64], weights: Floats) -> Floats:
    """Return the brokers' loads with these owners: float64[brokers], percent."""
    is_owned = owners != NOBODY
    count = len(course.capacity)
    points = np.bincount(owners[is_owned], weights=weights[is_owned], minlength=count)
    return points / course.capacity + course.foreign


def _replace_gone(course: Course, owners: NDArray[np.int64], at: int) -> int:
    """Give bundles without a live owner to the least loaded; return how many moved.

    A bundle that nobody owned does not count as moved.
    """
    there = np.flatnonzero(course.is_there[at])
    free = np.flatnonzero(~np.isin(owners, there))
    if not len(free):
        return 0
    weights = course.weights[max(0, at - 1)]
    moved = int((owners[free] != NOBODY).sum())
    owners[free] = NOBODY
    loads = _loads(course, owners, weights)
    for bundle in free[np.argsort(-weights[free], kind="stable")].tolist():
        target = int(there[np.argmin(loads[there])])
        owners[bundle] = target
        loads[target] += weights[bundle] / course.capacity[target]
    return moved


def _even_out(course: Course, owners: NDArray[np.int64], weights: Floats, at: int) -> int:
    """Move until loads are under the bar or no move helps; return the number of moves."""
    there = np.flatnonzero(course.is_there[at])
    loads = _loads(course, owners, weights)
    limit = course.bar * float(np.cumsum(loads[there])[-1]) / len(there)
    moves = 0
    while moves < len(weights):
        source = int(there[np.argmax(loads[there])])
        target = int(there[np.argmin(loads[there])])
        if loads[source] <= limit or source == target:
            break
        own = np.flatnonzero((owners == source) & (weights > 0.0))
        room = (min(limit, loads[source]) - loads[target]) * course.capacity[target]
        fits = own[weights[own] < room]
        if not len(fits):
            break
        enough = fits[weights[fits] >= (loads[source] - limit) * course.capacity[source]]
        chosen = (
            enough[np.argmin(weights[enough])] if len(enough) else fits[np.argmax(weights[fits])]
        )
        owners[chosen] = target
        loads[source] -= weights[chosen] / course.capacity[source]
        loads[target] += weights[chosen] / course.capacity[target]
        moves += 1
    return moves
