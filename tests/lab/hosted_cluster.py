"""A real Pulsar cluster with each broker on a host of its own; ZooKeeper and the bookie in the hub.

Decides configuration, memory and when a broker is ready; used by a process in the hub. Broker 1 is
where everybody begins: kill others. What is written is Pulsar 4.0.8's and 4.2.4's conf/broker.conf
and conf/bookkeeper.conf with a few keys replaced.
"""

import http.client
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jobs.adapters.processes.processes import Child, ProcessSpec, last_output
from jobs.console import CommandError
from tests.lab.hosts import HUB, Hosts
from tests.pulsar.pulsar_cluster import java_home
from tests.pulsar.pulsar_stack import PULSAR

_STORE = f"zk:{HUB}:2181"
_ZOOKEEPER, _BOOKIE, _WEB = 2181, 3181, 8080
_START_MS = 240_000
_STOP_MS = 90_000
"""More than brokerShutdownTimeoutMs, which is 60 s: a broker ends by itself."""
_CORES = 0.5
"""What a broker's host has once it is ready: a start needs more."""
_QUICK = "-XX:TieredStopAtLevel=1"
_BROKER_MEMORY = "-Xms192m -Xmx512m -XX:MaxDirectMemorySize=384m"
_BOOKIE_MEMORY = "-Xmx256m -XX:MaxDirectMemorySize=384m"
_BROKER = {
    "brokerServicePort": "6650",
    "webServicePort": str(_WEB),
    "clusterName": PULSAR,
    "metadataStoreUrl": _STORE,
    "configurationMetadataStoreUrl": _STORE,
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "topicLevelPoliciesEnabled": "false",  # each namespace would wait for a topic of it
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "metadataStoreSessionTimeoutMillis": "20000",  # 6 s end while a crowded machine is busy
}


class HostedCluster:
    """Brokers by number, each on the host of that number. All of it ends with this process."""

    def __init__(self, home: Path, folder: Path, hosts: Hosts, settings: Mapping[str, str]) -> None:
        """home: the unpacked distribution; settings: key → value of broker.conf. Starts nothing."""
        self._home, self._folder, self._hosts = home, folder.absolute(), hosts
        self._settings = settings
        self._children: dict[str, Child] = {}
        self.alive: set[int] = set()

    @property
    def admin_url(self) -> str:
        """Of broker 1."""
        return f"http://{self.broker(1)}"

    def broker(self, number: int) -> str:
        """A broker's name, host:port of its web service."""
        return f"{self._hosts.address(number)}:{_WEB}"

    def start(self, brokers: int) -> None:
        """Start the store and brokers 1 to `brokers`, and wait until they answer."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start_store()
        for number in range(1, brokers + 1):
            self.launch(number)
        for number in range(1, brokers + 1):
            self.await_ready(number)

    def launch(self, number: int) -> None:
        """Start one, and go on."""
        self._hosts.limit_cpu(number, 0)
        name = f"broker-{number}"
        conf = self._write(f"{name}.conf", "broker.conf", self._broker_settings(number))
        spec = ProcessSpec(
            name=name,
            command=self._hosts.on_host(
                number, self._folder / f"sys-{number}", [self._program, "broker"]
            ),
            log_path=self._folder / f"{name}.log",
            environment={"PULSAR_BROKER_CONF": str(conf), **self._java(name, _BROKER_MEMORY)},
            is_ready=lambda: _is_ready(self._hosts.address(number)),
            ready_timeout_ms=_START_MS,
            grace_ms=_STOP_MS,
        )
        self._children[name] = Child(spec)

    def await_ready(self, number: int) -> None:
        """Wait until it answers; then its host is as small as the others'."""
        self._children[f"broker-{number}"].wait_until_ready()
        self._hosts.limit_cpu(number, _CORES)
        self.alive.add(number)

    def restart(self, number: int) -> None:
        """SIGTERM, wait for its end, and start it again; it counts as alive until it has ended."""
        self._children[f"broker-{number}"].stop()
        self.alive.discard(number)
        self.launch(number)
        self.await_ready(number)

    def kill(self, number: int) -> None:
        """Kill -9."""
        self.alive.discard(number)
        self._children.pop(f"broker-{number}").kill()

    def died(self) -> list[str]:
        """What has ended without having been killed by us."""
        return [name for name, child in self._children.items() if child.exit_code() is not None]

    def stop(self) -> None:
        """End all of it, the store last."""
        for name in sorted(self._children):  # bookie, broker-N, zookeeper
            self._children.pop(name).kill()

    @property
    def _program(self) -> str:
        return str(self._home / "bin" / "pulsar")

    def _start_store(self) -> None:
        self._start_in_hub("zookeeper", _ZOOKEEPER, self._zookeeper_environment())
        words = [self._program, "initialize-cluster-metadata", "-c", PULSAR, "-md", _STORE]
        service = f"pulsar://{self._hosts.address(1)}:6650"
        ended = subprocess.run(
            [*words, "-cms", _STORE, "-uw", self.admin_url, "-ub", service],
            env={**os.environ, **self._java("initialize", "-Xmx128m")},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise CommandError(
                "the metadata of the cluster could not be made",
                why=last_output(ended.stdout + ended.stderr),
                next_step=f"read {self._folder / 'zookeeper.log'}",
            )
        self._start_in_hub("bookie", _BOOKIE, self._bookie_environment())

    def _start_in_hub(self, name: str, port: int, environment: Mapping[str, str]) -> None:
        spec = ProcessSpec(
            name=name,
            command=(self._program, name),
            log_path=self._folder / f"{name}.log",
            environment={**environment, "PULSAR_LOG_LEVEL": "warn"},
            is_ready=lambda: _listens(port),
            ready_timeout_ms=_START_MS,
        )
        self._children[name] = Child(spec)
        self._children[name].wait_until_ready()

    def _zookeeper_environment(self) -> dict[str, str]:
        conf = self._folder / "zookeeper.conf"
        lines = ["tickTime=2000", "initLimit=10", "syncLimit=5", f"clientPort={_ZOOKEEPER}"]
        lines += [f"dataDir={self._folder / 'zookeeper'}", "admin.enableServer=false"]
        conf.write_text("\n".join([*lines, "maxClientCnxns=0", ""]))
        environment = self._java("zookeeper", "-Xmx192m")
        return {**environment, "PULSAR_ZK_CONF": str(conf), "OPTS": "-Dpulsar.zookeeper.metrics=0"}

    def _bookie_environment(self) -> dict[str, str]:
        settings = {
            "zkServers": f"{HUB}:{_ZOOKEEPER}",
            "metadataServiceUri": f"metadata-store:{_STORE}",
            "journalDirectories": str(self._folder / "journal"),
            "ledgerDirectories": str(self._folder / "ledgers"),
            "advertisedAddress": HUB,
            "allowLoopback": "true",
            "journalSyncData": "false",
            "statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider",
            "diskUsageThreshold": "0.98",
            "diskUsageWarnThreshold": "0.97",
        }
        conf = self._write("bookkeeper.conf", "bookkeeper.conf", settings)
        return {
            **self._java("bookie", _BOOKIE_MEMORY),
            "PULSAR_BOOKKEEPER_CONF": str(conf),
            "BOOKIE_MEM": _BOOKIE_MEMORY,
            "BOOKIE_GC": "-XX:+UseSerialGC",
            "BOOKIE_EXTRA_OPTS": _QUICK,
        }

    def _broker_settings(self, number: int) -> dict[str, str]:
        return {**_BROKER, **self._settings, "advertisedAddress": self._hosts.address(number)}

    def _write(self, name: str, template: str, settings: Mapping[str, str]) -> Path:
        """The distribution's file with some keys replaced: an appended one does not always win."""
        lines = (self._home / "conf" / template).read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0].strip() not in settings]
        path = self._folder / name
        path.write_text(
            "\n".join([*kept, *(f"{key}={value}" for key, value in sorted(settings.items())), ""])
        )
        return path

    def _java(self, name: str, memory: str) -> dict[str, str]:
        return {
            "PULSAR_MEM": memory,
            "PULSAR_GC": "-XX:+UseSerialGC",
            "PULSAR_EXTRA_OPTS": f"{_QUICK} -Dpulsar.allocator.exit_on_oom=true",
            "PULSAR_LOG_DIR": str(self._folder / "logs" / name),
            "PULSAR_LOG_APPENDER": "Console",
            "PULSAR_LOG_LEVEL": "info",
            "JAVA_HOME": java_home(),
        }


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HUB, port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_ready(address: str) -> bool:
    connection = http.client.HTTPConnection(address, _WEB, timeout=3)
    try:
        connection.request("GET", "/admin/v2/brokers/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
