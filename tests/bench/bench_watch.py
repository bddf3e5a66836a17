"""10,000 open watch streams of one worker: memory, how fast all are told, lookups meanwhile.

The watchers and the load generator are processes of their own on the same machine. Usage:
python -m tests.bench.bench_watch [--watchers 10000] [--output watch.json]
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from jobs.adapters.following.watch_follower import WatchAddress
from jobs.lookup_client import LookupClient
from tests.bench import bench_lookup
from tests.support.processes.lookup_service import ROOT, LookupService
from tests.support.tables.lookup_tables import CLUSTER, Row

COMMITS, CHANGES, PAUSE_S, SETTLE_S = 5, 20, 2.0, 10.0

TARGETS = {"watch, streams that were lost": ("<=", 0), "watch, told late or never": ("<=", 0)}
"""What is measured and judged: name → direction and bound."""


def measure(root: Path, writer: Any, rows: list[Row], watchers: int) -> dict[str, Any]:
    """Open the streams, commit a few times, look up meanwhile."""
    service = LookupService(root, "--poll-ms", "100")
    try:
        service.wait_ready()
        figures = _client(service)
        process = psutil.Process(service.process.pid)
        before = process.memory_info().rss
        seconds = COMMITS * PAUSE_S + SETTLE_S
        words = ["127.0.0.1", str(service.port), str(watchers), str(seconds)]
        command = [sys.executable, "-m", "tests.bench.watch_load", *words]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as load:
            assert load.stdout is not None
            load.stdout.readline()
            figures["watch, memory a stream (kB)"] = round(
                (process.memory_info().rss - before) / 1e3 / watchers, 1
            )
            committed = _commit(writer, rows)
            paths = "/lookup/v2/topic/persistent/tenant0/ns0/t\n" * bench_lookup.CONNECTIONS
            lookups = bench_lookup.load(service.port, paths, SETTLE_S / 2)
            found = json.loads(load.stdout.read())
        return {**figures, **_figures(found, committed, watchers, lookups)}
    finally:
        service.stop()


def _client(service: LookupService) -> dict[str, Any]:
    started_s = time.perf_counter()
    with LookupClient(WatchAddress(url=f"http://127.0.0.1:{service.port}"), CLUSTER) as client:
        client.wait_ready(120_000)
        return {"watch, client ready (s)": round(time.perf_counter() - started_s, 2)}


def _commit(writer: Any, rows: list[Row]) -> dict[int, float]:
    """Commits of a few changes; version → when it was committed."""
    generator, committed = random.Random(5), {}
    for version in range(COMMITS):
        chosen = generator.sample(rows, CHANGES)
        changed = [
            Row(bundle=row.bundle, version=version + 2, destination="broker-7") for row in chosen
        ]
        writer.now_ms = time.time_ns() // 1_000_000
        committed[writer.batch(changed, current=False)] = time.time()
        time.sleep(PAUSE_S)
    return committed


def _figures(
    found: dict[str, Any], committed: dict[int, float], watchers: int, lookups: dict[str, Any]
) -> dict[str, Any]:
    told = {int(version): times for version, times in found["told"].items()}
    delays_s = [told[v]["last_s"] - at_s for v, at_s in committed.items() if v in told]
    missing = sum(watchers - told.get(v, {"watchers": 0})["watchers"] for v in committed)
    return {
        "watch, streams": watchers,
        "watch, all open after (s)": found["opened_s"],
        "watch, streams that were lost": found["lost"],
        "watch, told late or never": missing,
        "watch, commit to last watcher told, worst (s)": round(max(delays_s, default=-1), 2),
        "HTTP meanwhile (requests/s)": lookups["per_second"],
        "HTTP meanwhile p99 (ms)": lookups["p99_ms"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=10_000, help="open streams")
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args(argv)
    about = bench_lookup.machine()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tables"
        writer, rows = bench_lookup.write_tables(root)
        figures = measure(root, writer, rows, arguments.watchers)
    found = {
        "machine": about,
        "figures": figures,
        "missed": bench_lookup.missed(figures, TARGETS),
    }
    print(bench_lookup.table(found, TARGETS))  # noqa: T201 (what the user reads)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
