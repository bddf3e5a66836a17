"""Pulsar's own shedders and Ballast on the same skewed traffic, one after the other.

    python -m tests.pulsar.side_by_side --minutes 5 threshold avg uniform ballast quick

A fresh cluster each time, the same topics at the same rates (nothing is drawn at random); all
bundles are given to one broker, and once that is measured the contender has so many minutes. A move
is a bundle seen at another broker a second later, whoever moved it; balanced is when the spread was
last above 40 points, -1 = it still is. Pulsar's settings are its own but for statistics every five
seconds, a shedding grace of a minute and no least traffic of a move; for avg those that its
documentation recommends. `ballast` has the overlay `pulsar` as it is, so it decides as often as
Pulsar; `quick` is Ballast in the rhythm of the tests.
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
from tests.pulsar.pulsar_stack import (
    AS_SHIPPED,
    NO_JOB,
    QUICK,
    QUICK_PULSAR,
    SPARK,
    PulsarStack,
    Rhythm,
    running_pulsar,
)

_IMPL = "org.apache.pulsar.broker.loadbalance.impl"
_OWN = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerSheddingGracePeriodMinutes": "1",
    "loadBalancerOverrideBrokerNicSpeedGbps": "",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
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
    },
}
OURS: Mapping[str, Rhythm] = {"ballast": AS_SHIPPED, "quick": QUICK}
_POINTS = 40.0
_DURING_S = (2.0, 5.0)
"""A send counts as during a move from so long before it was seen until so long after."""


def main() -> int:
    """Run the contenders; a line of JSON each."""
    parser = argparse.ArgumentParser(prog="side-by-side", description=__doc__)
    parser.add_argument("contender", nargs="+", choices=sorted({*CONTENDERS, *OURS}))
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args()
    for name in args.contender:
        with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
            say(json.dumps(_run(name, Path(folder), args.minutes * 60.0), sort_keys=True))
    return 0


def _run(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    with _cluster(name, folder) as cluster:
        cluster.gather(cluster.pulsar.broker(2))
        cluster.wait("the skew to be measured", lambda: cluster.spread() >= _POINTS)
        if name in OURS:
            cluster.start_bridge("--act")
        return {"contender": name, **_watched(cluster, seconds)}


def _cluster(name: str, folder: Path) -> AbstractContextManager[PulsarStack]:
    if name in OURS:
        return running_pulsar(folder, job=SPARK, rhythm=OURS[name])
    return running_pulsar(folder, settings={**QUICK_PULSAR, **CONTENDERS[name]}, job=NO_JOB)


def _watched(cluster: PulsarStack, seconds: float) -> dict[str, Any]:
    began_s, above_s = time.monotonic(), 0.0
    where, moved, seen_s = cluster.owners(), Counter[str](), list[float]()
    first = cluster.spread()
    while time.monotonic() - began_s < seconds:
        time.sleep(1.0)
        now = cluster.owners()
        changed = [b for b, owner in now.items() if where.get(b, owner) != owner]
        moved.update(changed)
        seen_s += [time.monotonic()] if changed else []
        where |= now
        if cluster.spread() >= _POINTS:
            above_s = time.monotonic() - began_s

    def is_during(at_s: float) -> bool:
        before_s, after_s = _DURING_S
        return any(one - before_s <= at_s <= one + after_s for one in seen_s)

    last = cluster.spread()
    cluster.traffic.stop()
    return {
        "spread_before": round(first, 1),
        "spread_after": round(last, 1),
        "balanced_s": round(above_s, 1) if last < _POINTS else -1.0,
        "moves": moved.total(),
        "moved_again": sum(count > 1 for count in moved.values()),
        "p99_during_moves_ms": round(cluster.traffic.p99_ms(is_during), 1),
        "p99_else_ms": round(
            cluster.traffic.p99_ms(lambda at_s: at_s >= began_s and not is_during(at_s)), 1
        ),
        "lost": cluster.traffic.lost().total(),
        "errors": len(cluster.traffic.errors()),
    }


if __name__ == "__main__":
    sys.exit(main())
