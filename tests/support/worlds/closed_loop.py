"""A cluster under the planner's own decisions, cycle by cycle, in a dozen lines of model.

Load is traffic: a bundle's message rate in points (1 point = 1 % of a broker). What brokers report
may lag; what is decided takes effect at the end of its cycle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lbcore.config.tree import Config
from lbcore.model.resources import COUNT
from lbcore.plan.decision import Kind, Plan, PlanState, Scope
from lbcore.plan.planner import plan
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

MESSAGES_PER_POINT = 1_000.0
BYTES_PER_POINT = 20e6
TIME = len("   60 s")
UNCHANGED = "    ..."


@dataclass(slots=True)
class Loop:
    """The true cluster.

    owner: bundle → broker. points: bundle → its load. foreign: broker → points of other processes.
    seen: what brokers reported last, broker → points, and when. usages: what their gauges said
    then, where that is not the same.
    """

    names: list[str]
    owner: dict[str, str]
    points: dict[str, float]
    foreign: dict[str, float]
    config: Config
    state: PlanState = field(default_factory=PlanState)
    seen: dict[str, float] = field(default_factory=dict)
    seen_ms: int = 0
    usages: dict[str, float] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    moves: int = 0

    def true_points(self) -> dict[str, float]:
        load = dict.fromkeys(self.names, 0.0)
        for bundle, broker in self.owner.items():
            load[broker] += self.points[bundle]
        return {name: load[name] + self.foreign.get(name, 0.0) for name in self.names}

    def report(self, at_ms: int) -> None:
        self.seen, self.seen_ms = self.true_points(), at_ms

    def cycle(self, now_ms: int, *, lands: bool = True) -> int:
        """Plan once and carry it out; the number of bundles that move. lands: at once."""
        answer, self.state = plan(
            self._snapshot(), self.state, self.config, now_ms, Scope(splits=False)
        )
        decisions = answer.decisions if isinstance(answer, Plan) else ()
        moved = [one for one in decisions if one.kind is Kind.TRANSFER]
        for one in moved:
            self.owner[one.bundle] = one.destination
            if not lands:
                self.moving.add(one.bundle)
        self.moves += len(moved)
        reason = answer.reason if not isinstance(answer, Plan) else ""
        self.lines.append(self._line(now_ms, len(moved), reason))
        return len(moved)

    def land(self) -> None:
        self.moving.clear()

    def _line(self, now_ms: int, moved: int, reason: str) -> str:
        true = self.true_points()
        shown = " ".join(f"{name}={true[name]:6.2f}" for name in self.names)
        return f"{now_ms // 1000:5d} s  moved {moved:3d}  {shown}  {reason}".rstrip()

    def text(self) -> str:
        """What happened, a line a cycle; cycles that change nothing are drawn together."""
        shown: list[str] = []
        for line, before in zip(self.lines, ["", *self.lines], strict=False):
            if line[TIME:] != before[TIME:]:
                shown.append(line)
            elif shown[-1] != UNCHANGED:
                shown.append(UNCHANGED)
        return "\n".join(shown) + "\n"

    def _snapshot(self) -> Snapshot:
        bundles = sorted(self.owner)
        index = {name: at for at, name in enumerate(self.names)}
        rates = np.array([self.points[name] for name in bundles])
        short = np.zeros((len(bundles), 4))
        short[:, 0] = rates * MESSAGES_PER_POINT
        short[:, 2] = rates * BYTES_PER_POINT
        own = np.array([self.seen[name] - self.foreign.get(name, 0.0) for name in self.names])
        percent, traffic = np.zeros((len(self.names), COUNT)), np.zeros((len(self.names), 4))
        percent[:, 0] = [(self.usages or self.seen)[name] for name in self.names]
        traffic[:, 0], traffic[:, 2] = own * MESSAGES_PER_POINT, own * BYTES_PER_POINT
        owner = np.array([index[self.owner[name]] for name in bundles], dtype=np.int64)
        return snapshot(
            broker_table(
                self.names,
                percent=percent,
                traffic=traffic,
                bundle_count=np.bincount(owner, minlength=len(self.names)),
                updated_at_ms=np.full(len(self.names), self.seen_ms),
            ),
            bundle_table(
                bundles,
                owner=owner,
                short=short,
                long=short,
                can_move=np.array([name not in self.moving for name in bundles], dtype=np.bool_),
            ),
        )


def loop_of(
    config: Config,
    bundles: Mapping[str, Sequence[float]],
    foreign: Mapping[str, float] | None = None,
) -> Loop:
    """A cluster. bundles: broker → the points of each of its bundles."""
    owner, points = {}, {}
    for broker, given in bundles.items():
        for at, value in enumerate(given):
            name = f"t/n/{broker}-{at:03d}"
            owner[name], points[name] = broker, value
    return Loop(
        names=list(bundles),
        owner=owner,
        points=points,
        foreign=dict(foreign or {}),
        config=config,
    )


def run_minutes(loop: Loop, minutes: int) -> Loop:
    """A report five seconds before each minute's plan, each plan carried out at once."""
    for minute in range(1, minutes + 1):
        loop.report(minute * 60_000 - 5_000)
        loop.cycle(minute * 60_000)
    return loop
