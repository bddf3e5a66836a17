"""Limits of a run: least imbalance, fewest moves, and the knowledge they need.

Decides what a run is compared with; `lbcore.bounds` has the rules. Bundles are those of the start.
For a run that split any, the bound of the imbalance is that of single topics, which no split goes
below. The moves of such a run are not compared with any bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lbcore.bounds.imbalance import Floats, least_imbalance
from lbcore.bounds.moves import NOBODY, Course, least_moves, moves_by_report
from lbcore.model.bundles import NamespaceBundles
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.recorder import Sample
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.judge.measures import imbalance_of, statistic
from lbcore.sim.scenario.metrics import MEAN
from lbcore.sim.scenario.model import BrokerSpec, Scenario

BAR = 1.2
"""Highest over mean: above it a cluster is not even."""
REPORT_MS = 60_000
"""So old is what somebody sees who knows reports only, whatever a strategy's own are set to."""
_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """A run beside what was possible; None = nothing to say.

    bound_p95: of the least imbalance that could be. above_ms: how long the run was above the bar;
    of that nobody_ms: nobody could have been below. least: no fewer moves keep it under the bar
    when somebody can. report_moves, report_above_ms: of a plan that knows what was reported.
    """

    bound_p95: float | None
    above_ms: int
    nobody_ms: int
    least: int | None
    report_moves: int | None
    report_above_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideBound:
    """A run's imbalance beside its lower bound, as means; None = without load.

    over: of each sample's imbalance over its own bound, from 1. above_ms: how long the run was
    above the bar; nobody_ms: of that, how long nobody could have been below.
    """

    imbalance: float | None
    bound: float | None
    over: float | None
    above_ms: int
    nobody_ms: int


def beside_bound(run: Run) -> BesideBound:
    """Compare a run's imbalance with the least possible one.

    O(samples × bundles log bundles), without a solver.
    """
    samples = _samples(run)
    pairs = _pairs(samples, _bounds(run, course_of(run, samples), samples))
    step_ms = run.scenario.sample_ms
    return beside([(value, bound, step_ms) for value, bound, _ in pairs])


def beside(moments: Sequence[tuple[float, float, int]]) -> BesideBound:
    """Return the means of moments.

    A moment: the imbalance, the least that could be, and how long it lasted, ms.
    """
    return BesideBound(
        imbalance=statistic([value for value, _, _ in moments], MEAN),
        bound=statistic([bound for _, bound, _ in moments], MEAN),
        over=statistic([max(1.0, value / bound) for value, bound, _ in moments], MEAN),
        above_ms=sum(lasted for value, _, lasted in moments if value > BAR),
        nobody_ms=sum(lasted for value, bound, lasted in moments if min(value, bound) > BAR),
    )


def attainable_results(run: Run) -> Possible:
    """The bounds of a run. O(samples × bundles log bundles)."""
    samples = _samples(run)
    course = course_of(run, samples)
    bounds = _bounds(run, course, samples)
    pairs = _pairs(samples, bounds)
    step_ms = run.scenario.sample_ms
    lag = max(1, -(-REPORT_MS // step_ms))
    above = [bound for value, bound, _ in pairs if value > BAR]
    is_split = bool(run.recorder.splits)
    plan = None if is_split else moves_by_report(course, lag)
    return Possible(
        bound_p95=statistic([bound for _, bound, _ in pairs], "p95"),
        above_ms=len(above) * step_ms,
        nobody_ms=sum(bound > BAR for bound in above) * step_ms,
        least=None if is_split else least_moves(course, np.array(bounds) <= BAR),
        report_moves=None if plan is None else plan.moves,
        report_above_ms=None
        if plan is None
        else step_ms * sum(float(plan.imbalance[at]) > BAR for _, _, at in pairs),
    )


def course_of(run: Run, samples: Sequence[Sample]) -> Course:
    """The run's load over time, a row a sample, by the bundles that it began with."""
    scenario = run.scenario
    traffic = Traffic(scenario)
    names, places = _bundles(scenario, traffic)
    rates = np.zeros((len(samples), len(names)))
    for at, sample in enumerate(samples):
        sums = np.concatenate(([0.0], np.cumsum(traffic.rates_at(sample.at_ms))))
        rates[at] = sums[places[:, 1]] - sums[places[:, 0]]
    specs = _specs(run)
    numbers = {spec.name: number for number, spec in enumerate(specs)}
    owners = first_owners(run)
    is_there = np.zeros((len(samples), len(specs)), dtype=np.bool_)
    for at, sample in enumerate(samples):
        is_there[at, : len(sample.loads)] = _is_there(sample)
    return Course(
        weights=rates * (_PERCENT / scenario.full_rate),
        first=np.array([numbers.get(owners.get(name, ""), NOBODY) for name in names], np.int64),
        capacity=np.array([spec.capacity for spec in specs]),
        foreign=np.array([spec.foreign for spec in specs]),
        is_there=is_there,
        bar=BAR,
    )


def first_owners(run: Run) -> dict[str, str]:
    """Return each bundle's first owner: the owners at the end, with moves taken back."""
    owners = dict(run.recorder.owner)
    for one in reversed(run.recorder.moves):
        if one.move.bundle in owners:
            owners[one.move.bundle] = one.move.source
    return owners


def _samples(run: Run) -> list[Sample]:
    """Those at which any broker was there."""
    return [sample for sample in run.recorder.samples if _is_there(sample).any()]


def _pairs(samples: Sequence[Sample], bounds: Sequence[float]) -> list[tuple[float, float, int]]:
    """The imbalance, its bound and the sample's place, where there was load."""
    return [
        (value, bound, at)
        for at, (value, bound) in enumerate(zip(map(imbalance_of, samples), bounds, strict=True))
        if value is not None
    ]


def _bounds(run: Run, course: Course, samples: Sequence[Sample]) -> list[float]:
    """Return the least imbalance at each sample.

    Of bundles, or, where some were split, of topics.
    """
    traffic = Traffic(run.scenario) if run.recorder.splits else None
    found = []
    for at, sample in enumerate(samples):
        weights: Floats = course.weights[at]
        if traffic is not None:
            weights = traffic.rates_at(sample.at_ms) * (_PERCENT / run.scenario.full_rate)
        found.append(least_imbalance(weights, course.brokers_at(at)))
    return found


def _bundles(scenario: Scenario, traffic: Traffic) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the bundles of the start, and the rows of their topics."""
    names: list[str] = []
    places = [np.zeros((0, 2), dtype=np.int64)]
    for space in scenario.namespaces:
        ranges = NamespaceBundles(space.name, space.edges).ranges()
        names += [f"{space.name}/{each.text}" for each in ranges]
        edges = np.array(space.edges, dtype=np.int64)
        places.append(traffic.layout.locate(space.name, edges[:-1], edges[1:]))
    return names, np.concatenate(places)


def _specs(run: Run) -> list[BrokerSpec]:
    """Of all brokers that there ever were, by their number."""
    return [node.spec for node in sorted(run.nodes.values(), key=lambda node: node.number)]


def _is_there(sample: Sample) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ~np.isnan(sample.loads)
    return found
