"""Rounds of chaos: one run each, what it came to, and what many of them may come to.

Decides when a round has passed (nothing unsafe in any batch, everything settled and served at the
end) and within which bounds the imbalance of all rounds must lie, by quantile. A bound says what is
usual and what is rare at once: a mean would hide the rare, a maximum alone the usual. Bounds by
quantile of over- and underload are Dicer's (AlgorithmChaosSuite).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.clock import START_MS
from lbcore.sim.engine.coverage import NOBODY
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import schedule_events
from lbcore.sim.judge.measures import unsettled_records
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.summary import percentile
from tests.support.chaos.chaos import chaos_text
from tests.support.chaos.safety import SafetyWatch

HANDOVER_MS = 10_000
"""No handover lasts longer when nothing is wrong."""
BUGS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What ends a run early: the round has failed, the others go on. NotRepeatableError is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """At most `limit` percentage points at this percentile of the rounds."""

    percent: float
    limit: float


def _bounds(*limits: float) -> tuple[Bound, ...]:
    percents = (50.0, 90.0, 95.0, 99.0, 100.0)
    return tuple(Bound(percent=p, limit=x) for p, x in zip(percents, limits, strict=True))


BOUNDS: Mapping[str, tuple[Bound, ...]] = {
    "over": _bounds(6.0, 15.0, 30.0, 75.0, 200.0),
    "under": _bounds(6.5, 19.0, 33.0, 62.0, 130.0),
}
"""A fifth above what the 1,000 rounds of seeds 1 to 1000 came to: over 5.0, 12.4, 24.5, 61.8 and
163.4; under 5.2, 15.6, 26.9, 50.4 and 105.0. The rare ones begin with a whole namespace on one
broker, carry as much as the brokers can, or are in trouble until shortly before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRound:
    """What a round came to. faults: why it failed, none = passed.

    over, under: points of load above and below the ideal load at the end (`sides_of`), None when
    nobody ran.
    """

    seed: int
    faults: tuple[str, ...]
    over: float | None
    under: float | None
    moves: int
    doubles: int
    batches: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A bound and what came. value: None = no round to measure."""

    side: str
    bound: Bound
    value: float | None

    @property
    def is_met(self) -> bool:
        """Whether it is kept."""
        return self.value is None or self.value <= self.bound.limit


def run_round(seed: int, config: Config) -> ChaosRound:
    """Run the round of a seed and look at everything that must hold."""
    scenario = parse_scenario(chaos_text(seed))
    engine = Engine(scenario, parse_assignments(config, scenario.settings))
    watch = SafetyWatch(engine)
    watch.begin()
    schedule_events(engine)
    try:
        run = engine.run()
    except BUGS as error:
        watch.faults.append(f"{type(error).__name__}: {error}")
        run = engine.so_far()
    return judge_round(seed, run, watch.faults)


def judge_round(seed: int, run: Run, unsafe: Sequence[str]) -> ChaosRound:
    """What a run came to, given what was unsafe in it."""
    over, under = _sides(run) or (None, None)
    return ChaosRound(
        seed=seed,
        faults=(*unsafe, *_left_behind(run)),
        over=over,
        under=under,
        moves=len(run.recorder.moves),
        doubles=len(run.coverage.doubles),
        batches=run.job.batches,
        hash=run.recorder.hash(),
    )


def hold_bounds(rounds: Iterable[ChaosRound]) -> list[Held]:
    """Each bound against what these rounds came to."""
    done = list(rounds)
    values = {
        "over": [one.over for one in done if one.over is not None],
        "under": [one.under for one in done if one.under is not None],
    }
    return [
        Held(side=side, bound=bound, value=percentile(values[side], bound.percent))
        for side, bounds in BOUNDS.items()
        for bound in bounds
    ]


def sides_of(loads: Sequence[float], hottest: Sequence[float]) -> tuple[float, float]:
    """Over- and underload in points: how far loads are from fair, single bundles left out.

    loads: of at least one broker; hottest: what the hottest bundle of each makes there. A broker
    that carries little but one bundle can't be helped: it may have that much, and is left out of
    the level that the others could be at. Worked: loads 60, 10, 20 with bundles of 55, 2, 3: mean
    30, so 60 is 5 over; the others could be at 15, so 10 is 5 under it.
    """
    mean = math.fsum(loads) / len(loads)
    over = max(load - max(mean, alone) for load, alone in zip(loads, hottest, strict=True))
    others = [load for load, alone in zip(loads, hottest, strict=True) if alone <= mean]
    level = math.fsum(others) / len(others) if others else mean
    return max(0.0, over), max(0.0, level - min(loads))


def _hottest_of(run: Run, brokers: int) -> NDArray[np.float64]:
    """float64[brokers]: the rate of the hottest bundle that each serves whole, msg/s in + out."""
    found = np.zeros(brokers)
    for bundle, rate in run.coverage.bundle_rates().items():
        first, last = run.coverage.rows_of(bundle)
        servers = set(run.coverage.server[first:last].tolist())
        if len(servers) == 1 and (server := servers.pop()) != NOBODY:
            found[server] = max(found[server], rate)
    return found


def _sides(run: Run) -> tuple[float, float] | None:
    """Over- and underload at the last sample, drained brokers left out; None when nobody ran."""
    if not run.recorder.samples:
        return None
    nodes = list(run.nodes.values())
    capacities = np.array([node.spec.capacity for node in nodes])
    alone = _hottest_of(run, len(nodes)) / capacities * (100.0 / run.scenario.full_rate)
    loads = run.recorder.samples[-1].loads
    drained = set(run.job.state.rules.drains) if run.job.state is not None else set()
    is_there = ~np.isnan(loads) & np.array([node.name not in drained for node in nodes])
    if not is_there.any():
        return None
    return sides_of(loads[is_there].tolist(), alone[is_there].tolist())


def _left_behind(run: Run) -> list[str]:
    """What is not as it should be when all trouble is long over.

    What began within the last seconds is a move like any other, which the round's end cuts short.
    """
    now_ms = START_MS + run.scenario.run_ms
    late = [r for r in unsettled_records(run) if now_ms - r.timestamp_ms > HANDOVER_MS]
    short = [o for o in run.coverage.open_outages() if o.ended_ms - o.began_ms <= HANDOVER_MS]
    unserved = run.coverage.unserved - sum(outage.topics for outage in short)
    found = []
    if late:
        found.append(f"at the end {len(late)} bundles are not open at their owner")
    if unserved:
        found.append(f"at the end {unserved} topics have no service")
    return found
