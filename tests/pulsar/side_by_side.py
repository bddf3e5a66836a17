"""Pulsar's own shedders and Ballast on the same skewed traffic, one after the other.

    python -m tests.pulsar.side_by_side --minutes 6 threshold avg ballast

A fresh cluster each time, the same topics and rates; all bundles are given to one broker, then the
contender has so many minutes. A move is a bundle seen at another broker a second later, whoever
moved it. Pulsar's settings are its own but for statistics every five seconds and a shedding grace
of a minute; for avg those that its documentation recommends.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from jobs.console import say
from tests.pulsar.pulsar_stack import NO_JOB, QUICK_PULSAR, SPARK, PulsarStack, running_pulsar

_IMPL = "org.apache.pulsar.broker.loadbalance.impl"
_OWN = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerSheddingGracePeriodMinutes": "1",
    "loadBalancerOverrideBrokerNicSpeedGbps": "",
}
CONTENDERS: Mapping[str, Mapping[str, str]] = {
    "threshold": {**_OWN, "loadBalancerLoadSheddingStrategy": f"{_IMPL}.ThresholdShedder"},
    "uniform": {**_OWN, "loadBalancerLoadSheddingStrategy": f"{_IMPL}.UniformLoadShedder"},
    "avg": {
        **_OWN,
        "loadBalancerLoadSheddingStrategy": f"{_IMPL}.AvgShedder",
        "loadBalancerLoadPlacementStrategy": f"{_IMPL}.AvgShedder",
        "loadBalancerAvgShedderHitCountHighThreshold": "2",
        "loadBalancerAvgShedderHitCountLowThreshold": "8",
        "loadBalancerAvgShedderHighThreshold": "40",
        "loadBalancerAvgShedderLowThreshold": "15",
        "maxUnloadPercentage": "0.5",
        "loadBalancerMaxUnloadPercentage": "0.5",
    },
    "ballast": {},
}
_POINTS = 40.0


def main() -> int:
    """Run the contenders; a line of JSON each."""
    parser = argparse.ArgumentParser(prog="side-by-side", description=__doc__)
    parser.add_argument("contender", nargs="+", choices=sorted(CONTENDERS))
    parser.add_argument("--minutes", type=float, default=6.0)
    args = parser.parse_args()
    for name in args.contender:
        with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
            say(json.dumps(_run(name, Path(folder), args.minutes * 60.0), sort_keys=True))
    return 0


def _run(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    is_ours = name == "ballast"
    opened: AbstractContextManager[PulsarStack] = running_pulsar(
        folder, settings={**QUICK_PULSAR, **CONTENDERS[name]}, job=SPARK if is_ours else NO_JOB
    )
    with opened as cluster:
        cluster.gather(cluster.pulsar.broker(2))
        if is_ours:
            cluster.start_bridge("--act")
        return {"contender": name, **_watched(cluster, seconds)}


def _watched(cluster: PulsarStack, seconds: float) -> dict[str, Any]:
    began_s, balanced_s = time.monotonic(), -1.0
    where, moved = cluster.owners(), Counter[str]()
    sends = len(cluster.traffic.latencies_ms)
    first = cluster.spread()
    while time.monotonic() - began_s < seconds:
        time.sleep(1.0)
        now = cluster.owners()
        moved.update(b for b, owner in now.items() if where.get(b, owner) != owner)
        where |= now
        if balanced_s < 0.0 and cluster.spread() < _POINTS:
            balanced_s = time.monotonic() - began_s
    return {
        "spread_before": round(first, 1),
        "spread_after": round(cluster.spread(), 1),
        "balanced_s": round(balanced_s, 1),
        "moves": moved.total(),
        "moved_again": sum(count > 1 for count in moved.values()),
        "p99_ms": round(cluster.traffic.p99_ms(len(cluster.traffic.latencies_ms) - sends), 1),
        "lost": cluster.traffic.lost().total(),
        "errors": len(cluster.traffic.errors()),
    }


if __name__ == "__main__":
    sys.exit(main())
