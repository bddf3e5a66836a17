"""The processes of a local run: what each is, how it is started, when it is ready.

Decides which process is told what, and the order in which they end (what uses Kafka before Kafka).
Keeping them alive is `jobs.adapters.processes.processes`.
"""

import dataclasses
import http.client
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka
from jobs.adapters.processes.processes import ProcessSpec
from jobs.adapters.processes.progress import last_words
from jobs.console import CommandError
from jobs.local.commands import namespaces_of
from jobs.local.layout import CLUSTER, Layout, Size
from jobs.local.options import RunOptions
from lbcore.config.tree import Config
from lbcore.sim.load.load import NamespaceLoad

ROOT = Path(__file__).resolve().parents[2]
JOB, LOOKUP, FLEET, BRIDGE = "balance_cluster", "serve_lookup", "run_fleet", "bridge"
_KAFKA_GRACE_MS = 3_000
_GRACE_MS = 4_000
_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
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

    def config_words(self, option: str) -> tuple[str, ...]:
        """The words that give another process the same configuration; option: before overlays."""
        overlays = ((option, overlay) for overlay in self.overlays)
        assignments = (("--set", assignment) for assignment in self.assignments)
        return tuple(word for pair in (*overlays, *assignments) for word in pair)


def kafka_spec(kafka: EmbeddedKafka) -> ProcessSpec:
    """The embedded Kafka, ended last and within 3 s; what it had not written it recovers."""
    return dataclasses.replace(kafka.spec(), grace_ms=_KAFKA_GRACE_MS)


def job_spec(wiring: Wiring) -> ProcessSpec:
    """The streaming job."""
    layout = wiring.layout
    words = [
        *("--bootstrap", wiring.bootstrap),
        *("--state-dir", str(layout.job)),
        *("--tables", str(layout.tables)),
        *("--log", str(layout.batches)),
        *("--metrics-port", "0"),
        *("--metrics-port-file", str(layout.metrics_port)),
        *wiring.config_words("--conf"),
    ]
    return _python(JOB, layout, words)


def lookup_spec(wiring: Wiring) -> ProcessSpec:
    """The lookup service; ready when it answers, be it that it has no tables yet."""
    words = ["--tables", str(wiring.layout.tables), "--cluster", CLUSTER]
    words += ["--port", str(wiring.lookup_port), "--bootstrap", wiring.bootstrap]
    words += wiring.config_words("--conf")
    return _python(
        LOOKUP,
        wiring.layout,
        words,
        is_ready=lambda: answers_http(wiring.lookup_port, "/health"),
    )


def bridge_spec(wiring: Wiring, words: Sequence[str]) -> ProcessSpec:
    """The bridge to a Pulsar cluster. words: which, and what it may do."""
    layout = wiring.layout
    # the folder says what the run is configured with, as it does to every verb
    words = ["bridge", "pulsar", *words, "--state-dir", str(layout.root), "--cluster", CLUSTER]
    return dataclasses.replace(
        _python("cli", layout, words), name=BRIDGE, log_path=layout.logs / f"{BRIDGE}.log"
    )


def fleet_spec(
    wiring: Wiring, size: Size, options: RunOptions, is_ready: Callable[[], bool]
) -> ProcessSpec:
    """The simulated brokers, all in one process."""
    layout, config = wiring.layout, wiring.config
    words = [
        *("--bootstrap", wiring.bootstrap),
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
    for namespace in namespaces_of(size):
        words += ["--namespace", namespace_word(namespace)]
    return _python(FLEET, layout, words, is_ready)


def namespace_word(namespace: NamespaceLoad) -> str:
    """A namespace as the fleet's command line takes it."""
    return f"{namespace.name}:{namespace.hash_function.value}:{namespace.bundles}"


def ensure_topics(wiring: Wiring) -> None:
    """Make or check the wire's topics; raises CommandError with what the verb said."""
    command = [sys.executable, "-m", "jobs.cli", "topics", "ensure"]
    ended = subprocess.run(  # noqa: S603 (our own verb)
        [*command, "--bootstrap", wiring.bootstrap, *wiring.config_words("--conf")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise CommandError(
            "the topics could not be made",
            why=last_words(ended.stdout + ended.stderr),
            next_step=f"read {wiring.layout.kafka / 'logs'}, then run the same command again",
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
    name: str, layout: Layout, words: Sequence[str], is_ready: Callable[[], bool] | None = None
) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-m", f"jobs.{name}", *words),
        log_path=layout.logs / f"{name}.log",
        environment=_ENVIRONMENT,
        is_ready=is_ready,
        grace_ms=_GRACE_MS,
    )
