"""Hosts on one machine: a network namespace with a card of its own and cgroups for each broker.

Decides names, addresses and what a host's programs see; root on Linux with cgroups v1. A hub, which
is a namespace with a bridge, holds all else (10.77.0.1); hosts are 10.77.0.11 and on. Nothing leads
out of them. Names begin with the id of the process that made them, so that what a killed one has
left behind is known. Pulsar 4.0.8's LinuxInfoUtils leaves out cards whose folder lies under
`/virtual/`, so each host sees its card's folder where the link to it was.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.processes.processes import Child, ProcessSpec, last_output
from jobs.console import CommandError
from tests.pulsar.pulsar_cluster import (
    BROKER_MEMORY,
    QUICK,
    SMALL_BROKER,
    is_ready,
    java_environment,
    listens,
)
from tests.pulsar.pulsar_stack import PULSAR

HUB = "10.77.0.1"
_PREFIX = "ballast-lab"
_NAMESPACES = Path("/run/netns")
_CGROUPS = tuple(Path("/sys/fs/cgroup", kind) for kind in ("cpu", "cpuacct"))
_PROGRAMS = ("ip", "nsenter", "unshare", "mount")
_GONE_S = 10.0
_POLL_S = 0.05
_ON_A_HOST = """
set -e
for kind in cpu cpuacct; do echo $$ > /sys/fs/cgroup/$kind/$1/cgroup.procs; done
mkdir -p "$2"
mount -t sysfs sysfs "$2"
mount -t tmpfs tmpfs /sys/class/net
mkdir /sys/class/net/eth0
mount --bind "$2/class/net/eth0" /sys/class/net/eth0
shift 2
exec "$@"
"""


def require_root() -> None:
    """CommandError, in three parts, where no such hosts can be made."""
    what = "brokers can't have hosts of their own here"
    if sys.platform != "linux" or os.geteuid() != 0:
        raise CommandError(
            what,
            why="network namespaces and cgroups are made by root on Linux",
            next_step="run it as root on Linux; `make demo-pulsar` needs neither",
        )
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    if lacking:
        raise CommandError(
            what,
            why=f"{' and '.join(lacking)} can't be found on the PATH",
            next_step="install them (Debian: apt-get install iproute2 util-linux mount)",
        )
    absent = [str(path) for path in _CGROUPS if not (path / "cgroup.procs").exists()]
    if absent:
        raise CommandError(
            what,
            why=f"cgroups v1 are not mounted: no {' and no '.join(absent)}",
            next_step="boot with systemd.unified_cgroup_hierarchy=0, or run it where they are",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """A hub and hosts 1 to `count`, by name. Making one of these makes no host: see `up`."""

    name: str
    count: int

    @property
    def hub(self) -> str:
        return f"{self.name}-hub"

    def host(self, number: int) -> str:
        return f"{self.name}-b{number}"

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{10 + number}"

    def up(self) -> None:
        """Make them. Raises CommandError when the system refuses."""
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "set", "lo", "up")
        _ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.hub, "addr", "add", f"{HUB}/24", "dev", "br0")
        _ip("-n", self.hub, "link", "set", "br0", "up")
        for number in range(1, self.count + 1):
            self._add(number)

    def _add(self, number: int) -> None:
        host, card = self.host(number), f"v{number}"
        for kind in _CGROUPS:
            (kind / host).mkdir()
        peer = ("peer", "name", "eth0", "netns", host)
        _ip("netns", "add", host)
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("-n", self.hub, "link", "add", card, "type", "veth", *peer)
        _ip("-n", self.hub, "link", "set", card, "master", "br0")
        _ip("-n", self.hub, "link", "set", card, "up")
        _ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        _ip("-n", host, "link", "set", "eth0", "up")

    def in_hub(self, words: Sequence[str]) -> tuple[str, ...]:
        return ("nsenter", f"--net={_NAMESPACES / self.hub}", *words)

    def on_host(self, number: int, folder: Path, words: Sequence[str]) -> tuple[str, ...]:
        """The command that runs another on a host, which sees one card. folder: for its /sys."""
        host = self.host(number)
        begin = ("nsenter", f"--net={_NAMESPACES / host}", "unshare", "-m")
        begin += ("--propagation", "private", "sh", "-c", _ON_A_HOST, "sh")
        return (*begin, host, str(folder), *words)

    def limit_cpu(self, number: int, cores: float) -> None:
        """Let a host use so many cores at most; 0 = all."""
        quota = Path("/sys/fs/cgroup/cpu", self.host(number), "cpu.cfs_quota_us")
        quota.write_text(str(round(cores * 100_000) or -1))

    def down(self) -> None:
        """End what runs there, and remove hosts and hub; goes on whatever of it is gone."""
        names = [self.hub, *(self.host(number) for number in range(1, self.count + 1))]
        _end_programs(names)
        for name in names:
            _remove(name)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """So many hosts; removed at the end, however it comes. What a killed process left goes, too."""
    sweep()
    made = Hosts(name=f"{_PREFIX}-{os.getpid()}", count=count)
    try:
        made.up()
        yield made
    finally:
        with _undisturbed():
            made.down()


def sweep() -> list[str]:
    """Remove hosts whose maker lives no more; the names that were found."""
    found = {path.name for folder in (_NAMESPACES, *_CGROUPS) for path in _made(folder)}
    orphans = sorted(name for name in found if not _lives(int(name.split("-")[2])))
    _end_programs(orphans)
    for name in orphans:
        _remove(name)
    return orphans


def _made(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"{_PREFIX}-*") if re.match(r"[\w-]+-\d+-", path.name))


def _lives(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not cut the clean-up off: each step of it has an end."""
    kept = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def programs(names: Sequence[str]) -> set[int]:
    """The ids of the processes in these namespaces and cgroups."""
    found: set[int] = set()
    for name in names:
        if (_NAMESPACES / name).exists():
            said = _run("ip", "netns", "pids", name).stdout
            found |= {int(word) for word in said.split()}
        for kind in _CGROUPS:
            with contextlib.suppress(OSError):
                words = (kind / name / "cgroup.procs").read_text().split()
                found |= {int(word) for word in words}
    return found


def _end_programs(names: Sequence[str]) -> None:
    deadline_s = time.monotonic() + _GONE_S
    while (left := programs(names)) and time.monotonic() < deadline_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _remove(name: str) -> None:
    if (_NAMESPACES / name).exists():
        _run("ip", "netns", "del", name)
    for kind in _CGROUPS:
        for _ in range(round(_GONE_S / _POLL_S)):
            with contextlib.suppress(OSError):
                (kind / name).rmdir()
            if not (kind / name).exists():
                break
            time.sleep(_POLL_S)


def _ip(*words: str) -> None:
    ended = _run("ip", *words)
    if ended.returncode:
        raise CommandError(
            f"`ip {' '.join(words)}` failed",
            why=ended.stderr.strip() or f"it ended with code {ended.returncode}",
            next_step="the lab needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN; in a container,"
            " start that one with both",
        )


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, check=False)


_STORE = f"zk:{HUB}:2181"
_ZOOKEEPER, _BOOKIE, _WEB = 2181, 3181, 8080
_START_MS = 240_000
_STOP_MS = 90_000
"""More than brokerShutdownTimeoutMs, which is 60 s: a broker ends by itself."""
_CORES = 0.5
"""What a broker's host has once it is ready: a start needs more."""
_BOOKIE_MEMORY = "-Xmx256m -XX:MaxDirectMemorySize=384m"
_BROKER = {
    "brokerServicePort": "6650",
    "webServicePort": str(_WEB),
    "clusterName": PULSAR,
    "metadataStoreUrl": _STORE,
    "configurationMetadataStoreUrl": _STORE,
    **SMALL_BROKER,
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
        self._hosts.limit_cpu(number, 0)
        name = f"broker-{number}"
        conf = self._write(f"{name}.conf", "broker.conf", self._broker_settings(number))
        spec = ProcessSpec(
            name=name,
            command=self._hosts.on_host(
                number, self._folder / f"sys-{number}", [self._program, "broker"]
            ),
            log_path=self._folder / f"{name}.log",
            environment={"PULSAR_BROKER_CONF": str(conf), **self._java(name, BROKER_MEMORY)},
            is_ready=lambda: is_ready(self._hosts.address(number), _WEB),
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
            is_ready=lambda: listens(HUB, port),
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
            "BOOKIE_EXTRA_OPTS": QUICK,
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
        return java_environment(self._folder / "logs" / name, memory)
