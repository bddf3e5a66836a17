"""A follower that loads everything, that keeps up, and that was away past the log's retention.

Production's follower on real tables: what a lookup service pays at its start (`reload`), at a
commit it follows (`commit`), and when the log that it would go on by is gone (`gap`). After each it
is right, or this fails. Usage: python -m tests.bench.bench_reload [--bundles N] [--output FILE]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_log import log_path
from jobs.adapters.delta.tables import open_table, table_path
from jobs.adapters.following.delta_follower import DeltaFollower
from lbcore.model.tables import TABLES
from tests.bench.machine import machine
from tests.support.tables.following import content, fresh, move
from tests.support.tables.lookup_tables import CLUSTER, TablesWriter, bundles_of, owned

BROKERS = tuple(f"b{number}" for number in range(100))
NAMESPACES = tuple(f"acme/n{number:03}" for number in range(100))
MISSED = 60
"""Commits while the follower is away; their number must not matter."""
REPEATS = 3
RETENTION_S = 2 * 3_600


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder) / "tables", args.bundles)
    result = {"machine": machine(), "bundles": args.bundles, "missed": MISSED, **found}
    print(json.dumps(result, indent=1))  # noqa: T201 (this is what it is for)
    if args.output:
        args.output.write_text(json.dumps(result, indent=1))
    return 0


def measure(root: Path, bundles: int) -> dict[str, Any]:
    """The three, each some times; medians."""
    writer, each = TablesWriter(root), bundles // len(NAMESPACES)
    writer.namespaces(dict.fromkeys(NAMESPACES, "crc32"))
    writer.brokers(*BROKERS)
    writer.batch([row for name in NAMESPACES for row in owned(name, each, BROKERS)])
    moved, version = bundles_of(NAMESPACES[0], each)[0], 1
    figures: dict[str, list[tuple[float, float]]] = {"reload": [], "commit": [], "gap": []}
    for _ in range(REPEATS):
        follower = DeltaFollower(root, CLUSTER)
        figures["reload"].append(timed(follower.poll))
        writer.batch([move(moved, version := version + 1, BROKERS[version % 100])])
        figures["commit"].append(timed(follower.poll))
        for _ in range(MISSED):
            writer.events([move(moved, version := version + 1, BROKERS[version % 100])])
        writer.batch([move(moved, version := version + 1, BROKERS[version % 100])])
        cut(root)
        figures["gap"].append(timed(follower.poll))
        assert (moved, version, BROKERS[version % 100]) in content(follower)
        assert content(follower) == content(fresh(root))
        assert sum(follower.counts.reloads.values()) == 2, follower.counts
    return {name: middle(times) for name, times in figures.items()}


def cut(root: Path) -> None:
    """Clean the log away, as upkeep does once its retention has passed."""
    for name in (table.name for table in TABLES):
        for file in log_path(table_path(root, name)).iterdir():
            then = time.time() - RETENTION_S
            os.utime(file, (then, then))
        table = open_table(root, name)
        table.create_checkpoint()
        table.cleanup_metadata()


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU of all threads."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began_s, time.process_time() - cpu_s


def middle(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The medians in ms."""
    half = len(times) // 2
    wall, cpu = (sorted(column)[half] * 1_000 for column in zip(*times, strict=True))
    return {"ms": round(wall, 1), "cpu_ms": round(cpu, 1)}


if __name__ == "__main__":
    sys.exit(main())
