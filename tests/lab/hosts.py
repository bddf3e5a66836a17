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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.console import CommandError

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
        """The hub's namespace."""
        return f"{self.name}-hub"

    def host(self, number: int) -> str:
        """The namespace of a host, and its cgroups."""
        return f"{self.name}-b{number}"

    @staticmethod
    def address(number: int) -> str:
        """Where a host's programs listen."""
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
        """The command that runs another in the hub."""
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
