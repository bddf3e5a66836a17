"""The plan in the making: what each phase reads, and what it adds.

`planner` makes one draft in each cycle and passes it from phase to phase.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Bundles that are to change owners, k rows, most important first.

    bundle: rows of the bundle table. source, destination: broker indices, -1 = none (yet). origin:
    index into the draft's selections, -1 = from no selection.
    """

    bundle: Ints
    source: Ints
    destination: Ints
    origin: Ints

    def at(self, rows: Ints) -> "Moves":
        """Return some of the moves, in the order of rows."""
        return Moves(
            bundle=self.bundle[rows],
            source=self.source[rows],
            destination=self.destination[rows],
            origin=self.origin[rows],
        )

    def steps(self) -> list[tuple[int, int, int]]:
        """(bundle, source, destination) of each move."""
        columns = (self.bundle.tolist(), self.source.tolist(), self.destination.tolist())
        return list(zip(*columns, strict=True))


_NOTHING = np.zeros(0, dtype=np.int64)
NO_MOVES = Moves(bundle=_NOTHING, source=_NOTHING, destination=_NOTHING, origin=_NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The plan of a cycle so far.

    reported: the snapshot as it came in. snapshot: the same with moves that reports don't show yet.
    strategy: the shedding strategy's short name. usage: float64[n], weighted usage by `snapshot`.
    has_new_report: bool[n], brokers whose hits and averages may advance. index: verdicts of filters
    on brokers and policies. group: int64[open], isolation group of each broker that shedding
    includes. selections: bundles to shed, by source; sheddings: their moves; exchanges: bundle row
    → row of the bundle that comes back for it; too_big: bundles to divide. forced: moves that
    operators want (drains, pins). assignments: destinations of bundles without an owner. children:
    child → broker, of splits whose children are placed at once. skipped: phase → reason that it
    decided nothing. numbers: "phase.name" → value for the whole cycle. parts: the trace.
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
    index: CandidateIndex
    group: Ints = field(default_factory=lambda: _NOTHING)
    selections: tuple[Selection, ...] = ()
    sheddings: Moves = NO_MOVES
    exchanges: Mapping[int, int] = field(default_factory=dict)
    too_big: TooBig | None = None
    forced: Moves = NO_MOVES
    assignments: Moves = NO_MOVES
    splits: tuple[SplitDecision, ...] = ()
    children: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def partners(self, moves: Moves) -> Ints:
        """Return the position of the move that each is exchanged for; its own = none."""
        rows = moves.bundle.tolist()
        at = {row: position for position, row in enumerate(rows)}
        found = [at.get(self.exchanges.get(row, row), at[row]) for row in rows]
        return np.array(found, dtype=np.int64)

    def in_role(self, since: Mapping[str, int]) -> frozenset[str]:
        """Return the brokers that gave, or took, within `role_cool_down_ms`."""
        after_ms = self.now_ms - self.config.shedding.role_cool_down_ms
        return frozenset(name for name, at_ms in since.items() if at_ms > after_ms)

    def skip(self, phase: str, reason: str) -> "Draft":
        """Return the draft after a phase that decided nothing."""
        return replace(self, skipped={**self.skipped, phase: reason})

    def note(self, phase: str, numbers: Mapping[str, float]) -> "Draft":
        """Return the draft with more numbers about the whole cycle."""
        named = {f"{phase}.{name}": value for name, value in numbers.items()}
        return replace(self, numbers={**self.numbers, **named})

    def show(self, *parts: Part) -> "Draft":
        """Return the draft with more parts of the trace, if the plan is traced."""
        if not self.scope.is_traced:
            return self
        return replace(self, parts=(*self.parts, *parts))
