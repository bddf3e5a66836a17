"""What one heavy request does to everybody's lookups: 100 brokers, 100,000 bundles.

Runs the real service, sends each kind of large request again and again beside a load of lookups,
and says for how long the event loop was held, what lookups took, and the memory's peak. The load
and the heavy readers are processes of their own on the same machine. Usage:
python -m tests.bench.bench_loop [--seconds 5] [--only TEXT] [--bundles N] [--output loop.json]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.bench.bench_lookup import load, missed
from tests.bench.calibration import machine
from tests.support.processes.lookup_service import ROOT, LookupService
from tests.support.tables.lookup_tables import Row, TablesWriter, owned

BROKERS, NAMESPACES, BUNDLES, LARGEST = 100, 500, 100_000, 50_000
TOPICS_MADE, POLICIES_MADE, PARTITIONS = 20_000, 500, 1 << 20
HELD_MAX_MS = P99_MAX_MS = 20.0
MOVES, WATCHERS, CONNECTIONS = 10_000, 1_000, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Heavy:
    """A request, and how many ask it at the same time."""

    name: str
    path: str
    body: str = ""
    at_once: int = 1


class HeldService(LookupService):
    """The service with a ticker; `report` says what was held since the last time."""

    module = "tests.bench.held_service"

    def pipes(self) -> dict[str, Any]:
        """For `report`."""
        return {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def report(self) -> dict[str, Any]:
        """The longest holds of the loop in ms, and the memory now in MB."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


def write_tables(root: Path, bundles: int) -> tuple[TablesWriter, list[Row]]:
    """A namespace of 50,000 bundles, 500 of the rest, one with four topics of 2^20 partitions."""
    brokers = [f"broker-{number}:8080" for number in range(BROKERS)]
    names = [f"tenant{number // 50}/ns{number % 50}" for number in range(NAMESPACES)]
    writer = TablesWriter(root)
    writer.now_ms = time.time_ns() // 1_000_000
    writer.namespaces(dict.fromkeys((*names, "big/ns", "wide/ns"), "crc32"))
    writer.brokers(*brokers)
    each = (bundles - LARGEST) // NAMESPACES
    sizes = {**dict.fromkeys(names, each), "big/ns": LARGEST, "wide/ns": 4}
    rows = [row for name, count in sizes.items() for row in owned(name, count, brokers)]
    for start in range(0, len(rows), MOVES):
        writer.batch(rows[start : start + MOVES], current=False)
    made = [(f"persistent://big/ns/t{number}", 0) for number in range(TOPICS_MADE)]
    made += [(f"persistent://wide/ns/w{number}", PARTITIONS) for number in range(4)]
    writer.topics(dict(made))
    writer.anti_affinity(names[:POLICIES_MADE])
    return writer, rows


def requests() -> list[Heavy]:
    """Every kind of large answer."""
    topics = [f"persistent://big/ns/topic-{number}" for number in range(10_000)]
    lookups = json.dumps({"topics": topics})
    v2 = "/admin/v2"
    return [
        Heavy(name="nothing else", path="/alive"),
        Heavy(name="GET /v1/ownership", path="/v1/ownership"),
        Heavy(name="GET /v1/ownership?limit=100000", path="/v1/ownership?limit=100000"),
        Heavy(name="GET /v1/ownership?as_of=v5", path="/v1/ownership?as_of=v5"),
        Heavy(name="GET /v1/ownership/diff?from=0", path="/v1/ownership/diff?from=0"),
        Heavy(name="POST /v1/lookups of 10,000", path="/v1/lookups", body=lookups),
        Heavy(name="ownedNamespaces", path=f"{v2}/brokers/c1/broker-7:8080/ownedNamespaces"),
        Heavy(name="policies of 50,000 bundles", path=f"{v2}/namespaces/big/ns"),
        Heavy(name="list of 20,000 topics", path=f"{v2}/persistent/big/ns"),
        Heavy(name="list of 2^22 partitions", path=f"{v2}/persistent/wide/ns"),
        Heavy(
            name="its topics in a bundle",
            path=f"{v2}/persistent/wide/ns/0x00000000_0x40000000",
        ),
        Heavy(name="broker-stats topics", path=f"{v2}/broker-stats/topics"),
        Heavy(name="broker-stats metrics", path=f"{v2}/broker-stats/metrics"),
        Heavy(name="GET /v1/policies", path="/v1/policies"),
        Heavy(name="GET /v1/namespaces", path="/v1/namespaces"),
        Heavy(name="GET /v1/status", path="/v1/status"),
        Heavy(name="GET /v1/overview", path="/v1/overview"),
        Heavy(name="GET /v1/decisions", path="/v1/decisions?limit=1000"),
        Heavy(name="GET /v1/explain/cluster", path="/v1/explain/cluster"),
        Heavy(name="GET /metrics", path="/metrics"),
        Heavy(name="4 x diff?from=0", path="/v1/ownership/diff?from=0", at_once=4),
        Heavy(name="4 x ownership", path="/v1/ownership", at_once=4),
        Heavy(name="4 x 2^22 partitions", path=f"{v2}/persistent/wide/ns", at_once=4),
    ]


def measure(service: HeldService, heavy: Heavy, seconds: float) -> dict[str, Any]:
    """One kind of request, over and over, beside the lookups."""
    ask = [str(service.port), str(heavy.at_once), str(seconds), heavy.path]
    with ExitStack() as ends:
        reader = ends.enter_context(
            subprocess.Popen(
                ["/usr/bin/nice", sys.executable, "-m", "tests.bench.heavy_readers", *ask],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert reader.stdin is not None
        reader.stdin.write(heavy.body)
        reader.stdin.close()
        found = beside(service, lambda: None, seconds)
        assert reader.stdout is not None
        return {**found, "asked": json.loads(reader.stdout.read())}


def beside(service: HeldService, act: Callable[[], None], seconds: float) -> dict[str, Any]:
    """What lookups take while something else goes on."""
    service.report()
    memory = _Memory(service)
    memory.start()
    others = threading.Thread(target=act)
    others.start()
    paths = "".join(f"/lookup/v2/topic/persistent/big/ns/t{n}\n" for n in range(1_000))
    lookups = load(service.port, paths, seconds, CONNECTIONS)
    others.join()
    return {**lookups, **memory.stop(), **service.report()}


class _Memory(threading.Thread):
    """Looks at the memory of the service and of what it has started, 20 times a second."""

    def __init__(self, service: HeldService) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(service.process.pid)
        self._stopped = threading.Event()
        self._before_mb = self._now_mb()
        self._peak_mb = self._before_mb

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.wait(0.05):
            self._peak_mb = max(self._peak_mb, self._now_mb())

    def stop(self) -> dict[str, Any]:
        """Before and peak, in MB."""
        self._stopped.set()
        self.join()
        return {"before_mb": self._before_mb, "peak_mb": self._peak_mb}

    def _now_mb(self) -> int:
        total = self._process.memory_info().rss
        for child in self._process.children(recursive=True):
            with suppress(psutil.Error):
                total += child.memory_info().rss
        return round(total / 1e6)


def commit(writer: TablesWriter, rows: Sequence[Row]) -> None:
    """One batch of 10,000 moves."""
    time.sleep(1)
    moved = [
        Row(bundle=row.bundle, version=writer.batch_id + 10, destination="broker-3:8080")
        for row in rows[:MOVES]
    ]
    writer.now_ms = time.time_ns() // 1_000_000
    writer.batch(moved, current=False)


def watched_commit(
    service: HeldService, writer: TablesWriter, rows: Sequence[Row], seconds: float
) -> dict[str, Any]:
    """A large commit while 1,000 watch."""
    words = ["127.0.0.1", str(service.port), str(WATCHERS), str(seconds)]
    command = ["/usr/bin/nice", sys.executable, "-m", "tests.bench.watch_load", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        load.stdout.readline()
        found = beside(service, lambda: commit(writer, rows), seconds)
        load.stdout.read()
    return found


def line(name: str, found: dict[str, Any]) -> str:
    """One request's figures for people."""
    held = max(found["held_ms"], default=0.0)
    times = f"{found['p50_ms']:7.2f} {found['p99_ms']:8.2f} {found['max_ms']:8.1f}"
    asked = found.get("asked", {})
    said = f"{asked.get('answers', '')} {asked.get('statuses', '')} {asked.get('longest_s', '')}"
    memory = f"{found['before_mb']:6} {found['peak_mb']:6}"
    return f"{name:34} {held:8.1f} {times} {memory} {found['per_second']:7}  {said}"


HEAD = (
    f"{'beside lookups':34} {'held ms':>8} {'p50 ms':>7} {'p99 ms':>8} {'max ms':>8} {'MB':>6} "
    f"{'peak':>6} {'look./s':>7}  answers, statuses, longest s"
)


def say(text: str) -> None:
    """At once, for people."""
    print(text, flush=True)  # noqa: T201 (what the user reads)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures; prints each as it comes."""
    about = machine()
    found: dict[str, Any] = {}
    say(f"{json.dumps(about)}\n{HEAD}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tables"
        writer, rows = write_tables(root, arguments.bundles)
        service = HeldService(root, "--poll-ms", "100")
        try:
            service.wait_ready()
            seconds = arguments.seconds
            for heavy in requests():
                if arguments.only in heavy.name:
                    found[heavy.name] = measure(service, heavy, seconds)
                    say(line(heavy.name, found[heavy.name]))
            for name, act in {
                "commit of 10,000 moves": lambda: beside(
                    service, lambda: commit(writer, rows), seconds
                ),
                "the same, 1,000 watching": lambda: watched_commit(service, writer, rows, seconds),
            }.items():
                if arguments.only in name:
                    found[name] = act()
                    say(line(name, found[name]))
        finally:
            service.stop()
    return {"machine": about, "figures": found, "missed": _missed(found)}


def _missed(found: dict[str, Any]) -> list[str]:
    figures = {f"{name}, p99 (ms)": one["p99_ms"] for name, one in found.items()}
    figures |= {f"{name}, held (ms)": max(one["held_ms"]) for name, one in found.items()}
    return missed(figures, dict.fromkeys(figures, ("<=", P99_MAX_MS)))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--only", default="", help="requests whose name has this text")
    parser.add_argument("--bundles", type=int, default=BUNDLES, help="more than 50,000")
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args(argv)
    found = run(arguments)
    for name in found["missed"]:
        say(f"MISSED {name}")
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
