"""`python -m tests.bench.bench_planner`: how long a planning cycle takes, as tables and as JSON.

Medians of 20 calls after two to warm up. One whole cycle of each strategy over 1,000 brokers ×
100,000 bundles with skewed load, in which the strategy acts, without and with the full trace; the
strategy alone, as Pulsar's Java class would be called; bundle averages; the assignment of 10,000
unowned bundles; and a growth curve from 10 × 1,000 to 2,000 × 500,000.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lbcore.config.placement import FilterConfig, PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.config.splitting import Splitting
from lbcore.model.resources import COUNT
from lbcore.plan.blocked import blocked_brokers, stuck
from lbcore.plan.decision import Plan, PlanState, Scope
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.planner import place, plan
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.common import ShedState
from lbcore.plan.shed.transfer import TopLists, find_transfers, transfer_pipeline, transfer_view
from lbcore.plan.shed.transfer_types import TransferState
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.strategy import ShedCycle
from lbcore.signals.averages import BundleAverages, observe_bundles
from lbcore.signals.usage import weighted_usage
from tests.bench.calibration import machine
from tests.support.values.clusters import Sections, broker_table, bundle_table, shed_view, snapshot

REPETITIONS = 20
WARM_UPS = 2
BROKERS, BUNDLES = 1_000, 100_000
BUNDLES_PER_NAMESPACE = 200
UNOWNED = 10_000
CYCLE_MS = 10_000
BLOCKED, HITS = 3, 6
TOP = 10
STRATEGIES = ("avg", "threshold", "overload", "uniform", "transfer", "ballast")
GROWTH = ((10, 1_000), (100, 10_000), (1_000, 100_000), (2_000, 500_000))
JAVA_MS = {"threshold": 3_429, "avg": 279, "overload": 69, "uniform": 67, "transfer": 0.9}
TARGET_MS = {**dict.fromkeys(STRATEGIES, 60), "ballast": 250}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line. Times in ms; cpu_ms: median of the process's own time; decisions: of the last."""

    name: str
    brokers: int
    bundles: int
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    cpu_ms: float
    decisions: int
    target_ms: float | None = None
    java_ms: float | None = None


def cluster(brokers: int, bundles: int) -> Snapshot:
    """Pareto(1.5) rates; each tenth broker holds three times as much, one in twenty is idle."""
    rng = np.random.default_rng(1)
    weight = np.ones(brokers)
    weight[::20] = 0.02
    owner = rng.choice(brokers, bundles, p=weight / weight.sum())
    rate = (rng.pareto(1.5, bundles) + 0.2) * 100 * np.where(owner % 10 == 5, 3.0, 1.0)
    short = np.zeros((bundles, 4))
    short[:, 0], short[:, 1] = rate * 0.4, rate * 0.6
    short[:, 2:] = short[:, :2] * 2_000
    sums = [np.bincount(owner, weights=short[:, at], minlength=brokers) for at in range(4)]
    traffic = np.stack(sums, axis=1)
    total = traffic[:, 0] + traffic[:, 1]
    percent = np.zeros((brokers, COUNT))
    percent[:, 0] = np.minimum(99.0, total / np.percentile(total, 93) * 90)
    per_namespace = BUNDLES_PER_NAMESPACE
    width = 2**32 // per_namespace
    names = [
        f"t/n{at // per_namespace:05}/0x{at % per_namespace * width:08x}"
        f"_0x{(at % per_namespace + 1) * width:08x}"
        for at in range(bundles)
    ]
    return snapshot(
        broker_table(
            [f"broker-{at:05}:8080" for at in range(brokers)],
            percent=percent,
            traffic=traffic,
            bundle_count=np.bincount(owner, minlength=brokers),
            weighted_max_ema=percent[:, 0] / 100,
            throughput_ema=traffic[:, 2] + traffic[:, 3],
            updated_at_ms=np.full(brokers, CYCLE_MS - 1_000),
        ),
        bundle_table(
            names,
            owner=owner,
            short=short,
            long=short,
            topics=rng.integers(1, 20, bundles),
        ),
    )


def sections(strategy: str) -> Sections:
    """A configuration in which the strategy acts at the first or second cycle."""
    return Sections(
        shedding=SheddingConfig(strategy=strategy),
        transfer=TransferConfig(hit_count_threshold=0),
        ideal_load=IdealLoadConfig(low_hits=1),
        placement=PlacementConfig(strategy="ballast" if strategy == "ballast" else "avg"),
        splitting=Splitting(),
    )


def reported(view: Snapshot, at_ms: int) -> Snapshot:
    """The cluster with newer reports of the same load."""
    brokers = view.brokers
    return replace(view, brokers=replace(brokers, updated_at_ms=np.full(len(brokers.names), at_ms)))


def timed(name: str, view: Snapshot, call: Callable[[], int], **more: Any) -> Measured:
    """The median of the calls. call: does the work and says how many decisions came of it."""
    walls, cpus, decisions = [], [], 0
    for _ in range(WARM_UPS + REPETITIONS):
        wall, cpu = time.perf_counter(), time.process_time()
        decisions = call()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    kept = walls[WARM_UPS:]
    return Measured(
        name=name,
        brokers=len(view.brokers.names),
        bundles=len(view.bundles.names),
        median_ms=round(statistics.median(kept), 2),
        fastest_ms=round(min(kept), 2),
        slowest_ms=round(max(kept), 2),
        cpu_ms=round(statistics.median(cpus[WARM_UPS:]), 2),
        decisions=decisions,
        **more,
    )


def cycle(strategy: str, view: Snapshot, *, is_traced: bool) -> Callable[[], int]:
    """A whole cycle in which the strategy acts: avg's is the second one, with the second hit."""
    config, state = sections(strategy), PlanState()
    if strategy == "avg":
        _, state = plan(view, state, config, CYCLE_MS, Scope(splits=False))
    later = reported(view, CYCLE_MS + 5_000)

    def run() -> int:
        scope = Scope(is_traced=is_traced)
        answer, _ = plan(later, state, config, CYCLE_MS * 2, scope)
        return len(answer.decisions) if isinstance(answer, Plan) else 0

    return run


def alone(strategy: str, view: Snapshot) -> Callable[[], int]:
    """The strategy's function, given what the plan would give it."""
    config = sections(strategy)
    usage = weighted_usage(view.brokers.percent, config.signals)
    shown = shed_view(view, usage)
    if strategy == "transfer":
        index = candidate_index(view)
        pipeline = transfer_pipeline(view, index, FilterConfig())
        lists = TopLists(limit=TOP, with_policies=False)
        store = transfer_view(view, shown.owned, pipeline, lists)

        def transfer() -> int:
            found, _ = find_transfers(store, TransferState(), config.transfer, CYCLE_MS)
            return len(found.decisions)

        return transfer
    if strategy == "ballast":

        def ballast() -> int:
            found = shed_ballast(shown, ShedState(), config.ideal_load)
            return sum(len(one.rows) for one in found.selections)

        return ballast
    record = SHEDDING_STRATEGIES[strategy]
    cycle = ShedCycle(view=shown, state=PlanState(), config=config, now_ms=0)
    cycle = replace(cycle, state=record.run(cycle)[1])

    def shed() -> int:
        answer, _ = record.run(cycle)
        return sum(len(one.rows) for one in answer.selections)

    return shed


def assignment(view: Snapshot) -> Callable[[], int]:
    """The assign phase for the first 10,000 bundles, which have lost their owners."""
    owner = view.bundles.owner.copy()
    owner[:UNOWNED] = -1
    orphaned = replace(view, bundles=replace(view.bundles, owner=owner))
    config, state = sections("avg"), PlanState()

    def run() -> int:
        places, _ = place(orphaned, state, config, CYCLE_MS)
        return len(places.found)

    return run


def blocked_jointly(view: Snapshot) -> Callable[[], int]:
    """Three hot brokers whose bundles rest twice: their verdicts counted."""
    count, brokers = len(view.bundles.names), len(view.brokers.names)
    owner = np.arange(count) % brokers
    is_hot = owner < BLOCKED
    rate = np.where(is_hot, 80.0, 50.0) * (1 + 0.02 * np.random.default_rng(1).normal(size=count))
    short = np.outer(rate, [0.4, 0.6, 800.0, 1_200.0])
    sums = [np.bincount(owner, weights=short[:, at], minlength=brokers) for at in range(4)]
    traffic = np.stack(sums, axis=1)
    percent = np.zeros((brokers, COUNT))
    percent[:, 0] = 40 * traffic[:, 0] / traffic[:, 0].mean()
    moved_ms = np.full(count, CYCLE_MS)
    even = replace(
        view,
        brokers=replace(view.brokers, percent=percent, traffic=traffic),
        bundles=replace(view.bundles, owner=owner, short=short, long=short, moved_ms=moved_ms),
    )
    config = sections("ballast")
    config = replace(config, shedding=replace(config.shedding, cool_down_ms=600_000))
    resting = [view.bundles.names[row] for row in np.flatnonzero(is_hot).tolist()]
    state = PlanState(unloaded_ms=dict.fromkeys(resting, CYCLE_MS))
    scope = Scope(splits=False, is_traced=True)
    for cycle in range(1, HITS):
        at_ms = CYCLE_MS * cycle
        _, state = plan(reported(even, at_ms - 1_000), state, config, at_ms, scope)
    now_ms = CYCLE_MS * HITS
    seen = reported(even, now_ms - 1_000)
    answer, _ = plan(seen, state, config, now_ms, scope)
    verdicts, usage = stuck(answer), weighted_usage(percent, config.signals)
    mean = np.full(brokers, usage.mean())

    def count_verdicts() -> int:
        return len(blocked_brokers(answer.trace, verdicts, usage, mean))

    return count_verdicts


def averages(bundles: int) -> Callable[[], int]:
    """One sample for every bundle, short- and long-term."""
    traffic, counts = np.full((bundles, 4), 50.0), np.zeros(bundles, dtype=np.int64)
    state = BundleAverages(
        short=traffic, short_count=counts, long=traffic, long_count=counts, topics=counts
    )
    rows, stats = np.arange(bundles), np.random.default_rng(2).random((bundles, 8)) * 1e4

    def run() -> int:
        observe_bundles(state, rows, stats)
        return 0

    return run


def measure_all() -> list[Measured]:
    """Every line, the growth curve last."""
    view = cluster(BROKERS, BUNDLES)
    lines = []
    for name in STRATEGIES:
        run = cycle(name, view, is_traced=False)
        lines.append(timed(f"cycle, {name}", view, run, target_ms=TARGET_MS[name]))
        run = cycle(name, view, is_traced=True)
        lines.append(timed(f"cycle with full trace, {name}", view, run, target_ms=250))
    for name in STRATEGIES:
        target = 5 if name == "transfer" else None
        run = alone(name, view)
        more = {"java_ms": JAVA_MS.get(name), "target_ms": target}
        lines.append(timed(f"strategy alone, {name}", view, run, **more))
    lines.append(timed("assign 10,000 unowned", view, assignment(view), target_ms=250))
    count_verdicts = blocked_jointly(view)
    lines.append(timed("three blocked: verdicts counted", view, count_verdicts))
    lines.append(timed("bundle averages", view, averages(BUNDLES), target_ms=20))
    return lines


def measure_growth() -> list[Measured]:
    """A whole cycle of avg at growing sizes."""
    views = [cluster(*size) for size in GROWTH]
    return [timed("growth, avg", view, cycle("avg", view, is_traced=False)) for view in views]


def table(lines: list[Measured]) -> str:
    """The lines for people."""
    form = "{:<34}{:>8}{:>9}{:>10}{:>10}{:>10}{:>9}{:>11}{:>8}{:>8}"
    head = (
        "planner",
        "brokers",
        "bundles",
        "median ms",
        "fastest",
        "slowest",
        "cpu ms",
        "decisions",
        "target",
        "Java",
    )
    shown = [form.format(*head)]
    for one in lines:
        row = [value if value is not None else "" for value in asdict(one).values()]
        shown.append(form.format(*row))
    return "\n".join(shown)


def main() -> None:
    """Measure, print tables, then one line of JSON; --output writes that to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    lines, growth = measure_all(), measure_growth()
    figures = {
        "bench": "planner",
        "machine": machine(),
        "repetitions": REPETITIONS,
        "rows": [asdict(one) for one in (*lines, *growth)],
    }
    write = sys.stdout.write
    write(f"{table([*lines, *growth])}\n\n{json.dumps(figures)}\n")
    if args.output is not None:
        args.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
