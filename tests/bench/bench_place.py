"""`python -m tests.bench.bench_place`: how long filters, placement and transfers take.

Medians of 20 calls after two to warm up: 10,000 unowned of 100,000 bundles in 12,500 namespaces
over 1,000 brokers, by each strategy and with policies; transfers of the same cluster with top-10
reports; and a growth curve. The index of the filters is part of every call.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lbcore.config.filters import FilterConfig
from lbcore.config.placement import PlacementConfig
from lbcore.config.transfer import TransferConfig
from lbcore.model.resources import COUNT
from lbcore.plan.filter.index import FilterInput, index_candidates
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlacementState, PlaceSettings, place_request
from lbcore.plan.registry import PLACEMENT_STRATEGIES
from lbcore.plan.shed.common import owner_index
from lbcore.plan.shed.transfer import TopLists, find_transfers, transfer_pipeline, transfer_view
from lbcore.plan.shed.transfer_types import TransferState
from lbcore.plan.snapshot import Snapshot
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.support.values.clusters import broker_table, bundle_table, snapshot

REPETITIONS = 20
WARM_UPS = 2
PER_NAMESPACE = 8
UNOWNED_SHARE = 10
NOW_MS = 1_000_000
ASSIGN_LIMIT_MS = 250.0
TRANSFER_LIMIT_MS = 5.0
PLAIN = FilterConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One line of the table. Times in ms; answers: bundles placed, or decisions."""

    name: str
    bundles: int
    median_ms: float
    fastest_ms: float
    slowest_ms: float
    answers: int


def cluster(bundles: int, brokers: int) -> Snapshot:
    """Log-normal bundles, each tenth without an owner, on brokers of 2 to 100 %."""
    rng = np.random.default_rng(1)
    owner = rng.integers(0, brokers, bundles)
    owner[: bundles // UNOWNED_SHARE] = -1
    rates = rng.lognormal(3, 2, (bundles, 4))
    percent = np.zeros((brokers, COUNT))
    percent[:, 0] = rng.uniform(2, 100, brokers)
    table = broker_table(
        [f"broker-{index:04}:8080" for index in range(brokers)],
        percent=percent,
        traffic=rng.uniform(1e5, 1e7, (brokers, 4)),
        throughput_ema=rng.uniform(1e5, 1e7, brokers),
        bundle_count=np.bincount(owner[owner >= 0], minlength=brokers),
        weighted_max_ema=percent[:, 0] / 100,
        updated_at_ms=np.full(brokers, NOW_MS),
    )
    names = [f"t/n{index // PER_NAMESPACE:06}/{index:08x}" for index in range(bundles)]
    return snapshot(table, bundle_table(names, owner=owner, short=rates, long=rates))


def some_policies(view: Snapshot) -> Policies:
    """Ten isolation policies for a tenth of the namespaces each, twenty groups of a third."""
    return Policies(
        isolation=tuple(
            IsolationPolicy(
                name=f"p{at}",
                namespaces=(f"t/n.*{at}",),
                primary=(f"broker-.*{at}.",),
                secondary=("broker-.*",),
            )
            for at in range(5)
        ),
        anti_affinity={
            space: f"g{at % 20}" for at, space in enumerate(view.bundles.namespaces) if at % 3 == 0
        },
    )


def timed(name: str, bundles: int, call: Callable[[], int]) -> Measured:
    """The median of the calls. call: answers how many answers it got."""
    times: list[float] = []
    answers = 0
    for _ in range(WARM_UPS + REPETITIONS):
        started = time.perf_counter()
        answers = call()
        times.append((time.perf_counter() - started) * 1e3)
    kept = times[WARM_UPS:]
    return Measured(
        name=name,
        bundles=bundles,
        median_ms=round(statistics.median(kept), 2),
        fastest_ms=round(min(kept), 2),
        slowest_ms=round(max(kept), 2),
        answers=answers,
    )


def assign(
    name: str,
    view: Snapshot,
    settings: PlaceSettings,
    policies: Policies | None = None,
    *,
    traced: int = 0,
) -> Measured:
    """Every bundle without an owner gets one."""
    usage = view.brokers.percent[:, 0] / 100
    inputs = FilterInput.plain(view, usage, policies or Policies())
    unowned = np.flatnonzero(view.bundles.owner < 0)

    def call() -> int:
        index = index_candidates(view, inputs, settings.filters)
        request = replace(place_request(view, unowned, index, usage), traced=traced)
        placed = place_bundles(request, PlacementState(), settings, 1).brokers
        return int(np.count_nonzero(placed >= 0))

    return timed(name, len(unowned), call)


def transfer(view: Snapshot) -> Measured:
    """One cycle that passes its gate, from top-10 reports."""
    usage = view.brokers.percent[:, 0] / 100
    index = index_candidates(view, FilterInput.plain(view, usage, Policies()), PLAIN)
    owned = owner_index(view)
    config = TransferConfig(hit_count_threshold=0)

    def call() -> int:
        pipeline = transfer_pipeline(view, index, PLAIN)
        seen = transfer_view(view, owned, pipeline, TopLists(limit=10, with_policies=False))
        return len(find_transfers(seen, TransferState(), config, NOW_MS)[0].decisions)

    return timed("transfer", len(view.bundles.names), call)


def measure_all() -> list[Measured]:
    """Every line: strategies, policies, pipelines, trace, transfer, and the growth curve."""
    view = cluster(100_000, 1_000)
    policies = some_policies(view)
    ours = PlaceSettings(placement=PlacementConfig(), filters=PLAIN)
    rows = [
        assign(name, view, replace(ours, placement=PlacementConfig(strategy=name)))
        for name in PLACEMENT_STRATEGIES
    ]
    pulsar = PlaceSettings(placement=section_from_pulsar(PlacementConfig, {}), filters=PLAIN)
    rows.append(assign("pulsar-4.0.8", view, pulsar))
    rows.append(assign("policies", view, ours, policies))
    extensible = FilterConfig(pipeline="extensible", failure_domains=True)
    rows.append(assign("policies, extensible", view, replace(ours, filters=extensible), policies))
    rows.append(assign("traced", view, ours, traced=100_000))
    rows.append(transfer(view))
    for bundles, brokers in ((1_000, 10), (10_000, 100), (100_000, 1_000), (500_000, 2_000)):
        rows.append(assign(f"growth, {brokers} brokers", cluster(bundles, brokers), ours))
    return rows


def report(rows: list[Measured]) -> dict[str, Any]:
    """What is printed as JSON: the machine and the rows."""
    return {
        "bench": "place",
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "repetitions": REPETITIONS,
        "limit_ms_of_10000_bundles": ASSIGN_LIMIT_MS,
        "limit_ms_of_transfer": TRANSFER_LIMIT_MS,
        "rows": [{key: getattr(row, key) for key in Measured.__slots__} for row in rows],
    }


def main() -> None:
    """Measures, prints a table and then one line of JSON; --output writes that to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    rows = measure_all()
    line = "{:<36}{:>9}{:>11}{:>10}{:>10}{:>9}\n"
    write = sys.stdout.write
    write(line.format("placement", "bundles", "median ms", "fastest", "slowest", "answers"))
    for row in rows:
        times = (row.median_ms, row.fastest_ms, row.slowest_ms)
        write(line.format(row.name, row.bundles, *times, row.answers))
    figures = json.dumps(report(rows))
    write(figures + "\n")
    if args.output:
        args.output.write_text(figures)


if __name__ == "__main__":
    main()
