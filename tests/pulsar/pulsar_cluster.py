"""A real Pulsar cluster on this machine: one process with ZooKeeper and bookie, and its brokers.

Decides ports, memory and configuration; for the demonstration and the tests. Everything is on
loopback, in one folder, and ends with the process that started it. The standalone of 5.0 can't be
told where its ZooKeeper listens, so there ZooKeeper is a process of its own. What a broker needs is
the distribution's conf/standalone.conf and conf/broker.conf.
"""

import http.client
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.processes.preflight import find_java, free_ports
from jobs.adapters.processes.processes import Child, ProcessSpec
from jobs.console import CommandError

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
_HOST = "127.0.0.1"
_START_MS, _STOP_MS = 180_000, 60_000
_STORES = ("metadataStoreUrl", "configurationMetadataStoreUrl")
BROKER_MEMORY = "-Xms192m -Xmx512m -XX:MaxDirectMemorySize=384m"
QUICK = "-XX:TieredStopAtLevel=1"
SMALL_BROKER = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "topicLevelPoliciesEnabled": "false",  # each namespace would wait for a topic of it
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "metadataStoreSessionTimeoutMillis": "20000",  # 6 s end while a crowded machine is busy
}
"""Keys of broker.conf for brokers that share a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What the brokers are configured with. settings: key → value of broker.conf."""

    load_manager: str = MODULAR
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """Where one broker listens."""

    service: int
    web: int

    @property
    def name(self) -> str:
        return f"{_HOST}:{self.web}"


class PulsarCluster:
    """Brokers by number; number 1 shares its process with ZooKeeper and the bookie.

    Number 1 must live as long as the cluster: kill others.
    """

    def __init__(self, home: Path, folder: Path, options: ClusterOptions | None = None) -> None:
        """home: the unpacked distribution; folder: everything of this cluster. Starts nothing."""
        self._home, self._folder = home, folder.absolute()
        self._options = options or ClusterOptions()
        self._zookeeper = self._bookie = 0
        self._ports: dict[int, BrokerPorts] = {}
        self._children: dict[int, Child] = {}

    def __enter__(self) -> "PulsarCluster":  # noqa: PYI034 (Self is 3.11's)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def admin_url(self) -> str:
        """Of broker 1."""
        return f"http://{self._ports[1].name}"

    @property
    def service_url(self) -> str:
        """Of broker 1; clients find the others through it."""
        return self.service_url_of(1)

    def service_url_of(self, number: int) -> str:
        return f"pulsar://{_HOST}:{self._ports[number].service}"

    def broker(self, number: int) -> str:
        """A broker's name, host:port of its web service."""
        return self._ports[number].name

    def start(self, brokers: int) -> None:
        """Start that many brokers and wait until they answer."""
        self.start_broker(1)
        for number in range(2, brokers + 1):
            self._launch(number)
        for number in range(2, brokers + 1):
            self._wait_until_ready(number)

    def start_broker(self, number: int) -> None:
        """Start one, again at the ports that it had before, and wait until it answers."""
        self._launch(number)
        self._wait_until_ready(number)

    def _wait_until_ready(self, number: int) -> None:
        """Or start it once more, elsewhere, when something took a port of its before it did."""
        try:
            self._children[number].wait_until_ready()
        except CommandError as error:
            if "bind(..) failed" not in error.why:
                raise
            self._children.pop(number).kill()
            self._ports.pop(number)
            self._launch(number)
            self._children[number].wait_until_ready()

    def pid(self, number: int) -> int:
        return self._children[number].pid

    def restart_broker(self, number: int) -> None:
        """SIGTERM, wait for its end, and start it again at its ports."""
        self._children.pop(number).stop()
        self.start_broker(number)

    def kill_broker(self, number: int) -> None:
        """Kill -9."""
        self._children.pop(number).kill()

    def stop(self) -> None:
        """End the brokers, the one with ZooKeeper last; nothing is left of them but the folder."""
        for number in sorted(self._children, reverse=True):
            self._children.pop(number).kill()

    @property
    def _has_own_zookeeper(self) -> bool:
        return self._home.name.startswith("apache-pulsar-5")

    @property
    def _store(self) -> str:
        return f"zk:{_HOST}:{self._zookeeper}"

    def _launch_zookeeper(self) -> None:
        """Before broker 1, and ended after it: as number 0."""
        folder = self._folder / "zookeeper"
        folder.mkdir(parents=True, exist_ok=True)
        conf = self._folder / "zookeeper.conf"
        address = f"clientPort={self._zookeeper}\nclientPortAddress={_HOST}"
        conf.write_text(f"dataDir={folder}\n{address}\nadmin.enableServer=false\n")
        port = self._zookeeper
        spec = ProcessSpec(
            name="zookeeper",
            command=(self._program, "zookeeper"),
            log_path=self._folder / "zookeeper.log",
            environment={**self._environment(0), "PULSAR_ZK_CONF": str(conf)},
            is_ready=lambda: listens(_HOST, port),
            ready_timeout_ms=_START_MS,
        )
        self._children[0] = Child(spec)
        self._children[0].wait_until_ready()

    def _launch(self, number: int) -> None:
        if number not in self._ports:
            service, web = free_ports(2)
            self._ports[number] = BrokerPorts(service=service, web=web)
            if number == 1:
                self._zookeeper, self._bookie = free_ports(2)
        if self._has_own_zookeeper and 0 not in self._children:
            self._launch_zookeeper()
        self._children[number] = Child(self._spec(number))

    def _spec(self, number: int) -> ProcessSpec:
        is_first = number == 1
        conf = self._write_conf(number)
        variable = "PULSAR_STANDALONE_CONF" if is_first else "PULSAR_BROKER_CONF"
        web = self._ports[number].web
        return ProcessSpec(
            name=f"pulsar-{number}",
            command=tuple(self._standalone() if is_first else [self._program, "broker"]),
            log_path=self._folder / f"broker-{number}.log",
            environment={**self._environment(number), variable: str(conf)},
            is_ready=lambda: is_ready(_HOST, web),
            grace_ms=_STOP_MS,
            ready_timeout_ms=_START_MS,
        )

    def _environment(self, number: int) -> dict[str, str]:
        inside = {} if self._has_own_zookeeper else {"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"}
        logs = self._folder / "logs" / str(number)
        return {**inside, **java_environment(logs, BROKER_MEMORY), "PULSAR_LOG_LEVEL": "warn"}

    @property
    def _program(self) -> str:
        return str(self._home / "bin" / "pulsar")

    def _standalone(self) -> list[str]:
        words = [self._program, "standalone", "-nfw", "-nss", "--wipe-data", "-a", _HOST]
        if self._has_own_zookeeper:
            words += ["--metadata-url", self._store]
            return [*words, "--bookkeeper-dir", str(self._folder / "bookkeeper")]
        words += ["--zookeeper-port", str(self._zookeeper)]
        words += ["--zookeeper-dir", str(self._folder / "zookeeper")]
        words += ["--bookkeeper-port", str(self._bookie)]
        return [*words, "--bookkeeper-dir", str(self._folder / "bookkeeper")]

    def _write_conf(self, number: int) -> Path:
        ports = self._ports[number]
        settings = {
            "brokerServicePort": str(ports.service),
            "webServicePort": str(ports.web),
            "advertisedAddress": _HOST,
            "clusterName": "standalone",
            "loadManagerClassName": self._options.load_manager,
            "loadBalancerEnabled": "true",
            "loadBalancerOverrideBrokerNicSpeedGbps": "1",
            **SMALL_BROKER,
            **self._options.settings,
        }
        if number > 1 or self._has_own_zookeeper:
            settings |= dict.fromkeys(_STORES, self._store)
        template = "standalone.conf" if number == 1 else "broker.conf"
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"broker-{number}.conf"
        shutil.copyfile(self._home / "conf" / template, path)
        with path.open("a") as file:
            file.writelines(f"\n{key}={value}" for key, value in sorted(settings.items()))
            file.write("\n")
        return path


def java_home() -> str:
    """Of the Java that is found, as Pulsar's scripts want it."""
    found = shutil.which(find_java().command)
    return str(Path(found or "java").resolve().parents[1])


def java_environment(logs: Path, memory: str) -> dict[str, str]:
    """Variables of Pulsar's scripts for a JVM that lives for minutes."""
    return {
        "PULSAR_MEM": memory,
        "PULSAR_GC": "-XX:+UseSerialGC",
        "PULSAR_EXTRA_OPTS": f"{QUICK} -Dpulsar.allocator.exit_on_oom=true",
        "PULSAR_LOG_DIR": str(logs),
        "PULSAR_LOG_APPENDER": "Console",
        "PULSAR_LOG_LEVEL": "info",
        "JAVA_HOME": java_home(),
    }


def listens(host: str, port: int) -> bool:
    with socket.socket() as made:
        made.settimeout(1)
        return made.connect_ex((host, port)) == 0


def is_ready(host: str, port: int) -> bool:
    """Whether the broker with this web service says that it is ready."""
    connection = http.client.HTTPConnection(host, port, timeout=3)
    try:
        connection.request("GET", "/admin/v2/brokers/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
