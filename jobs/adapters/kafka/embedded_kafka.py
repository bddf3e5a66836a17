"""A real Kafka of one node: its storage, formatted once, and its process.

Its ports are chosen once and kept with its state, so clients find it again after a restart.
`ballast topics ensure` makes the topics. conf/kafka/embedded.properties has the fixed settings,
each with its reason. KRaft combined mode as Kafka documents it.
"""

import base64
import json
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import kafka_trouble
from jobs.adapters.processes import paths
from jobs.adapters.processes.jars import ensure_jars, jars_folder
from jobs.adapters.processes.preflight import check_disk, check_port, find_java, free_ports
from jobs.adapters.processes.processes import ProcessSpec, last_output
from jobs.console import CommandError

CONF = paths.CONF / "kafka"
_HOST = "127.0.0.1"
_DISK_BYTES = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Options that a caller may choose.

    properties: override the fixed ones. format_arguments: for StorageTool. security_protocol: of
    the clients' listener, PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    security_protocol: str = "PLAINTEXT"
    format_arguments: tuple[str, ...] = ()
    java_options: tuple[str, ...] = ()


class EmbeddedKafka:
    """One node whose whole state is in `folder`; a supervisor starts it by its `spec`.

    bootstrap: the value of bootstrap.servers for clients.
    """

    def __init__(self, folder: Path, options: KafkaOptions | None = None) -> None:
        """Choose the ports, or read those chosen before."""
        self.folder = folder.absolute()
        self.options = options or KafkaOptions()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "ports.json"
        if not path.exists():
            client, controller = free_ports(2)
            path.write_text(json.dumps({"client": client, "controller": controller}))
        chosen = json.loads(path.read_text())
        self.port, self.controller_port = int(chosen["client"]), int(chosen["controller"])
        self.bootstrap = f"{_HOST}:{self.port}"
        self._config_path = self.folder / "server.properties"
        self._temporary = self.folder / "tmp"  # where its Java unpacks libraries

    def prepare(self) -> None:
        """Write its configuration, check ports and disk, and format the storage once."""
        check_disk(self.folder, _DISK_BYTES)
        otherwise = f"remove {self.folder / 'ports.json'} to have other ports chosen"
        for port in (self.port, self.controller_port):
            check_port(port, "the embedded Kafka", otherwise)
        self._config_path.write_text(write_properties(self._properties()), encoding="ascii")
        shutil.rmtree(self._temporary, ignore_errors=True)  # what one that was killed left
        self._temporary.mkdir()
        if not (self.folder / "data" / "meta.properties").exists():
            # an id that starts with a dash would be read as an option
            number = bytes(1) + uuid.uuid4().bytes[1:]
            cluster_id = base64.urlsafe_b64encode(number).decode().rstrip("=")
            arguments = ["format", "-t", cluster_id, "-c", str(self._config_path)]
            ended = subprocess.run(  # noqa: S603 (Kafka's own tool)
                self._command(
                    "kafka.tools.StorageTool", *arguments, *self.options.format_arguments
                ),
                capture_output=True,
                text=True,
                check=False,
            )
            if ended.returncode:
                raise CommandError(
                    f"Kafka's storage in {self.folder} could not be formatted",
                    why=last_output(ended.stdout + ended.stderr),
                    next_step=f"check that {self.folder} can be written to, then try again",
                )

    def spec(self) -> ProcessSpec:
        """Return the spec for a supervisor; call `prepare` before the first start."""
        return ProcessSpec(
            name="kafka",
            command=tuple(self._command("kafka.Kafka", str(self._config_path))),
            log_path=self.folder / "logs" / "kafka.log",
            is_ready=self.answers,
            ready_timeout_ms=180_000,
            grace_ms=20_000,
            stop_rank=9,
        )

    def answers(self) -> bool:
        """Return True if it answers a client's first request within 1 s."""
        security = {"security_protocol": self.options.security_protocol}
        return not kafka_trouble(KafkaAddress(bootstrap=self.bootstrap, security=security))

    def _properties(self) -> dict[str, str]:
        listeners = f"CLIENT://{_HOST}:{self.port}"
        protocols = f"CLIENT:{self.options.security_protocol},CONTROLLER:PLAINTEXT"
        return {
            **read_properties((CONF / "embedded.properties").read_text()),
            "listeners": f"{listeners},CONTROLLER://{_HOST}:{self.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{_HOST}:{self.controller_port}",
            "log.dirs": str(self.folder / "data"),
            **self.options.properties,
        }

    def _command(self, main_class: str, *arguments: str) -> Sequence[str]:
        class_path = ":".join(str(path) for path in ensure_jars(jars_folder()))
        return [
            find_java().command,
            "-Xmx512m",
            "-Xms128m",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={self._temporary}",
            f"-Dballast.logs={self.folder / 'logs'}",
            f"-Dlog4j2.configurationFile={CONF / 'log4j2.yaml'}",
            *self.options.java_options,
            "-cp",
            class_path,
            main_class,
            *arguments,
        ]


def read_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file: key=value a line, # for comments, no escapes."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(entries: Mapping[str, str]) -> str:
    """Return a sorted Java properties file.

    java.util.Properties reads Latin-1 and escapes.
    """
    return "".join(
        f"{_java_escaped(key, ' =:#!')}={_java_escaped(value)}\n"
        for key, value in sorted(entries.items())
    )


def _java_escaped(text: str, separators: str = "") -> str:
    """Escape text for a properties file: backslashes doubled, others as u-escapes."""
    parts = []
    for at, char in enumerate(text):
        if char == "\\" or char in separators or (char == " " and not at):
            parts.append(f"\\{char}")
        elif char.isascii() and char.isprintable():
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
    return "".join(parts)
