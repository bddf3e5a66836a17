"""Prometheus and promtool: one that is named, one on the PATH, or Debian's package, unpacked.

Needs no root: apt-get only downloads, into a folder beside the jars of the virtual environment,
with package lists of its own when the machine has none.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from jobs.console import CommandError, note

FOLDER = "BALLAST_PROMETHEUS"
"""Names a folder to keep the package in, or one that has the programs."""

_DEADLINE_S = 120


def have_tool(name: str) -> Path:
    """The path of `prometheus` or `promtool`; raises CommandError when it can't be had.

    Fetches some 20 MB the first time where neither the PATH nor the folder has it.
    """
    root = Path(os.environ.get(FOLDER) or Path(sys.prefix) / "ballast-prometheus")
    found = shutil.which(name) or shutil.which(name, path=str(root))
    if found:
        return Path(found)
    unpacked = root / "unpacked" / "usr" / "bin" / name
    why = "" if unpacked.exists() else _fetched(root)
    if why or not unpacked.exists():
        raise CommandError(
            f"{name} can't be had",
            why=why or "Debian's package lacks it",
            next_step=f"install Prometheus, or name a folder that has it in {FOLDER}",
        )
    return unpacked


@cache
def _fetched(root: Path) -> str:
    """Have the package in root/unpacked, one process at a time; why not, or ""."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if (root / "unpacked").exists() else _fetch(root)


def _fetch(root: Path) -> str:
    apt_get, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if not apt_get or not unpack:
        return "it is not on the PATH, and this system has no apt-get and dpkg-deb"
    note(f"fetching Debian's package of Prometheus (20 MB) into {root}")
    until_s = time.monotonic() + _DEADLINE_S
    why = ""
    for words in _ways(root / "apt"):
        why = _called([apt_get, "-q", *words], root, until_s)
        packages = sorted(root.glob("prometheus_*.deb"))
        if packages:
            into = str(root / "unpacked")
            return _called([unpack, "-x", str(packages[-1]), into], root, until_s)
    return why


def _ways(own: Path) -> tuple[list[str], ...]:
    """apt-get's words in turn: with the system's package lists, else with lists of our own."""
    for part in ("lists/partial", "archives/partial"):
        (own / part).mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::lists={own / 'lists'}", "-o", f"Dir::Cache={own}"]
    options += ["-o", "APT::Sandbox::User="]
    get = ["download", "prometheus"]
    return get, [*options, "update"], [*options, *get]


def _called(command: list[str], folder: Path, until_s: float) -> str:
    """Run it; why it failed, or ""."""
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, until_s - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} took longer than {_DEADLINE_S} s"
    if ended.returncode:
        return f"{Path(command[0]).name} could not fetch it: {ended.stderr.strip()[-300:]}"
    return ""


def tool(name: str) -> Path:
    """The path of `prometheus` or `promtool`; skips the test when it can't be had."""
    try:
        return have_tool(name)
    except CommandError as error:
        pytest.skip(str(error))
