"""Lookups in process and over HTTP, against the targets: 60,000 bundles in 1,000 namespaces.

The load generator and the writer of ownership changes are processes of their own on the same
machine, so they take CPU from the service. All bundles were assigned within the last minutes, so
that a start reads each record twice, of the current table and of the events: the dearest start that
there is. Usage:
python -m tests.bench.bench_lookup [--bundles 60000] [--seconds 10] [--output lookup.json]
"""

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import psutil

from jobs.lookup_client import LookupClient
from lbcore.route.batch import BatchIndex
from tests.bench.calibration import finish, machine
from tests.support.processes.lookup_service import ROOT, LookupService
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter, owned

NAMESPACES, BUNDLES, BROKERS, TOPICS = 1_000, 60_000, 100, 200_000
IN_A_COMMIT = 100_000
CONNECTIONS = 16
CHANGES_PER_S = 1_000
REPEATS = 5

Targets: TypeAlias = Mapping[str, tuple[str, float]]

TARGETS: Targets = {
    "in process, one by one (lookups/s)": (">=", 1_000_000),
    "in process, batch of 200,000 (lookups/s)": (">=", 2_000_000),
    "HTTP, quiet tables (requests/s)": (">=", 10_000),
    "HTTP, requests/s of CPU": (">=", 12_000),
    "HTTP, quiet tables p99 (ms)": ("<=", 10),
    "HTTP, 1,000 changes/s (requests/s)": (">=", 10_000),
    "HTTP, 1,000 changes/s p99 (ms)": ("<=", 10),
    "start to ready (s)": ("<=", 3),
    "start to ready, CPU (s)": ("<=", 5),
    "memory when ready (MB)": ("<=", 300),
    "memory after the load (MB)": ("<=", 300),
}
"""What is measured and judged: name → direction and bound."""

LARGE = 100_000
_OF_LARGER: Targets = {
    "memory when ready (MB)": ("<=", 1_000),
    "memory after the load (MB)": ("<=", 1_000),
}


def targets_of(bundles: int) -> Targets:
    """Of a cluster of so many bundles; how soon one with more than 100,000 starts is not judged."""
    if bundles <= LARGE:
        return TARGETS
    kept = {name: bound for name, bound in TARGETS.items() if not name.startswith("start")}
    return kept | _OF_LARGER


def write_tables(root: Path, bundles: int = BUNDLES) -> tuple[TablesWriter, list[Row]]:
    """The tables of a cluster, a tenth of its namespaces hashed with murmur3_32."""
    names = [f"tenant{number // 50}/ns{number % 50}" for number in range(NAMESPACES)]
    brokers = [f"broker-{number}" for number in range(BROKERS)]
    writer = TablesWriter(root)
    writer.now_ms = time.time_ns() // 1_000_000
    writer.namespaces(
        {name: ("crc32", "murmur3_32")[at % 10 == 9] for at, name in enumerate(names)}
    )
    writer.brokers(*brokers)
    rows = [row for name in names for row in owned(name, bundles // NAMESPACES, brokers)]
    for start in range(0, len(rows), IN_A_COMMIT):
        writer.batch(rows[start : start + IN_A_COMMIT])
    return writer, rows


def topics_of(rows: Sequence[Row], generator: random.Random) -> list[str]:
    names = sorted({row.bundle.rpartition("/")[0] for row in rows})
    return [
        f"persistent://{generator.choice(names)}/topic-{generator.randrange(10**6)}"
        for _ in range(TOPICS)
    ]


def best_rate(run: Callable[[], object], count: int) -> int:
    """Calls a second of this thread's CPU in the best of REPEATS rounds."""
    times = []
    for _ in range(REPEATS):
        started_s = time.thread_time()
        run()
        times.append(time.thread_time() - started_s)
    return round(count / min(times))


def measure_in_process(root: Path, topics: Sequence[str]) -> dict[str, Any]:
    """One core, one thread; the follower polls beside it does in production."""
    with LookupClient(root, CLUSTER) as client:
        client.wait_ready(60_000)
        snapshot = client.snapshot

        def one_by_one() -> None:
            lookup = snapshot.lookup
            for topic in topics:
                lookup(topic)

        gc.collect()
        index = BatchIndex(snapshot)
        return {
            "in process, one by one (lookups/s)": best_rate(one_by_one, len(topics)),
            "in process, batch of 200,000 (lookups/s)": best_rate(
                lambda: index.find(topics), len(topics)
            ),
        }


def measure_http(root: Path, writer: TablesWriter, rows: list[Row], arguments: Any) -> Any:
    """One worker, first with quiet tables, then with a stream of changes."""
    topics = topics_of(rows, random.Random(2))[:20_000]
    paths = "\n".join(f"/lookup/v2/topic/{topic.replace('://', '/')}" for topic in topics)
    started_s = time.perf_counter()
    service = LookupService(root)
    try:
        service.wait_ready()
        found: dict[str, Any] = {"start to ready (s)": round(time.perf_counter() - started_s, 2)}
        process = psutil.Process(service.process.pid)
        found["start to ready, CPU (s)"] = round(sum(process.cpu_times()[:2]), 2)
        found["memory when ready (MB)"] = round(process.memory_info().rss / 1e6)
        found["memory at most while starting (MB)"] = peak_mb(process.pid)
        load(service.port, paths, 2)
        before_s = sum(process.cpu_times()[:2])
        quiet = load(service.port, paths, arguments.seconds)
        found |= _http_figures("quiet tables", quiet)
        cpu_s = sum(process.cpu_times()[:2]) - before_s
        found["HTTP, requests/s of CPU"] = round(quiet["requests"] / cpu_s)
        changer = threading.Thread(target=_change, args=(writer, rows, arguments.seconds + 1))
        changer.start()
        changing = load(service.port, paths, arguments.seconds)
        changer.join()
        found |= _http_figures("1,000 changes/s", changing)
        found["memory after the load (MB)"] = round(process.memory_info().rss / 1e6)
        found["memory at most (MB)"] = peak_mb(process.pid)
        return found
    finally:
        service.stop()


def peak_mb(pid: int) -> int:
    """The most memory that a process has had so far (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1e3) for line in lines if line.startswith("VmHWM"))


def _http_figures(label: str, found: dict[str, Any]) -> dict[str, Any]:
    figures = {f"HTTP, {label} (requests/s)": found["per_second"]}
    for name in ("p50", "p99", "p99.9"):
        figures[f"HTTP, {label} {name} (ms)"] = found[f"{name}_ms"]
    figures[f"HTTP, {label} statuses"] = found["statuses"]
    return figures


def load(port: int, paths: str, seconds: float) -> dict[str, Any]:
    """Figures of a closed loop over some connections. paths: one a line, as many at least."""
    words = ["127.0.0.1", str(port), str(CONNECTIONS), str(seconds)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench.http_load", *words],
        input=paths,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _change(writer: TablesWriter, rows: list[Row], seconds: float) -> None:
    """A commit of 1,000 changed bundles each second, as the job makes them."""
    generator = random.Random(3)
    versions = dict.fromkeys((row.bundle for row in rows), 1)
    bundles = [row.bundle for row in rows]
    until_s = time.monotonic() + seconds
    while (started_s := time.monotonic()) < until_s:
        chosen = generator.sample(bundles, CHANGES_PER_S)
        for bundle in chosen:
            versions[bundle] += 1
        broker = f"broker-{generator.randrange(BROKERS)}"
        changed = [Row(bundle=b, version=versions[b], destination=broker) for b in chosen]
        writer.now_ms = time.time_ns() // 1_000_000
        writer.batch(changed, current=False)
        threading.Event().wait(max(0.0, started_s + 1 - time.monotonic()))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    about = {**machine(), "bundles": arguments.bundles, "connections": CONNECTIONS}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tables"
        writer, rows = write_tables(root, arguments.bundles)
        topics = topics_of(rows, random.Random(1))
        figures = measure_in_process(root, topics)
        figures |= measure_http(root, writer, rows, arguments)
    targets = targets_of(arguments.bundles)
    return {"machine": about, "figures": figures, "missed": missed(figures, targets)}


def missed(figures: dict[str, Any], targets: Targets) -> list[str]:
    """The figures that are not within their target, each with it."""
    return [
        f"{name}: wanted {direction} {bound}"
        for name, (direction, bound) in targets.items()
        if (figures[name] < bound if direction == ">=" else figures[name] > bound)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=BUNDLES, help="in 1,000 namespaces")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each HTTP load")
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args(argv)
    return finish(run(arguments), arguments.output)


if __name__ == "__main__":
    sys.exit(main())
