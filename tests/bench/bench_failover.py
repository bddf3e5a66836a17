"""One broker with very many bundles crashes: how long until others serve all of them.

On the real stack with the protocol's full times. From the broker's last report in Kafka to the
moment at which the last bundle is open at another broker; the aim is 30 s for 10,000 bundles.
Usage: python -m tests.bench.bench_failover [--bundles 10000] [--brokers 10] [--output FILE]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.kafka.clients import Tail
from lbcore.wire.messages import Topic
from tests.bench.machine import machine
from tests.integration.stack import Cluster, Stack, running_stack

_LOOK_S = 0.25
AIM_S = 30
VICTIM = "broker-1"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(argv)
    result = {"machine": machine(), **measure(args.brokers, args.bundles)}
    print(json.dumps(result, indent=1))  # noqa: T201 (this is what it is for)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1))
    return 0


def measure(brokers: int, bundles: int) -> dict[str, Any]:
    """Let one broker own everything, start the others, crash it."""
    per_namespace = min(bundles, 1_000)
    cluster = Cluster(
        brokers=brokers,
        report_interval_ms=10_000,
        overlays=(),
        namespaces={
            f"bench/ns-{i}": ("crc32", per_namespace) for i in range(bundles // per_namespace)
        },
        settings=("shedding.is_shedding=false", "splitting.enabled=false"),
    )
    others = [f"broker-{number}" for number in range(2, brokers + 1)]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_stack(Path(folder), cluster, begin_without=others) as stack,
    ):
        for broker in others:
            stack.fleet(f"/start/{broker}", "POST")
        stack.wait("the others to report", lambda: _active(stack) == brokers)
        begun = stack.batches_done()
        stack.fleet(f"/kill/{VICTIM}", "POST")
        opened = _watch(stack, cluster.bundles)
        last_report_ms = last_report(stack)
        lines = stack.lines("job", "batch")[begun:]
        found = next(line for line in lines if line["counts"].get("died"))
    return {
        "brokers": brokers,
        "bundles": cluster.bundles,
        "broker_timeout_ms": stack.config.ownership.broker_timeout_ms,
        "seconds_from_last_report": {
            "job has decided and written": (found["logged_at_ms"] - last_report_ms) / 1_000,
            "first bundle open elsewhere": (opened[0] - last_report_ms) / 1_000,
            "all bundles open elsewhere": (opened[1] - last_report_ms) / 1_000,
            "aim": AIM_S,
        },
        "batch that failed over": found["parts"],
    }


def _active(stack: Stack) -> int:
    return sum(row["state"] == "active" for row in stack.rows("brokers"))


def _watch(stack: Stack, bundles: int) -> tuple[float, float]:
    """When the first bundle was open elsewhere, and when the last was, in ms since 1970."""
    first = 0.0
    while True:
        served, now_ms = len(stack.served()), time.time() * 1_000
        first = first or (now_ms if served else 0.0)
        if served == bundles:
            return first, now_ms
        time.sleep(_LOOK_S)


def last_report(stack: Stack) -> float:
    """Kafka's time of the victim's last message on broker-load, ms since 1970."""
    tail = Tail(stack.address("operator"), Topic.BROKER_LOAD, "bench-failover")
    newest = 0
    while not tail.read_to_end(10_000):
        for message in tail.poll(500):
            if message.key == f"local/{VICTIM}":
                newest = max(newest, message.timestamp_ms)
    tail.close()
    return newest


if __name__ == "__main__":
    sys.exit(main())
