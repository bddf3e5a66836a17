"""`python -m tests.bench.bench_split`: how long the split phase takes, as a table and as JSON.

Medians of 20 calls after two to warm up, over 1,000 brokers × 100,000 bundles in 1,000 namespaces
of 100, and a growth curve from 1,000 to 500,000 bundles. What differs is how many bundles are over
a limit, and how much is known of their topics.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.names import parse_bundle
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.decision import EMPTY_STATE, SplitState
from tests.support.values.clusters import broker_table, bundle_table, snapshot

REPETITIONS = 20
WARM_UPS = 2
PER_NAMESPACE = 100
TOPICS = 1_000
LIMIT_MS = 50.0

CALM, SKEWED, ALL_OVER = 100.0, 1_500.0, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line of the table. Times in ms; overloaded, decisions: counts of the last call."""

    name: str
    bundles: int
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    overloaded: int
    decisions: int


def cluster(bundles: int, brokers: int, scale: float) -> Snapshot:
    """Bundles whose rates are Pareto(1.5) × scale msg/s, spread over the brokers."""
    rng = np.random.default_rng(1)
    texts = [each.text for each in NamespaceBundles("t/n", even_boundaries(PER_NAMESPACE)).ranges()]
    spaces = [f"t/n{index:05}" for index in range(bundles // PER_NAMESPACE)]
    names = [f"{space}/{text}" for space in spaces for text in texts]
    rates = rng.pareto(1.5, (bundles, 4)) * scale
    return snapshot(
        broker_table([f"broker-{index:04}" for index in range(brokers)]),
        bundle_table(
            names,
            owner=rng.integers(0, brokers, bundles),
            short=rates,
            long=rates,
            topics=rng.integers(2, 500, bundles),
            sessions=rng.integers(0, 500, bundles),
        ),
    )


def nothing(_bundle: str) -> TopicLoads | None:
    """No bundle's topics are known."""
    return None


def many_topics(bundle: str) -> TopicLoads:
    """A thousand topics with 100 msg/s each, spread over the bundle."""
    _, lower, upper = parse_bundle(bundle)
    return TopicLoads(
        hashes=np.linspace(lower, upper - 1, TOPICS).astype(np.int64),
        msg_rate=np.full(TOPICS, 100.0),
        throughput=np.full(TOPICS, 1_000.0),
    )


def measure(
    name: str, view: Snapshot, state: SplitState, topics_of: Callable[[str], TopicLoads | None]
) -> Measured:
    """The median of the calls, each from the same state."""
    blocked = np.zeros(len(view.bundles.names), dtype=np.bool_)
    times: list[float] = []
    for _ in range(WARM_UPS + REPETITIONS):
        started = time.perf_counter()
        decisions, _, trace = decide_splits(view, state, Splitting(), topics_of, blocked)
        times.append((time.perf_counter() - started) * 1e3)
    kept = times[WARM_UPS:]
    return Measured(
        name=name,
        bundles=len(view.bundles.names),
        median_ms=round(statistics.median(kept), 2),
        fastest_ms=round(min(kept), 2),
        slowest_ms=round(max(kept), 2),
        overloaded=len(trace.bundle),
        decisions=len(decisions),
    )


def hit(view: Snapshot) -> SplitState:
    """The state in which every bundle has reached its hit count."""
    return SplitState(hits=dict.fromkeys(view.bundles.names, Splitting().hit_count_threshold))


def measure_all() -> list[Measured]:
    """Every line: three loads at the target's size, known topics, and the growth curve."""
    rows = []
    for name, scale in (("calm", CALM), ("skewed", SKEWED), ("all over a limit", ALL_OVER)):
        view = cluster(100_000, 1_000, scale)
        rows.append(measure(f"{name}, topics unknown", view, hit(view), nothing))
        rows.append(measure(f"{name}, 1,000 topics each", view, hit(view), many_topics))
    for bundles, brokers in ((1_000, 10), (10_000, 100), (100_000, 1_000), (500_000, 2_000)):
        view = cluster(bundles, brokers, SKEWED)
        rows.append(measure(f"growth, {brokers} brokers", view, EMPTY_STATE, nothing))
    return rows


def report(rows: list[Measured]) -> dict[str, Any]:
    """What is printed as JSON: the machine and the rows."""
    return {
        "bench": "split",
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "repetitions": REPETITIONS,
        "limit_ms_at_100000_bundles": LIMIT_MS,
        "rows": [{key: getattr(row, key) for key in Measured.__slots__} for row in rows],
    }


def main() -> None:
    """Measures, prints a table and then one line of JSON; --output writes that to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    rows = measure_all()
    line = "{:<36}{:>9}{:>10}{:>10}{:>10}{:>11}{:>10}\n"
    write = sys.stdout.write
    write(
        line.format("split phase", "bundles", "median ms", "fastest", "slowest", "over", "splits")
    )
    for row in rows:
        times = (row.median_ms, row.fastest_ms, row.slowest_ms)
        write(line.format(row.name, row.bundles, *times, row.overloaded, row.decisions))
    figures = json.dumps(report(rows))
    write(figures + "\n")
    if args.output:
        args.output.write_text(figures)


if __name__ == "__main__":
    main()
