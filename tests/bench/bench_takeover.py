"""How long nobody decides: after a kill -9, with and without a standby, and at a handover.

On the real stack. From the signal to the line of the successor's first committed batch: the batch
that the dead one left is repeated, or one more is worked on. `warm_s`: how long the standby had
stood by. Usage: python -m tests.bench.bench_takeover [--brokers 20] [--bundles 1000] [--rounds 3]
[--warm-s 60] [--output FILE]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.calibration import finish, machine
from tests.integration.stack import Cluster, Stack, running_stack


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--bundles", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-s", type=int, default=60)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(argv)
    result = {"machine": machine(), "aim": {"alone": 30, "standby": 8, "handover": 8}}
    return finish(result | measure(args), args.output)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Each kind as often as there are rounds, on one stack."""
    cluster = Cluster(
        brokers=args.brokers,
        report_interval_ms=10_000,
        overlays=(),
        namespaces={"bench/ns": ("crc32", args.bundles)},
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        running_stack(Path(folder), cluster) as stack,
    ):
        current = "job"
        seconds: dict[str, list[dict[str, float]]] = {"alone": [], "standby": [], "handover": []}
        for kind, figures in seconds.items():
            for number in range(args.rounds):
                time.sleep(20)  # averages and Spark's own compiler come to rest
                following = f"{kind}-{number}"
                wait_s = 0 if kind == "alone" else args.warm_s
                figures.append(_take_over(stack, kind, (current, following), wait_s))
                current = following
    return {"brokers": args.brokers, "bundles": args.bundles, "warm_s": args.warm_s} | {
        "seconds": seconds,
        "load": os.getloadavg(),
    }


def _take_over(stack: Stack, kind: str, names: tuple[str, str], warm_s: int) -> dict[str, float]:
    current, following = names
    place = ("--state-dir", str(stack.folder / "job"))
    if kind != "alone":
        stack.start_job(following, *place, "--standby")
        stack.wait("the standby", lambda: stack.lines(following, "standby"))
        time.sleep(warm_s)
    last_ms = stack.lines(current, "batch")[-1]["logged_at_ms"]
    ended_ms = time.time() * 1_000
    if kind == "handover":
        stack.stop(current)
        last_ms = stack.lines(current, "batch")[-1]["logged_at_ms"]
    else:
        stack.kill(current)
    if kind == "alone":
        stack.start_job(following, *place)
    stack.wait_for_batches(3, following)
    first, second = stack.lines(following, "batch")[:2]
    claimed = stack.lines(following, "start")[0]
    return {
        "signal to claim": (claimed["logged_at_ms"] - ended_ms) / 1_000,
        "signal to first batch": (first["logged_at_ms"] - ended_ms) / 1_000,
        "last batch to first batch": (first["logged_at_ms"] - last_ms) / 1_000,
        "signal to second batch": (second["logged_at_ms"] - ended_ms) / 1_000,
    }


if __name__ == "__main__":
    sys.exit(main())
