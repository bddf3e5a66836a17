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
from lbcore.config.tree import Config
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Shared settings of a run's processes.

    config: the result of overlays and assignments.
    """

    layout: Layout
    bootstrap: str
    lookup_port: int
    overlays: tuple[str, ...]
    assignments: tuple[str, ...]
    config: Config

    @property
    def lookup_url(self) -> str:
        """Base URL of topic lookups."""
        return f"http://127.0.0.1:{self.lookup_port}"

    def config_arguments(self) -> tuple[str, ...]:
        """Return the arguments for the same configuration."""
        overlays = (("--conf", overlay) for overlay in self.overlays)
        assignments = (("--set", assignment) for assignment in self.assignments)
        return tuple(word for pair in (*overlays, *assignments) for word in pair)


def job_spec(settings: StackSettings) -> ProcessSpec:
    """Return the streaming job's process."""
    layout = settings.layout
    arguments = [
        *("--bootstrap", settings.bootstrap),
        *("--state-dir", str(layout.job)),
        *("--tables", str(layout.tables)),
        *("--log", str(layout.batches)),
        *("--metrics-port", "0"),
        *("--metrics-port-file", str(layout.metrics_port)),
        *settings.config_arguments(),
    ]
    return _python(JOB, layout, arguments)


def lookup_spec(settings: StackSettings) -> ProcessSpec:
    """Return the lookup service, ready once it answers, even without tables."""
    arguments = [
        *("--tables", str(settings.layout.tables)),
        *("--cluster", CLUSTER),
        *("--port", str(settings.lookup_port)),
        *("--bootstrap", settings.bootstrap),
        *settings.config_arguments(),
    ]
    return _python(
        LOOKUP,
        settings.layout,
        arguments,
        is_ready=lambda: answers_http(settings.lookup_port, "/health"),
    )


def bridge_spec(settings: StackSettings, arguments: Sequence[str]) -> ProcessSpec:
    """Return the bridge to a Pulsar cluster. arguments: of the connection."""
    layout = settings.layout
    # it reads the run's configuration from the folder, as every verb does
    arguments = [
        "bridge",
        "pulsar",
        *arguments,
        "--state-dir",
        str(layout.root),
        "--cluster",
        CLUSTER,
    ]
    return dataclasses.replace(
        _python("cli", layout, arguments), name=BRIDGE, log_path=layout.logs / f"{BRIDGE}.log"
    )


def fleet_spec(
    settings: StackSettings, size: Size, options: RunOptions, is_ready: Callable[[], bool]
) -> ProcessSpec:
    """Return the process of all simulated brokers."""
    layout, config = settings.layout, settings.config
    arguments = [
        *("--bootstrap", settings.bootstrap),
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
    return _python(FLEET, layout, arguments, is_ready)


def ensure_topics(settings: StackSettings) -> None:
    """Make or check Ballast's topics; raises CommandError with the verb's message."""
    command = [sys.executable, "-m", "jobs.cli", "topics", "ensure"]
    ended = subprocess.run(  # noqa: S603 (our own verb)
        [*command, "--bootstrap", settings.bootstrap, *settings.config_arguments()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise CommandError(
            "the topics could not be made",
            why=last_output(ended.stdout + ended.stderr),
            next_step=f"read {settings.layout.kafka / 'logs'}, then run the same command again",
        )


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


def _python(
    name: str, layout: Layout, arguments: Sequence[str], is_ready: Callable[[], bool] | None = None
) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-m", f"jobs.{name}", *arguments),
        log_path=layout.logs / f"{name}.log",
        environment=_ENVIRONMENT,
        is_ready=is_ready,
        grace_ms=_GRACE_MS,
    )


_JOB_STARTS = "starting beside all else; its first batch comes after half a minute to two minutes"


class RunProcesses(AbstractContextManager["RunProcesses"]):
    """All processes of a run; they end with the context."""

    def __init__(
        self,
        layout: Layout,
        overlays: Sequence[str],
        assignments: Sequence[str],
        lookup_port: int | None,
    ) -> None:
        """Choose ports; start nothing. Raises MisuseError for impossible settings."""
        config = load_settings(overlays, assignments)
        outside = config.kafka.bootstrap_servers
        self._kafka = None if outside else EmbeddedKafka(layout.kafka)
        self.supervisor = Supervisor()
        self.settings = StackSettings(
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
        """Start them in order, each with a notice.

        last: name of the last process. last_spec: called once the others run.
        """
        settings, start = self.settings, self.supervisor.start
        settings.layout.save_settings(settings.overlays, settings.assignments)
        steps = (
            ("Kafka", f"starting, it has to answer at {settings.bootstrap}", self._start_kafka),
            ("topics", "making those that are missing", lambda: ensure_topics(settings)),
            ("streaming job", _JOB_STARTS, lambda: start(job_spec(settings))),
            (
                "lookup service",
                f"starting, it has to answer at {settings.lookup_url}",
                lambda: start(lookup_spec(settings)),
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

    def new_messages(self) -> list[str]:
        """Return sentences on deaths and restarts since the last call."""
        logs = self.settings.layout.logs
        return [
            exit_message(event, logs / f"{event.name}.log")
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
        processes.start("bridge", lambda: bridge_spec(processes.settings, bridge_arguments()))
        while not stop.wait(_POLL_S):
            for message in processes.new_messages():
                note(message)
            show()
        note("stopping")
        processes.supervisor.begin_stop(JOB, BRIDGE)
