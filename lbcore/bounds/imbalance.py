"""Lower bound of the imbalance: how evenly whole bundles can lie on the brokers.

Decides what nobody can beat, not how it is reached: no policy, move or report is in it. Source: the
bounds of bin packing and of parallel machines by counting large items (Martello and Toth, Knapsack
Problems, chapter 8); here for brokers of any capacity and with foreign load.

A broker's load in percent is its foreign load plus what its bundles make over its capacity. Let an
assignment have a highest load H. Then

1. H is at least the foreign load of every broker, and at least the level L at which
   sum(capacity × max(0, L - foreign)) is what all bundles make: below L there is no room for them.
2. For each k: the k heaviest bundles weigh w_k or more each, so a broker with room for r holds at
   most floor(r / w_k) of them. H is at least the k-th smallest of foreign + j × w_k / capacity,
   over all brokers and j = 1, 2, ...: below it they hold fewer than k.
3. For each j: of the j × n + 1 heaviest bundles some of the n brokers has j + 1, which weigh at
   least as much as the j + 1 lightest of them.

The mean load is that of the assignment, too: with equal capacities it is the same for all of them,
otherwise at most what it is with every bundle on the smallest broker. Highest over mean is at least
the bound of the one over that of the other, and at least 1.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_ROUNDS = 4
_RANKS = 48
_SAFE = 1.0 - 1e-12
"""Bounds are a hair lower than computed, so that rounding can't make them wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Live brokers.

    capacity: float64[n] above 0. foreign: float64[n], percent, from 0.
    """

    capacity: Floats
    foreign: Floats

    @property
    def is_alike(self) -> bool:
        """True if all brokers have the same capacity.

        Then every assignment has the same mean.
        """
        return bool((self.capacity == self.capacity[0]).all())

    def most_mean(self, total: float) -> float:
        """At most so much is the mean load, in percent. total: of all bundles, in points."""
        own = total / float(self.capacity.min()) + float(np.cumsum(self.foreign)[-1])
        return own / len(self.capacity)


def least_highest(weights: Floats, brokers: Brokers) -> float:
    """No assignment of whole bundles has a highest load, in percent, below it.

    weights: float64[bundles], points: percent of a broker of capacity 1. O(bundles log bundles).
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
    """No assignment has a highest over mean load below it; 1 without load, from 1."""
    mean = brokers.most_mean(float(np.cumsum(weights)[-1]) if len(weights) else 0.0)
    return max(1.0, least_highest(weights, brokers) / mean) if mean > 0.0 else 1.0


def _level(total: float, brokers: Brokers) -> float:
    """Return the level of freely divisible load, on top of the foreign load."""
    order = np.argsort(brokers.foreign, kind="stable")
    foreign, room = brokers.foreign[order], np.cumsum(brokers.capacity[order])
    filled = np.cumsum(brokers.capacity[order] * foreign)
    levels = (total + filled) / room
    return float(levels.min())


def _ranks(bundles: int, brokers: int) -> list[int]:
    """Some of the k that there are: the best of many bounds is near that of all."""
    last = min(bundles, _ROUNDS * brokers)
    even = np.linspace(1, last, min(last, _RANKS)).astype(int).tolist() if last else []
    return sorted({*even, *(r for r in (1, brokers, brokers + 1) if r <= bundles)})


def _by_count(ordered: Floats, rank: int, brokers: Brokers) -> float:
    weight = ordered[rank - 1]
    fits = (
        -(-rank // len(brokers.capacity))
        if brokers.is_alike and not brokers.foreign.any()
        else rank
    )
    counts = np.arange(1, fits + 1, dtype=float)
    places = brokers.foreign[:, np.newaxis] + counts * (weight / brokers.capacity)[:, np.newaxis]
    return float(np.partition(places.reshape(-1), rank - 1)[rank - 1])


def _by_pigeonhole(ordered: Floats, rounds: int, brokers: Brokers) -> float:
    last = rounds * len(brokers.capacity) + 1
    if last > len(ordered):
        return 0.0
    on_one_broker = float(np.cumsum(ordered[last - rounds - 1 : last])[-1])
    return float((brokers.foreign + on_one_broker / brokers.capacity).min())
