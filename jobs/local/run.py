"""One local run from its start to its summary, second by second.

At the end the prober stops first, then the processes, Kafka last.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from jobs.adapters.delta.rows import PRESENT
from jobs.adapters.delta.table_scan import is_delta, scan
from jobs.adapters.delta.tables import open_table
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, note
from jobs.local import stack
from jobs.local.fleet_watch import FleetWatch, crash_broker
from jobs.local.job_log import JobLog, LineTail
from jobs.local.layout import Layout, Size
from jobs.local.prober import Prober
from jobs.local.stack import (
    RunOptions,
    RunProcesses,
    create_namespaces,
    namespaces_of,
)
from jobs.local.status import (
    RunFacts,
    RunStatus,
    broker_rows,
    bundles_served,
    imbalance_of,
    summarise,
)
from jobs.local.terminal import Show
from lbcore.explain.job_state import (
    NEVER_MS,
    JobContext,
    JobState,
    JobStatus,
    job_alarms,
    judge_job,
)
from lbcore.model.tables import NAMESPACES, OWNERSHIP_EVENTS
from lbcore.model.times import duration
from lbcore.sim.summary import percentile

_POLL_S = 0.1
_SECOND_MS = 1_000
_LOOKUP_TIMEOUT_MS = 3_000
_EVENTS_KEPT = 200
_RECENT_BATCHES = 60
_FLEET_OLD_MS = 5_000


Display = Callable[[RunProcesses], AbstractContextManager[Show]]


class LocalRun:
    """All processes of one run, its observers, and its clock."""

    def __init__(self, layout: Layout, size: Size, options: RunOptions) -> None:
        """Choose ports; start nothing."""
        self._layout, self._size, self._options = layout, size, options
        self._namespaces = namespaces_of(size)
        self.is_started = False
        self._processes = RunProcesses(
            layout, options.overlays, options.assignments, options.lookup_port
        )
        self._address = KafkaAddress(
            bootstrap=self._processes.bootstrap,
            topic_prefix=self._processes.config.pipeline.topic_prefix,
        )
        # Kafka is asked for in its own thread: the view must not wait for one that hangs
        self._watch_kafka = KafkaWatch(self._address, "the run", tell=self._add_event)
        self._job = JobLog()
        self._job_lines = LineTail(layout.batches, from_end=True)
        self._fleet = FleetWatch(layout)
        self._prober: Prober | None = None
        self._events: list[str] = []
        self._kills = list(options.kills)
        self._started_ms = 0
        self._first_batch_ms: int | None = None

    def run(self, stop: threading.Event, display: Display) -> dict[str, Any]:
        """Start, watch, stop; return the summary. Raises CommandError if the start fails.

        display: shows the run once all is started.
        """
        self._started_ms = wall_ms()
        with self._processes:
            self._processes.start(
                "simulated brokers",
                lambda: self._processes.fleet_spec(self._size, self._options, self._fleet.is_ready),
            )
            self.is_started = True
            self._watch_kafka.start()
            with display(self._processes) as show:
                self._watch(stop, show)
            ended_ms = wall_ms()
            self._watch_kafka.close()
            restarts = self._processes.supervisor.restarts()
            note("stopping")
            self._processes.supervisor.begin_stop(stack.JOB, stack.FLEET)
            probe = self._prober.stop() if self._prober else None
        return summarise(
            RunFacts(
                arguments={**asdict(self._size), **asdict(self._options)},
                started_ms=self._first_batch_ms or self._started_ms,
                ended_ms=ended_ms,
                bundles=self._size.bundles,
                job=self._job,
                samples=self._fleet.samples,
                opened=self._fleet.opened,
                owned=self._prober.owned() if self._prober else [],
                crashes=self._fleet.crashes,
                probe=probe,
                restarts=restarts,
                events=self._events,
            )
        )

    def _watch(self, stop: threading.Event, show: Show) -> None:
        due_ms = wall_ms()
        for_ms = math.inf if self._options.for_ms is None else self._options.for_ms
        while not stop.is_set() and (self._first_batch_ms is None or self._elapsed_ms() < for_ms):
            for message in self._processes.new_messages():
                self._add_event(message)
            while self._job.new_messages:
                self._add_event(self._job.new_messages.pop(0))
            self._carry_out_kills()
            if wall_ms() >= due_ms:
                due_ms = max(due_ms + _SECOND_MS, wall_ms())
                show(self._sample())
            stop.wait(_POLL_S)

    def _sample(self) -> RunStatus:
        """Sample everything for this second."""
        self._job.fold(self._job_lines.read())
        if self._first_batch_ms is None and self._job.batches:
            self._first_batch_ms = wall_ms()
            # not earlier: commands would wait for the slow first batch
            create_namespaces(self._address, self._namespaces)
        sample, judged = self._fleet.sample(), self._job_state()
        if self._prober is None and self._first_batch_ms is not None:
            self._prober = self._start_prober()
        job = self._job
        served = bundles_served(sample, self._fleet.brokers, job)
        bundles = job.live_bundles() or self._size.bundles
        return RunStatus(
            elapsed_ms=self._elapsed_ms(),
            phase=self._phase(judged, is_all_open=served >= bundles),
            job=judged.message() if job.now_ms else "",
            troubles=tuple(self._troubles(judged)),
            brokers=broker_rows(self._fleet.brokers, job),
            imbalance=imbalance_of(sample, job.groups()),
            bundles_open=served,
            bundles=bundles,
            in_flight=job.in_flight,
            batches=job.batches,
            cycle_p50_ms=percentile(job.cycle_durations_ms[-_RECENT_BATCHES:], 50),
            cycle_p95_ms=percentile(job.cycle_durations_ms[-_RECENT_BATCHES:], 95),
            moves=job.moves,
            last_move=job.last_move,
            lookups=self._prober.counts() if self._prober else None,
            restarts=self._processes.supervisor.restarts(),
            events=tuple(self._events),
        )

    def _start_prober(self) -> Prober | None:
        """Start the prober once the namespaces exist."""
        tables = self._layout.tables
        events = tables / OWNERSHIP_EVENTS.name
        if not (is_delta(events) and is_delta(tables / NAMESPACES.name)):
            return None
        table = open_table(tables, NAMESPACES.name)
        existing = scan(table, ("namespace",), PRESENT[NAMESPACES.name])["namespace"].to_pylist()
        if not {namespace.name for namespace in self._namespaces} <= set(existing):
            return None
        prober = Prober(
            self._processes.lookup_url,
            events,
            {namespace.name: namespace.hash_function for namespace in self._namespaces},
            lookups_per_s=self._options.lookups_per_s,
            timeout_ms=_LOOKUP_TIMEOUT_MS,
        )
        prober.start()
        return prober

    def _troubles(self, judged: JobState) -> Iterator[str]:
        """Yield the current problems, the likely root cause first."""
        if judged.around.kafka_trouble or not judged.is_present:
            yield from job_alarms(judged)
            return
        silence = self._job.silent_now(wall_ms())
        yield from (silence.many,) if silence.many else silence.suspected
        if self._fleet.samples:
            age_ms = wall_ms() - self._fleet.samples[-1].at_ms
            if age_ms > _FLEET_OLD_MS:
                yield (
                    "the simulated brokers' process does not answer: "
                    f"loads as of {duration(age_ms)} ago"
                )

    def _phase(self, judged: JobState, *, is_all_open: bool) -> str:
        if self._watch_kafka.trouble:
            return self._watch_kafka.trouble
        if self._first_batch_ms is None:
            since = duration((wall_ms() - self._started_ms) // _SECOND_MS * _SECOND_MS)
            return f"waiting for the job's first batch, {since} since the start"
        if judged.word is not JobStatus.AT_WORK:
            return f"the job is {judged.word.value}, and is started again by itself if it has ended"
        if self._job.silent_now(wall_ms()).many:
            return "many brokers are silent"
        return "running" if is_all_open else "opening bundles"

    def _job_state(self) -> JobState:
        """Judge the job by the lines of its batches, at least one per commit."""
        times_ms = (self._job.now_ms, self._job.cycled_ms)
        wrote, cycled = (wall_ms() - at_ms if at_ms else NEVER_MS for at_ms in times_ms)
        around = JobContext(
            kafka_trouble=self._watch_kafka.trouble,
            log=str(self._layout.logs / f"{stack.JOB}.log"),
            is_supervised=True,
        )
        return judge_job(wrote, cycled, self._processes.config.pipeline, around=around)

    def _elapsed_ms(self) -> int:
        return 0 if self._first_batch_ms is None else wall_ms() - self._first_batch_ms

    def _carry_out_kills(self) -> None:
        if self._first_batch_ms is None or not self._kills:
            return
        if self._elapsed_ms() >= self._kills[0].after_ms:
            broker = self._kills.pop(0).broker
            try:
                crash = crash_broker(self._layout, broker)
            except CommandError as error:
                self._add_event(f"{broker} was not killed: {error.why}")
            else:
                self._add_event(f"killed {broker}, which served {len(crash.bundles)} bundles")

    def _add_event(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        self._events = [*self._events, f"{stamp} {text}"][-_EVENTS_KEPT:]
