"""Limits of a run: least imbalance, fewest moves, also moves known from reports.

`lbcore.bounds` has the rules. Each isolation group of the run's end is a cluster of its own:
imbalances are those of the worst group, moves those of all. A namespace belongs to the group of its
bundles' owners. Bundles are those of the start. If any was split, the bound of the imbalance is
that of single topics, and moves have no bound.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.bounds.moves import (
    NOBODY,
    Course,
    Floats,
    least_imbalance,
    least_moves,
    moves_by_report,
)
from lbcore.model.bundles import NamespaceBundles
from lbcore.plan.groups import members_by_group
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.recorder import Sample
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.judge.measures import imbalance_of, statistic
from lbcore.sim.scenario.metrics import MEAN

BAR = 1.2
"""Highest over mean load up to which a cluster counts as even."""
REPORT_MS = 60_000
"""Age of reports for the plan that knows reports only, whatever the settings."""
_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainableResults:
    """Bounds of what was attainable in a run; None = no statement.

    bound_p95: of the least possible imbalance. above_ms: time of the run above the bar; nobody_ms:
    part of it in which no balancer could have been below. least: lower bound of moves that keep it
    under the bar when that is possible. report_moves, report_above_ms: of the plan that knows
    reports only.
    """

    bound_p95: float | None
    above_ms: int
    nobody_ms: int
    least: int | None
    report_moves: int | None
    report_above_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundComparison:
    """A run's imbalance and its lower bound, as means; None = without load.

    over: each sample's imbalance over its own bound, from 1. above_ms: time above the bar;
    nobody_ms: part of it in which no balancer could have been below.
    """

    imbalance: float | None
    bound: float | None
    over: float | None
    above_ms: int
    nobody_ms: int


_GroupCourse: TypeAlias = tuple[Course, NDArray[np.int64]]
"""The course of one isolation group, and the rows of its topics."""


def compare_run_with_bound(run: Run) -> BoundComparison:
    """Compare a run's imbalance with the least possible one.

    O(samples × bundles log bundles), without a solver.
    """
    _, _, pairs = _bounded(run)
    return compare_with_bound([(value, bound, run.scenario.sample_ms) for value, bound, _ in pairs])


def compare_with_bound(moments: Sequence[tuple[float, float, int]]) -> BoundComparison:
    """Return the means of moments: (imbalance, least possible one, duration in ms)."""
    return BoundComparison(
        imbalance=statistic([value for value, _, _ in moments], MEAN),
        bound=statistic([bound for _, bound, _ in moments], MEAN),
        over=statistic([max(1.0, value / bound) for value, bound, _ in moments], MEAN),
        above_ms=sum(lasted for value, _, lasted in moments if value > BAR),
        nobody_ms=sum(lasted for value, bound, lasted in moments if min(value, bound) > BAR),
    )


def attainable_results(run: Run) -> AttainableResults:
    """The bounds of a run. O(samples × bundles log bundles)."""
    parts, by_part, pairs = _bounded(run)
    step_ms = run.scenario.sample_ms
    above = [bound for value, bound, _ in pairs if value > BAR]
    found = AttainableResults(
        bound_p95=statistic([bound for _, bound, _ in pairs], "p95"),
        above_ms=len(above) * step_ms,
        nobody_ms=sum(bound > BAR for bound in above) * step_ms,
        least=None,
        report_moves=None,
        report_above_ms=None,
    )
    if run.recorder.splits:
        return found
    lag = max(1, -(-REPORT_MS // step_ms))
    plans = [moves_by_report(course, lag) for course, _ in parts]
    worst = np.max([plan.imbalance for plan in plans], axis=0)
    return replace(
        found,
        least=sum(
            least_moves(course, np.array(bounds) <= BAR)
            for (course, _), bounds in zip(parts, by_part, strict=True)
        ),
        report_moves=sum(plan.moves for plan in plans),
        report_above_ms=step_ms * sum(float(worst[at]) > BAR for _, _, at in pairs),
    )


def _parts(run: Run, samples: Sequence[Sample], traffic: Traffic) -> list[_GroupCourse]:
    """Return the run's load over time, one part per isolation group of its end."""
    names: list[str] = []
    ends = [np.zeros((0, 2), dtype=np.int64)]  # rows of the topics of the first bundles
    for space in run.scenario.namespaces:
        names += NamespaceBundles(space.name, space.edges).names()
        edges = np.array(space.edges, dtype=np.int64)
        ends.append(traffic.layout.locate(space.name, edges[:-1], edges[1:]))
    places = np.concatenate(ends)
    course = _course(run, samples, traffic, names, places)
    brokers = sorted(run.nodes, key=lambda name: run.nodes[name].number)
    groups = run.job.state.plan.groups if run.job.state is not None else {}
    members = members_by_group(brokers, groups)
    if len(members) == 1:
        return [(course, np.arange(traffic.topics))]
    counts: dict[str, Counter[str]] = {}  # policies are of whole namespaces: most bundles decide
    for bundle, broker in sorted(run.recorder.owner.items()):
        if broker in groups:
            counts.setdefault(bundle.rpartition("/")[0], Counter())[groups[broker]] += 1
    spaces = {space: found.most_common(1)[0][0] for space, found in counts.items()}
    of_bundle = np.array([spaces.get(name.rpartition("/")[0], "") for name in names])
    found = []
    for group, own in members.items():
        rows = np.flatnonzero(of_bundle == group)
        ranges = [np.arange(first, last) for first, last in places[rows].tolist()]
        number = np.full(len(brokers) + 1, NOBODY)
        number[own] = np.arange(len(own))
        part = replace(
            course,
            weights=course.weights[:, rows],
            first=number[course.first[rows]],
            capacity=course.capacity[own],
            foreign=course.foreign[own],
            is_there=course.is_there[:, own],
        )
        found.append((part, np.concatenate([np.zeros(0, dtype=np.int64), *ranges])))
    return found


def _course(
    run: Run,
    samples: Sequence[Sample],
    traffic: Traffic,
    names: Sequence[str],
    places: NDArray[np.int64],
) -> Course:
    """Return the run's load over time, a row per sample, by the first bundles."""
    rates = np.zeros((len(samples), len(names)))
    for at, sample in enumerate(samples):
        sums = np.concatenate(([0.0], np.cumsum(traffic.rates_at(sample.at_ms))))
        rates[at] = sums[places[:, 1]] - sums[places[:, 0]]
    nodes = sorted(run.nodes.values(), key=lambda node: node.number)
    specs = [node.spec for node in nodes]
    numbers = {spec.name: number for number, spec in enumerate(specs)}
    owners = first_owners(run)
    is_there = np.zeros((len(samples), len(specs)), dtype=np.bool_)
    for at, sample in enumerate(samples):
        is_there[at, : len(sample.loads)] = _is_running(sample)
    return Course(
        weights=rates * (_PERCENT / run.scenario.full_rate),
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


def _bounded(
    run: Run,
) -> tuple[Sequence[_GroupCourse], list[list[float]], list[tuple[float, float, int]]]:
    """Return the run's parts, the bound of each by sample, and its samples with load.

    A bound is the least imbalance of bundles or, if any was split, of topics. Of each sample with
    load: imbalance, the worst part's bound, and its index among those with a running broker.
    """
    samples = [sample for sample in run.recorder.samples if _is_running(sample).any()]
    traffic = Traffic(run.scenario)
    parts = _parts(run, samples, traffic)
    by_part: list[list[float]] = [[] for _ in parts]
    for at, sample in enumerate(samples):
        for (course, topics), bounds in zip(parts, by_part, strict=True):
            weights: Floats = course.weights[at]
            if run.recorder.splits:
                rates = traffic.rates_at(sample.at_ms)[topics]
                weights = rates * (_PERCENT / run.scenario.full_rate)
            is_there = course.is_there[at].any()
            bounds.append(least_imbalance(weights, course.brokers_at(at)) if is_there else 1.0)
    values, worst = map(imbalance_of, samples), map(max, zip(*by_part, strict=True))
    pairs = [
        (value, bound, at)
        for at, (value, bound) in enumerate(zip(values, worst, strict=True))
        if value is not None
    ]
    return parts, by_part, pairs


def _is_running(sample: Sample) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ~np.isnan(sample.loads)
    return found
