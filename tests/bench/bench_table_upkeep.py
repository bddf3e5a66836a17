"""`python -m tests.bench.bench_table_upkeep`: what days of commits leave of the tables' speed.

A cluster in virtual time (10 brokers, 200 bundles, a load that wanders, a bundle moved a minute
by hand), whose batches go through the job's own sink into real tables, with its upkeep as often as
the job gives it a turn. The day is over in minutes, so what goes by age is given its age: each file
of a log gets the time that its commit would have, and from the second hour on removed files are
kept for as much shorter as hours pass quicker (in an object store, where nothing can be given an
age, logs as well). Measured hour by hour: the commits of a batch, the starts of a follower and of
a job, the files of the tables, and memory.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.fs as arrow_fs
from deltalake import DeltaTable

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_log import log_path
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import FILE_RETENTION, interval_s, table_path, table_properties
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.spark.batch_sink import BatchSink
from jobs.adapters.spark.checkpoint import Manifest
from jobs.adapters.spark.recovery import complete_last_batch, rebuilt_states
from lbcore.balancer.effects import Effect
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.model.bundles import even_boundaries
from lbcore.model.names import format_bundle
from lbcore.model.tables import BUNDLE_OWNERSHIP, TABLES
from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.scenario_run import schedule_events
from lbcore.sim.scenario.parse import parse_scenario
from tests.bench.calibration import machine
from tests.support.tables.object_store import object_store
from tests.support.tables.small_batches import EffectsFrame

CLUSTER, NAMESPACE, BROKERS, BUNDLES = "local", "t/n", 10, 200
HOUR_MS = 3_600_000
SHOWN = (1, 2, 4, 6, 8, 12, 16, 20)
TRIGGER_MS = 5_000
_STORE = "s3://"
_LOG_KEPT = "delta.logRetentionDuration"
_WAVE_MIN, _WAVE_BUNDLES = 2, 20
_REPEATS = 5
_TIMES_KEPT = 5_000
"""Versions of a table whose times are known: more than half an hour's log has."""


def scenario_of(hours: int) -> str:
    """Even load, a wave that goes on every 2 minutes, and a bundle moved by hand every minute."""
    lines = [f"brokers {BROKERS}", f"namespace {NAMESPACE} bundles={BUNDLES} topics=2"]
    lines += [f"set pipeline.trigger_ms={TRIGGER_MS}"]
    lines += [f"load {NAMESPACE} even 40%"]
    for number in range(hours * 60 // _WAVE_MIN):
        first = number * _WAVE_BUNDLES % (BUNDLES - _WAVE_BUNDLES)
        wave = f"3pt each bundles={first}-{first + _WAVE_BUNDLES - 1}"
        lines += [f"load {NAMESPACE} even {wave} from {number * _WAVE_MIN}m for {_WAVE_MIN}m"]
    bundles = [format_bundle(NAMESPACE, *ends) for ends in pairwise(even_boundaries(BUNDLES))]
    for number in range(1, hours * 60):
        # anew each time round the bundles, or all would soon be where they are asked to be
        to = (number + number // BUNDLES) % BROKERS + 1
        one = f"bundle={bundles[number * 7 % BUNDLES]} destination=b{to}"
        lines += [f"at {number * 60 + 3}s command unload_bundle {one}"]
    return "\n".join([*lines, f"run {hours}h"])


class Nobody:
    """A publisher that sends nothing."""

    def publish(self, messages: object) -> None:
        """Keep quiet."""


class TimedWriter(TableWriter):
    """took_s, cpu_s: of all commits since they were set to 0. written: to which tables."""

    def __init__(self, root: TablePlace) -> None:
        super().__init__(root)
        self.took_s = self.cpu_s = 0.0
        self.written: set[str] = set()

    def write(
        self, name: str, rows: pa.Table, batch_id: int, metadata: Mapping[str, Any]
    ) -> DeltaTable | None:
        started, cpu_s = time.perf_counter(), time.process_time()
        written = super().write(name, rows, batch_id, metadata)
        self.took_s += time.perf_counter() - started
        self.cpu_s += time.process_time() - cpu_s
        self.written.add(name)
        return written


@dataclass
class Day:
    """The cluster's tables, one batch after another."""

    root: TablePlace
    engine: Engine
    config: Config
    tell: Callable[[Mapping[str, Any]], None]
    batches: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    times: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    hour: int = 0

    def __post_init__(self) -> None:
        self.writer = TimedWriter(self.root)
        self.writer.claim()
        self.sink = BatchSink(
            writer=self.writer,
            publisher=Nobody(),
            claimed=Manifest(code_version="c", config_version="f", scorer_groups=1),
            heartbeat_ms=self.config.pipeline.heartbeat_commit_ms,
            log=lambda _: None,
        )
        self.sink.use_query("q")
        files_max = self.config.pipeline.upkeep_files_max
        self.upkeep = TableUpkeep(self.writer, interval_ms=1, files_max=files_max)
        self.follower = DeltaFollower(self.root, CLUSTER)
        self.begun_ms = self.due_ms = self.engine.clock.now_ms
        self.turn = 0
        self.begun_s = time.perf_counter()

    def take(self, effects: Sequence[Effect]) -> None:
        """A batch: its commits, the follower's look, and a turn of upkeep when it is due."""
        now_ms, writer = self.engine.clock.now_ms, self.writer
        writer.took_s = writer.cpu_s = 0.0
        writer.written.clear()
        self.sink(EffectsFrame(effects, CLUSTER), self.engine.job.batches)
        if BUNDLE_OWNERSHIP.name in writer.written:
            self.batches.append(writer.took_s)
            self.cpu.append(writer.cpu_s)
        self.follower.poll()
        self._note_times(now_ms)
        if now_ms >= self.due_ms:
            self.due_ms += self.config.pipeline.upkeep_interval_ms
            self._look_after(TABLES[self.turn % len(TABLES)].name, now_ms)
            self.turn += 1
        if now_ms >= self.begun_ms + (self.hour + 1) * HOUR_MS:
            self._end_hour()

    def _look_after(self, name: str, now_ms: int) -> None:
        if isinstance(self.root, Path):
            self._age_log(name, now_ms)
        self.upkeep.look_after(name, now_ms)
        self._note_times(now_ms)

    def _note_times(self, now_ms: int) -> None:
        for table in TABLES:
            version = self.writer.version(table.name)
            known = self.times[table.name]
            if not known or known[-1][0] < version:
                known.append((version, now_ms))

    def _age_log(self, name: str, now_ms: int) -> None:
        """Give each file of a log the age that it would have."""
        known, real_s = self.times[name], time.time()
        for path in log_path(table_path(self.root, name)).iterdir():
            version = re.match(r"(\d{20})\.", path.name)
            if version is None:
                continue
            at = min(bisect_left(known, (int(version[1]), 0)), len(known) - 1)
            then_s = real_s - (now_ms - known[at][1]) / 1_000
            os.utime(str(path), (then_s, then_s))

    def _end_hour(self) -> None:
        self.hour += 1
        if self.hour in SHOWN or self.hour % 24 == 0:
            self.tell(self._figures())
            self._shorten_retention((time.perf_counter() - self.begun_s) / 3_600 / self.hour)
        self.follower.poll()
        self._forget()
        self.batches.clear()
        self.cpu.clear()

    def _forget(self) -> None:
        """What a run's report would be made of, and times that are older than a log."""
        recorder = self.engine.recorder
        for kept in (recorder.samples, recorder.moves, recorder.splits, recorder.decisions):
            kept.clear()
        recorder.commands.clear()
        recorder.reports.clear()
        del self.engine.coverage.changes[:-1]
        for known in self.times.values():
            del known[:-_TIMES_KEPT]

    def _shorten_retention(self, factor: float) -> None:
        """By as much as an hour of here is shorter than one; in a store, of logs as well."""
        names = (FILE_RETENTION,) if isinstance(self.root, Path) else (FILE_RETENTION, _LOG_KEPT)
        for table in TABLES:
            altered = {}
            for name in names:
                seconds = max(1, round(interval_s(table_properties(table)[name]) * factor))
                altered[name] = f"interval {seconds} seconds"
            self.writer.refreshed(table.name).alter.set_table_properties(altered)

    def _figures(self) -> dict[str, Any]:
        """Of the hour that has ended, and of the tables as they lie there."""
        tables = [self.writer.refreshed(table.name) for table in TABLES]
        files = stored(self.root)
        return {
            "hour": self.hour,
            "batch_ms": spread(self.batches),
            "batch_cpu_ms": spread(self.cpu),
            "follower_start_cpu_ms": spread(cpu_s_of(self._start_follower)),
            "job_start_cpu_ms": spread(cpu_s_of(self._start_job)),
            "data_files": sum(len(table.file_uris()) for table in tables),
            "files": len(files),
            "mb": round(sum(files.values()) / 1e6, 1),
            "own_mb": round(psutil.Process().memory_info().rss / 1e6, 1),
        }

    def _start_follower(self) -> None:
        follower = DeltaFollower(self.root, CLUSTER)
        follower.poll()
        assert follower.view is not None
        assert follower.view.snapshot.bundle_count == BUNDLES

    def _start_job(self) -> None:
        """What a start without a checkpoint reads, until it has the cluster's state."""
        writer = TableWriter(self.root)
        complete_last_batch(writer)
        assert list(rebuilt_states(self.config, writer))


def stored(root: TablePlace) -> Mapping[str, int]:
    if isinstance(root, Path):
        return {str(path): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    store = arrow_fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
    place = root.uri.removeprefix(_STORE)
    found = store.get_file_info(arrow_fs.FileSelector(place, recursive=True))
    return {one.path: one.size for one in found if one.is_file}


def cpu_s_of(call: Callable[[], None]) -> list[float]:
    took = []
    for _ in range(_REPEATS):
        before = time.process_time()
        call()
        took.append(time.process_time() - before)
    return took


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile in ms; 0 of nothing."""
    if not seconds:
        return {"median": 0.0, "p95": 0.0}
    in_order = sorted(seconds)
    high = in_order[min(len(in_order) - 1, int(0.95 * len(in_order)))]
    return {"median": round(statistics.median(in_order) * 1e3, 1), "p95": round(high * 1e3, 1)}


def main() -> int:
    """Write a line for some of the hours, and all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--store", action="store_true", help="in an object store, moto's")
    args = parser.parse_args()
    hours: list[Mapping[str, Any]] = []
    found = {"machine": machine(), "brokers": BROKERS, "bundles": BUNDLES, "hours": hours}

    def tell(figures: Mapping[str, Any]) -> None:
        hours.append(figures)
        sys.stdout.write(f"{json.dumps(figures)}\n")
        sys.stdout.flush()
        if args.output:
            args.output.write_text(json.dumps(found, indent=1), encoding="utf-8")

    scenario = parse_scenario(scenario_of(args.hours))
    config = parse_assignments(Config(), scenario.settings)
    with contextlib.ExitStack() as ends:
        if args.store:
            root = table_place(ends.enter_context(object_store()).uri)
        else:
            root = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        engine = Engine(scenario, config)
        schedule_events(engine)
        engine.when_committed = Day(root, engine, config, tell).take
        engine.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
