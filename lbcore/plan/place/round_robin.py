"""Round robin: one candidate after the other, in a remembered order.

Decides the broker itself, without a best set. Used for bundles of namespaces excluded from
shedding, which nothing would move again, and by choice. Source: Pulsar 4.0.8
RoundRobinBrokerSelector.

The remembered order is replaced only when the number of candidates changes or the entry whose turn
it is isn't a candidate any more; so a reordered set of equal size keeps the old order, and a new
broker waits until a departed one is hit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.plan.snapshot import Ints

COUNT_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinState:
    """Position of the rotation.

    count: 0..COUNT_MAX, then 0 again. order: the remembered candidates.
    """

    count: int = 0
    order: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Turn:
    """The state with brokers as numbers, for many choices in a row."""

    count: int
    order: Ints

    def next(self, candidates: Ints) -> int:
        """The candidate whose turn it is; -1, and no turn taken, without candidates.

        candidates: distinct, in the order in which a new round goes. O(candidates).
        """
        if not len(candidates):
            return -1
        at = self.count % len(candidates)
        self.count = 0 if self.count == COUNT_MAX else self.count + 1
        if len(self.order) != len(candidates) or not (candidates == self.order[at]).any():
            self.order = candidates
        return int(self.order[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedBrokers:
    """Names and their numbers: those of a plan's brokers, then remembered others."""

    names: tuple[str, ...]

    @staticmethod
    def of(names: Sequence[str], state: RoundRobinState) -> "NumberedBrokers":
        """names: distinct, numbered from 0."""
        return NumberedBrokers(names=tuple(dict.fromkeys((*names, *state.order))))

    def turn(self, state: RoundRobinState) -> Turn:
        """The state in numbers."""
        number = {name: at for at, name in enumerate(self.names)}
        order = np.array([number[name] for name in state.order], dtype=np.int64)
        return Turn(count=state.count, order=order)

    def state(self, turn: Turn) -> RoundRobinState:
        """The state in names."""
        order = tuple(self.names[number] for number in turn.order.tolist())
        return RoundRobinState(count=turn.count, order=order)
