"""One choice of the round robin by names, as Pulsar's placement makes it.

The job gives many bundles their turns at once, by numbers (`lbcore.plan.place.request`), with
the very `Turn` that this asks. Source: Pulsar 4.0.8, RoundRobinBrokerSelector.
"""

from collections.abc import Sequence

import numpy as np

from lbcore.plan.place.request import NumberedBrokers, RoundRobinState


def next_in_turn(
    candidates: Sequence[str], state: RoundRobinState
) -> tuple[str | None, RoundRobinState]:
    """The candidate whose turn it is, None without candidates; see `Turn.next`."""
    numbers = NumberedBrokers.of(candidates, state)
    turn = numbers.turn(state)
    chosen = turn.next(np.arange(len(candidates), dtype=np.int64))
    return None if chosen < 0 else numbers.names[chosen], numbers.state(turn)
