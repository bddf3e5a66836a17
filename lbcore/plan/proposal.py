"""Input and result of a strategy of your own.

def decide(snapshot, state, config, now_ms) -> tuple[Proposal, state]

snapshot: `plan.snapshot.Snapshot`, read-only, of the brokers that take part in balancing. It
includes moves that reports don't show yet; `snapshot.bundles.can_move` tells which bundles may move
now. state: the state returned the last time, plain JSON, {} at first. config: the configuration.
now_ms: the only time to use. Equal arguments must give equal answers: the balancer asks twice and
compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedMove:
    """A bundle that shall leave its broker.

    bundle: its full name. destination: a broker's name, "" = placement decides. numbers: what
    decided, by name, finite; they stand in the decision's inputs.
    """

    bundle: str
    destination: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Moves proposed for a cycle, most important first; none = a skip.

    The limits (`shedding.max_moves_*`), cool-downs, pins and filters apply as for every strategy.
    numbers: of the whole cycle, by name, finite.
    """

    moves: tuple[ProposedMove, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
