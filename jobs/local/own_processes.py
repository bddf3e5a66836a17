"""The processes that every run on this machine has: Kafka, the streaming job, the lookup service.

Decides the order of the start, and that what dies is started again; the last process (simulated
brokers, or the bridge to a cluster) and what is shown meanwhile are the caller's.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka
from jobs.adapters.processes.processes import ProcessEvent, ProcessSpec, Supervisor, death_words
from jobs.adapters.processes.settings import load_settings
from jobs.console import note
from jobs.local import stack
from jobs.local.layout import Layout

_JOB_STARTS = "starting beside all else; its first batch comes after half a minute to two minutes"


class OwnProcesses(AbstractContextManager["OwnProcesses"]):
    """Leaving the context ends them all. overlays, assignments: what they are configured with."""

    def __init__(
        self,
        layout: Layout,
        overlays: Sequence[str],
        assignments: Sequence[str],
        lookup_port: int | None,
    ) -> None:
        """Choose ports; starts nothing. Raises MisuseError for settings that can't be."""
        config = load_settings(overlays, assignments)
        outside = config.kafka.bootstrap_servers
        self._kafka = None if outside else EmbeddedKafka(layout.kafka)
        self.supervisor = Supervisor()
        self.wiring = stack.Wiring(
            layout=layout,
            bootstrap=self._kafka.bootstrap if self._kafka else ",".join(outside),
            lookup_port=layout.lookup_port(lookup_port),
            overlays=tuple(overlays),
            assignments=tuple(assignments),
            config=config,
        )

    def __exit__(self, *_: object) -> None:
        self.supervisor.stop_all()

    def start(self, last: str, last_spec: Callable[[], ProcessSpec]) -> None:
        """One after the other; each says what it waits for. last_spec: asked once all else runs."""
        wiring, start = self.wiring, self.supervisor.start
        wiring.layout.keep_settings(wiring.overlays, wiring.assignments)
        steps = (
            ("Kafka", f"starting, it has to answer at {wiring.bootstrap}", self._start_kafka),
            ("topics", "making those that are missing", lambda: stack.ensure_topics(wiring)),
            ("streaming job", _JOB_STARTS, lambda: start(stack.job_spec(wiring))),
            (
                "lookup service",
                f"starting, it has to answer at {wiring.lookup_url}",
                lambda: start(stack.lookup_spec(wiring)),
            ),
            (last, "starting", lambda: start(last_spec())),
        )
        for name, what, step in steps:
            note(f"{name}: {what} ...")
            began_s = time.monotonic()
            step()
            if what != _JOB_STARTS:
                note(f"{name}: ready after {time.monotonic() - began_s:.1f} s")

    def _start_kafka(self) -> None:
        if self._kafka is not None:  # else the configuration names another Kafka
            self._kafka.prepare()
            self.supervisor.start(stack.kafka_spec(self._kafka))

    def news(self) -> list[str]:
        """Return the deaths and restarts since the last call, in words."""
        return [self._words(event) for event in self.supervisor.watch()]

    def _words(self, event: ProcessEvent) -> str:
        if event.what == "died":
            return death_words(event, self.wiring.layout.logs / f"{event.name}.log")
        return f"{event.name} was started again"
