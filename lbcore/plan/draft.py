"""The plan in the making: what each phase reads, and what it adds.

`planner` opens one a cycle and passes it from phase to phase.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.config.tree import Config
from lbcore.plan.decision import Part, PlanState, Scope
from lbcore.plan.filter.index import CandidateIndex
from lbcore.plan.shed.common import Selection, TooBig
from lbcore.plan.snapshot import Bools, Floats, Ints, Snapshot
from lbcore.plan.split.decision import SplitDecision

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Bundles that are to change hands, k rows in the order of their importance.

    bundle: rows of the bundle table. source, destination: broker indices, -1 = none (yet). origin:
    index into the draft's selections, -1 = from no selection.
    """

    bundle: Ints
    source: Ints
    destination: Ints
    origin: Ints

    def at(self, rows: Ints) -> "Moves":
        """Some of the moves, in this order."""
        return Moves(
            bundle=self.bundle[rows],
            source=self.source[rows],
            destination=self.destination[rows],
            origin=self.origin[rows],
        )


def no_moves() -> Moves:
    """No moves."""
    nothing = np.zeros(0, dtype=np.int64)
    return Moves(bundle=nothing, source=nothing, destination=nothing, origin=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The cycle so far.

    reported: what came in. snapshot: the same with moves counted that reports don't show yet.
    strategy: the shedding strategy's short name. usage: float64[n], weighted usage of
    `snapshot`'s brokers. has_new_report: bool[n], whose hits and averages may advance. index:
    what the filters say of brokers and policies. groups: int64[open], of each broker that
    shedding does not leave out. selections: who shall give what; sheddings: their moves;
    too_big: what is to be divided. forced: what operators want moved (drains, pins).
    assignments: bundles without an owner. children: child → broker, of splits whose children
    are placed at once. skipped: phase → why it decided nothing.
    """

    reported: Snapshot
    snapshot: Snapshot
    state: PlanState
    config: Config
    now_ms: int
    scope: Scope
    strategy: str
    usage: Floats
    has_new_report: Bools
    index: CandidateIndex | None = None
    groups: Ints | None = None
    selections: tuple[Selection, ...] = ()
    sheddings: Moves = field(default_factory=no_moves)
    too_big: TooBig | None = None
    forced: Moves = field(default_factory=no_moves)
    assignments: Moves = field(default_factory=no_moves)
    splits: tuple[SplitDecision, ...] = ()
    children: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def candidates(self) -> CandidateIndex:
        """The filters' index; the eligible phase makes it, later ones read it."""
        if self.index is None:
            raise ValueError("index must be made by the eligible phase first, got None")
        return self.index

    @property
    def group(self) -> Ints:
        """Group of each broker that takes part, int64[open]; of the eligible phase."""
        if self.groups is None:
            raise ValueError("groups must be made by the eligible phase first, got None")
        return self.groups

    def skip(self, phase: str, reason: str) -> "Draft":
        """The draft after a phase that decided nothing."""
        return replace(self, skipped={**self.skipped, phase: reason})

    def note(self, phase: str, numbers: Mapping[str, float]) -> "Draft":
        """The draft with numbers of the whole cycle."""
        named = {f"{phase}.{name}": value for name, value in numbers.items()}
        return replace(self, numbers={**self.numbers, **named})

    def show(self, *parts: Part) -> "Draft":
        """The draft with more of the trace; nothing is kept unless it is traced."""
        if not self.scope.is_traced:
            return self
        return replace(self, parts=(*self.parts, *parts))
