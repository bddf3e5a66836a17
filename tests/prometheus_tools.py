"""Prometheus and promtool: those on the PATH, or Debian's package, fetched and unpacked.

Needs no root: apt-get only downloads, into a folder beside the virtual environment's jars, with
package lists of its own when the machine has none. Where there is neither Prometheus nor apt, the
tests that need it are skipped and say so.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FOLDER = "BALLAST_PROMETHEUS"
"""Names a folder to keep it in, or one that has it."""

_TIMEOUT_S = 100


@cache
def tool(name: str) -> Path:
    """The path of `prometheus` or `promtool`; skips the test when it can't be had."""
    found = shutil.which(name)
    if found:
        return Path(found)
    root = Path(os.environ.get(FOLDER) or Path(sys.prefix) / "ballast-prometheus")
    unpacked = root / "unpacked" / "usr" / "bin" / name
    if not unpacked.exists():
        root.mkdir(parents=True, exist_ok=True)
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            why = "" if unpacked.exists() else _fetch(root)
        if why:
            _do_without(name, why)
    return unpacked


def _fetch(root: Path) -> str:
    """Have the package in root/unpacked; why not, or ""."""
    apt_get, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if not apt_get or not unpack:
        return "this system has no apt-get and dpkg-deb"
    own = root / "apt"
    for part in ("lists/partial", "archives/partial"):
        (own / part).mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::lists={own / 'lists'}", "-o", f"Dir::Cache={own}"]
    options += ["-o", "APT::Sandbox::User="]
    for words in (
        ["download", "prometheus"],
        [*options, "update"],
        [*options, "download", "prometheus"],
    ):
        try:
            ended = subprocess.run(
                [apt_get, "-q", *words],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get took longer than {_TIMEOUT_S} s"
        packages = sorted(root.glob("prometheus_*.deb"))
        if packages:
            into = str(root / "unpacked")
            subprocess.run([unpack, "-x", str(packages[-1]), into], check=True, timeout=_TIMEOUT_S)
            return ""
    return f"apt-get could not download it: {ended.stderr.strip()[-300:]}"


def _do_without(name: str, why: str) -> None:
    text = (
        f"{name} can't be had: {why}; install Prometheus, or name a folder that has it in {FOLDER}"
    )
    pytest.skip(text)
