"""Rounds of chaos: one run each, what it came to, and what many of them may come to.

Decides when a round has passed (nothing unsafe in any batch, everything settled and served at the
end) and within which bounds the imbalance of all rounds must lie, by quantile. A bound says what is
usual and what is rare at once: a mean would hide the rare, a maximum alone the usual. Source: ours;
bounds by quantile of over- and underload are Dicer's (AlgorithmChaosSuite).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.chaos import MEASURED_MS, chaos_text
from lbcore.sim.engine import Engine, Run
from lbcore.sim.events import plan_happenings
from lbcore.sim.measures import measure_named
from lbcore.sim.recorder import Sample
from lbcore.sim.safety import Watch
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.summary import percentile

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
    "over": _bounds(8.0, 40.0, 60.0, 120.0, 300.0),
    "under": _bounds(10.0, 40.0, 60.0, 90.0, 200.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round came to. faults: why it failed, none = passed.

    over: points of load by which the most loaded broker exceeds what it can't be spared; under: by
    which the least loaded one stays below the others; both meant over the last minutes, None when
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


def run_round(seed: int, config: Config) -> Round:
    """Run the round of a seed and look at everything that must hold."""
    scenario = parse_scenario(chaos_text(seed))
    engine = Engine(scenario, parse_assignments(config, scenario.settings))
    watch = Watch(engine)
    watch.begin()
    plan_happenings(engine)
    try:
        run = engine.run()
    except BUGS as error:
        watch.faults.append(f"{type(error).__name__}: {error}")
        run = engine.so_far()
    return judge_round(seed, run, watch.faults)


def judge_round(seed: int, run: Run, unsafe: Sequence[str]) -> Round:
    """What a run came to, given what was unsafe in it."""
    sides = [found for sample in _last(run) if (found := sides_of(sample)) is not None]
    over, under = np.mean(sides, axis=0).tolist() if sides else (None, None)
    return Round(
        seed=seed,
        faults=(*unsafe, *_left_behind(run)),
        over=over,
        under=under,
        moves=len(run.recorder.moves),
        doubles=len(run.coverage.doubles),
        batches=run.job.batches,
        hash=run.recorder.hash(),
    )


def hold_bounds(rounds: Iterable[Round]) -> list[Held]:
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


def sides_of(sample: Sample) -> tuple[float, float] | None:
    """Over- and underload in points: [30, 10, 20] with a bundle of 25 give (5, 5).

    No move helps a broker that carries little but one bundle: over counts from the greater of mean
    and hottest bundle, under from the mean of what that bundle leaves to the others.
    """
    loads = sample.loads[~np.isnan(sample.loads)]
    if not len(loads):
        return None
    total, mean = float(np.cumsum(loads)[-1]), float(np.cumsum(loads)[-1]) / len(loads)
    level = mean
    if sample.floor > mean and len(loads) > 1:
        level = (total - sample.floor) / (len(loads) - 1)
    return float(loads.max()) - max(mean, sample.floor), max(0.0, level - float(loads.min()))


def _last(run: Run) -> list[Sample]:
    begin = run.scenario.run_ms - MEASURED_MS
    return [sample for sample in run.recorder.samples if sample.at_ms > begin]


def _left_behind(run: Run) -> list[str]:
    """What is not as it should be when all trouble is long over."""
    found = []
    unsettled = measure_named(run, "unsettled")
    if unsettled:
        found.append(f"at the end {unsettled:g} bundles are not open at their owner")
    if run.coverage.unserved:
        found.append(f"at the end {run.coverage.unserved} topics have no service")
    return found
