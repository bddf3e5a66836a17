"""`python -m tests.bench.bench_planner`: how long a planning cycle takes, as tables and as JSON.

Medians of 20 calls after two to warm up. One whole cycle of each strategy over 1,000 brokers ×
100,000 bundles with skewed load, in which the strategy acts, without and with the full trace;
bundle averages; and the assignment of 10,000 unowned bundles.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.config.splitting import Splitting
from lbcore.model.resources import COUNT
from lbcore.plan.decision import Plan, PlanState, Scope
from lbcore.plan.planner import place, plan
from lbcore.plan.snapshot import Snapshot
from lbcore.signals.averages import BundleAverages, observe_bundles
from tests.bench.timing import Timing, show, timed
from tests.support.values.clusters import Sections, broker_table, bundle_table, snapshot

BROKERS, BUNDLES = 1_000, 100_000
BUNDLES_PER_NAMESPACE = 200
UNOWNED = 10_000
CYCLE_MS = 10_000
STRATEGIES = ("avg", "threshold", "overload", "uniform", "transfer", "ballast")
TARGET_MS = {**dict.fromkeys(STRATEGIES, 60), "ballast": 250}


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


def measure_all() -> list[Timing]:
    view = cluster(BROKERS, BUNDLES)
    lines = []
    for name in STRATEGIES:
        run = cycle(name, view, is_traced=False)
        lines.append(timed(f"cycle, {name}", run, TARGET_MS[name]))
        run = cycle(name, view, is_traced=True)
        lines.append(timed(f"cycle with full trace, {name}", run, 250))
    lines.append(timed("assign 10,000 unowned", assignment(view), 250))
    lines.append(timed("bundle averages", averages(BUNDLES), 20))
    return lines


def main() -> None:
    """Measure and show; --output writes the JSON to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    show(f"planner, {BROKERS} brokers × {BUNDLES} bundles", measure_all, args.output)


if __name__ == "__main__":
    main()
