"""A recorded cluster of two modular brokers, one of them hot, that answers over real HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar

REPORTS = Path(__file__).parents[2] / "unit" / "wire" / "pulsar_reports"
ANSWERS = Path(__file__).parents[2] / "unit" / "bridge" / "pulsar_answers"
REPORT_PATH = "/admin/v2/broker-stats/load-report"
TOPICS_PATH = "/admin/v2/broker-stats/topics"
RUNTIME_PATH = "/admin/v2/brokers/configuration/runtime"
NAMESPACE = "acme/ns"
EDGES = [f"0x{at << 28:08x}" for at in range(16)] + ["0xffffffff"]
BUNDLES = [f"{NAMESPACE}/{low}_{high}" for low, high in pairwise(EDGES)]
HOT_COUNT = 12
_ONE = "acme/ns2/0x80000000_0xc0000000"


@contextmanager
def recorded_cluster() -> Iterator[FakePulsar]:
    """The first twelve of sixteen bundles are at broker 0."""
    with fake_pulsar() as fake:
        fake.own({0: BUNDLES[:HOT_COUNT], 1: BUNDLES[HOT_COUNT:]})
        fake.put("/admin/v2/tenants", ["acme", "pulsar"])
        fake.put("/admin/v2/namespaces/acme", [NAMESPACE])
        fake.put("/admin/v2/namespaces/pulsar", ["pulsar/system"])
        edges = {"boundaries": EDGES, "numBundles": len(BUNDLES)}
        fake.put(f"/admin/v2/namespaces/{NAMESPACE}/bundles", edges)
        fake.put(RUNTIME_PATH, (ANSWERS / "runtime.json").read_bytes())
        fake.put("/metrics/", (ANSWERS / "metrics-broker-1.txt").read_bytes())
        fake.put(TOPICS_PATH, (ANSWERS / "topics-with-traffic.json").read_bytes())
        set_loads(fake, 0)
        yield fake


def set_loads(fake: FakePulsar, number: int) -> None:
    """What brokers report at the number-th time: the recorded rates, a little more each time."""
    recorded = json.loads((REPORTS / "busy-broker-3.json").read_text())
    for broker, bundles in enumerate((BUNDLES[:HOT_COUNT], BUNDLES[HOT_COUNT:])):
        one = recorded["lastStats"][_ONE]
        stats = {
            name: {**one, "msgRateIn": one["msgRateIn"] + at + number}
            for at, name in enumerate(bundles)
        }
        usage = 8.0 * len(bundles)
        report: dict[str, Any] = {
            **recorded,
            "webServiceUrl": f"http://{fake.broker(broker)}",
            "lastStats": stats,
            "bundles": bundles,
            "numBundles": len(bundles),
            "cpu": {"usage": usage, "limit": 100.0},
            "msgRateIn": sum(row["msgRateIn"] for row in stats.values()),
        }
        fake.put(f"{fake.ports[broker]}{REPORT_PATH}", report)


def broker_list(fake: FakePulsar, names: list[str]) -> None:
    """Let the cluster list these brokers only."""
    fake.put(f"/admin/v2/brokers/{CLUSTER}", names)
