"""A run beside a real cluster: Kafka, the streaming job, the lookup service, and the bridge.

Decides the order of the start and what becomes of processes that die (started again); what is shown
meanwhile is the caller's. Source: ours.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka
from jobs.adapters.processes.processes import Supervisor, death_words
from jobs.adapters.processes.settings import load_settings
from jobs.console import note
from jobs.local import stack
from jobs.local.layout import Layout

_POLL_S = 0.2


class AttachedRun:
    """The processes of one run. overlays, assignments: what they are all configured with."""

    def __init__(
        self,
        layout: Layout,
        overlays: Sequence[str],
        assignments: Sequence[str],
        port: int | None,
    ) -> None:
        """Choose ports; starts nothing."""
        config = load_settings(overlays, assignments)
        outside = config.kafka.bootstrap_servers
        self._kafka = None if outside else EmbeddedKafka(layout.kafka)
        self._supervisor = Supervisor()
        self.wiring = stack.Wiring(
            layout=layout,
            bootstrap=self._kafka.bootstrap if self._kafka else ",".join(outside),
            lookup_port=layout.lookup_port(port),
            overlays=tuple(overlays),
            assignments=tuple(assignments),
            config=config,
        )

    def run(
        self,
        bridge: Callable[[], Sequence[str]],
        stop: threading.Event,
        show: Callable[[], None],
    ) -> None:
        """Start, watch until told to stop, and end it all.

        bridge: asked for the bridge's words once all else runs; what must not be done by half is
        done there. show: called again and again. Raises CommandError when the start fails.
        """
        wiring = self.wiring
        wiring.layout.keep_settings(wiring.overlays, wiring.assignments)
        with ExitStack() as cleanup:
            cleanup.callback(self._supervisor.stop_all)
            self._start(bridge)
            while not stop.wait(_POLL_S):
                for event in self._supervisor.watch():
                    died = event.what == "died"
                    log = wiring.layout.logs / f"{event.name}.log"
                    note(death_words(event, log) if died else f"{event.name} was started again")
                show()
            note("stopping")
            self._supervisor.begin_stop(stack.JOB, stack.BRIDGE)

    def _start(self, bridge: Callable[[], Sequence[str]]) -> None:
        steps = (
            ("Kafka", self._start_kafka),
            ("topics", lambda: stack.ensure_topics(self.wiring)),
            ("streaming job", lambda: self._supervisor.start(stack.job_spec(self.wiring))),
            ("lookup service", lambda: self._supervisor.start(stack.lookup_spec(self.wiring))),
            ("bridge", lambda: self._supervisor.start(stack.bridge_spec(self.wiring, bridge()))),
        )
        for name, step in steps:
            began_s = time.monotonic()
            step()
            note(f"{name}: ready after {time.monotonic() - began_s:.1f} s")

    def _start_kafka(self) -> None:
        if self._kafka is not None:  # else the configuration names another Kafka
            self._kafka.prepare()
            self._supervisor.start(stack.kafka_spec(self._kafka))
