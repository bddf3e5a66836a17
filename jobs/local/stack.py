"""The processes of a local run: how each is started, and when it is ready.

Users of Kafka end before Kafka. `jobs.adapters.processes.processes` keeps them alive.
"""

import dataclasses
import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.adapters.kafka.command_client import new_command
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka
from jobs.adapters.processes.processes import (
    ProcessSpec,
    Supervisor,
    exit_message,
    last_output,
)
from jobs.adapters.processes.settings import load_settings
from jobs.console import CommandError, note
from jobs.local.layout import CLUSTER, Layout, Size
from lbcore.model.bundles import HashFunction
from lbcore.sim.load.load import LoadShape, NamespaceLoad
from lbcore.wire.format import format_message
from lbcore.wire.kinds.namespace_commands import CreateNamespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Crash of a broker, by the time after the streaming job's first batch."""

    broker: str
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of one run.

    for_ms: None = until it is stopped; kills: in the order of time.
    """

    load: LoadShape
    speed: float
    kills: tuple[Kill, ...]
    for_ms: int | None
    is_headless: bool
    lookup_port: int | None
    overlays: tuple[str, ...]
    assignments: tuple[str, ...]
    lookups_per_s: float


_SEND_TIMEOUT_MS = 20_000
_COMMAND_TIMEOUT_MS = 600_000  # the job may have to be started first


def namespaces_of(size: Size) -> tuple[NamespaceLoad, ...]:
    """Return the run's namespaces; the first ones may have one bundle more."""
    functions = (HashFunction.CRC32, HashFunction.MURMUR3_32)
    share, rest = divmod(size.bundles, size.namespaces)
    return tuple(
        NamespaceLoad(
            name=f"demo/{functions[index % 2].value.replace('_', '-')}-{index + 1}",
            hash_function=functions[index % 2],
            bundles=share + (index < rest),
        )
        for index in range(size.namespaces)
    )


def create_namespaces(address: KafkaAddress, namespaces: Sequence[NamespaceLoad]) -> None:
    """Send a command per namespace with a constant id: repeating it changes nothing.

    Waits until Kafka has them, else raises CommandError.
    """
    sender = Sender(address, "run-local")
    try:
        for namespace in namespaces:
            command = new_command(
                CLUSTER,
                CreateNamespace(
                    namespace=namespace.name,
                    hash=namespace.hash_function,
                    bundles=namespace.bundles,
                ),
                command_id=f"run-local/create/{namespace.name}",
                principal="run-local",
                timeout_ms=_COMMAND_TIMEOUT_MS,
            )
            topic, key, value = format_message(command)
            sender.send(topic, key.decode(), value)
        is_sent = sender.flush(_SEND_TIMEOUT_MS) and sender.not_delivered == 0
    finally:
        sender.close()
    if not is_sent:
        raise CommandError(
            "the commands that create the namespaces were not delivered",
            why=f"Kafka at {address.bootstrap} did not acknowledge them in {_SEND_TIMEOUT_MS} ms",
            next_step="read the logs of Kafka in the state folder, then run the same command again",
        )


ROOT = Path(__file__).resolve().parents[2]
JOB, LOOKUP, FLEET, BRIDGE = "balance_cluster", "serve_lookup", "run_fleet", "bridge"
_KAFKA_GRACE_MS = 3_000
_GRACE_MS = 4_000
_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def answers_http(port: int, path: str) -> bool:
    """True if the loopback port answers HTTP within 1 s, with any status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", path)
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


_JOB_STARTS = "starting beside all else; its first batch comes after half a minute to two minutes"


class RunProcesses(AbstractContextManager["RunProcesses"]):
    """All processes of a run; they end with the context.

    config: the result of overlays and assignments. bootstrap: Kafka's address. lookup_url: base URL
    of topic lookups.
    """

    def __init__(
        self,
        layout: Layout,
        overlays: Sequence[str],
        assignments: Sequence[str],
        lookup_port: int | None,
    ) -> None:
        """Choose ports; start nothing. Raises MisuseError for impossible settings."""
        self.layout = layout
        self.config = load_settings(overlays, assignments)
        outside = self.config.kafka.bootstrap_servers
        self._kafka = None if outside else EmbeddedKafka(layout.kafka)
        self.bootstrap = self._kafka.bootstrap if self._kafka else ",".join(outside)
        self._lookup_port = layout.lookup_port(lookup_port)
        self.lookup_url = f"http://127.0.0.1:{self._lookup_port}"
        self.supervisor = Supervisor()
        self._overlays, self._assignments = overlays, assignments
        self._config_arguments = [
            *(f"--conf={overlay}" for overlay in overlays),
            *(f"--set={assignment}" for assignment in assignments),
        ]

    def __exit__(self, *_: object) -> None:
        self.supervisor.stop_all()

    def start(self, last: str, last_spec: Callable[[], ProcessSpec]) -> None:
        """Start them in order, each with a notice.

        last: name of the last process. last_spec: called once the others run.
        """
        self.layout.save_settings(self._overlays, self._assignments)
        start = self.supervisor.start
        steps = (
            ("Kafka", f"starting, it has to answer at {self.bootstrap}", self._start_kafka),
            ("topics", "making those that are missing", self._ensure_topics),
            ("streaming job", _JOB_STARTS, lambda: start(self._job_spec())),
            (
                "lookup service",
                f"starting, it has to answer at {self.lookup_url}",
                lambda: start(self._lookup_spec()),
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
            # ends last, and is killed after 3 s: the next start recovers what is not flushed
            spec = dataclasses.replace(self._kafka.spec(), grace_ms=_KAFKA_GRACE_MS)
            self.supervisor.start(spec)

    def _ensure_topics(self) -> None:
        """Make or check Ballast's topics; raises CommandError with the verb's message."""
        command = [sys.executable, "-m", "jobs.cli", "topics", "ensure"]
        ended = subprocess.run(  # noqa: S603 (our own verb)
            [*command, "--bootstrap", self.bootstrap, *self._config_arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise CommandError(
                "the topics could not be made",
                why=last_output(ended.stdout + ended.stderr),
                next_step=f"read {self.layout.kafka / 'logs'}, then run the same command again",
            )

    def _job_spec(self) -> ProcessSpec:
        arguments = [
            *("--bootstrap", self.bootstrap),
            *("--state-dir", str(self.layout.job)),
            *("--tables", str(self.layout.tables)),
            *("--log", str(self.layout.batches)),
            *("--metrics-port", "0"),
            *("--metrics-port-file", str(self.layout.metrics_port)),
            *self._config_arguments,
        ]
        return self._python(JOB, arguments)

    def _lookup_spec(self) -> ProcessSpec:
        """Return the lookup service, ready once it answers, even without tables."""
        arguments = [
            *("--tables", str(self.layout.tables)),
            *("--cluster", CLUSTER),
            *("--port", str(self._lookup_port)),
            *("--bootstrap", self.bootstrap),
            *self._config_arguments,
        ]
        return self._python(LOOKUP, arguments, lambda: answers_http(self._lookup_port, "/health"))

    def bridge_spec(self, arguments: Sequence[str]) -> ProcessSpec:
        """Return the bridge to a Pulsar cluster. arguments: of the connection."""
        # it reads the run's configuration from the folder, as every verb does
        place = ("--state-dir", str(self.layout.root), "--cluster", CLUSTER)
        spec = self._python("cli", ["bridge", "pulsar", *arguments, *place])
        log_path = self.layout.logs / f"{BRIDGE}.log"
        return dataclasses.replace(spec, name=BRIDGE, log_path=log_path)

    def fleet_spec(
        self, size: Size, options: RunOptions, is_ready: Callable[[], bool]
    ) -> ProcessSpec:
        """Remove the old port file; return the process of all simulated brokers."""
        layout, config = self.layout, self.config
        layout.fleet_port.unlink(missing_ok=True)
        arguments = [
            *("--bootstrap", self.bootstrap),
            *("--topic-prefix", config.pipeline.topic_prefix),
            *("--cluster", CLUSTER),
            *("--state-dir", str(layout.fleet)),
            *("--port-file", str(layout.fleet_port)),
            *("--brokers", str(size.brokers)),
            *("--load", options.load.value),
            *("--speed", str(options.speed)),
            *("--heartbeat-interval-ms", str(config.agent.heartbeat_interval_ms)),
            *("--report-interval-ms", str(config.signals.report_max_interval_ms)),
            *("--bundle-report-interval-ms", str(config.signals.bundle_report_interval_ms)),
        ]
        for one in namespaces_of(size):
            arguments += ["--namespace", f"{one.name}:{one.hash_function.value}:{one.bundles}"]
        return self._python(FLEET, arguments, is_ready)

    def _python(
        self, name: str, arguments: Sequence[str], is_ready: Callable[[], bool] | None = None
    ) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            command=(sys.executable, "-m", f"jobs.{name}", *arguments),
            log_path=self.layout.logs / f"{name}.log",
            environment=_ENVIRONMENT,
            is_ready=is_ready,
            grace_ms=_GRACE_MS,
        )

    def new_messages(self) -> list[str]:
        """Return sentences on deaths and restarts since the last call."""
        return [
            exit_message(event, self.layout.logs / f"{event.name}.log")
            if event.what == "died"
            else f"{event.name} was started again"
            for event in self.supervisor.watch()
        ]


_POLL_S = 0.2


def run_attached(
    processes: RunProcesses,
    bridge_arguments: Callable[[], Sequence[str]],
    stop: threading.Event,
    show: Callable[[], None],
) -> None:
    """Start, watch until stopped, and end all.

    bridge_arguments: called once all else runs, because it may take Pulsar over. show: called
    repeatedly. Raises CommandError when the start fails.
    """
    with processes:
        processes.start("bridge", lambda: processes.bridge_spec(bridge_arguments()))
        while not stop.wait(_POLL_S):
            for message in processes.new_messages():
                note(message)
            show()
        note("stopping")
        processes.supervisor.begin_stop(JOB, BRIDGE)
