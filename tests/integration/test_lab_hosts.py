"""The lab's hosts go, whatever ends the lab, and with them all that runs there; root on Linux."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.console import CommandError
from tests.integration.stack import ROOT
from tests.lab.hosts import Hosts, programs, require_root, sweep


def _why_not() -> str:
    try:
        require_root()
    except CommandError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
_PATIENCE_S = 60
_PROGRAM = """
import signal, subprocess, sys, time
from pathlib import Path
from tests.lab.hosts import hosts
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever began this ignores it
folder = Path(sys.argv[1])
stubborn = ["sh", "-c", "trap '' TERM INT; sleep 300 & wait; sleep 300"]
with hosts(2) as made:
    for number in (1, 2):
        command = made.on_host(number, folder / f"sys-{number}", stubborn)
        subprocess.Popen(command, start_new_session=True)
    time.sleep(1.0)
    (folder / "name").write_text(made.name)
    if sys.argv[2] == "fails":
        raise ValueError("on purpose")
    time.sleep(300)
"""


def _left(name: str) -> list[str]:
    """What is still there of a lab's namespaces, cgroups and programs."""
    places = [Path("/run/netns"), Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpuacct")]
    found = [str(path) for place in places for path in place.glob(f"{name}-*")]
    names = [f"{name}-hub", f"{name}-b1", f"{name}-b2"]
    return found + [str(pid) for pid in programs(names)]


def _begun(folder: Path, how: str) -> tuple["subprocess.Popen[bytes]", str]:
    """A lab with a stubborn program on each host, and its name."""
    lab = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    _wait(lambda: (folder / "name").exists() and (folder / "name").read_text())
    return lab, (folder / "name").read_text()


def _wait(holds: Callable[[], object]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_hosts_are_gone_after_ctrl_c_though_programs_hold_out(tmp_path: Path) -> None:
    lab, name = _begun(tmp_path, "waits")
    assert len(_left(name)) > 7
    lab.send_signal(signal.SIGINT)
    lab.wait(_PATIENCE_S)
    assert _left(name) == []


def test_hosts_are_gone_after_a_failure_in_the_lab(tmp_path: Path) -> None:
    lab, name = _begun(tmp_path, "fails")
    assert lab.wait(_PATIENCE_S) == 1
    assert _left(name) == []


def test_hosts_of_a_killed_lab_are_gone_at_the_next_start_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    (tmp_path / "other").mkdir()
    killed, its_name = _begun(tmp_path / "killed", "waits")
    other, other_name = _begun(tmp_path / "other", "waits")
    killed.kill()
    killed.wait(_PATIENCE_S)
    assert _left(its_name)
    assert f"{its_name}-hub" in sweep()
    assert _left(its_name) == []
    assert len(_left(other_name)) > 7
    other.send_signal(signal.SIGINT)
    other.wait(_PATIENCE_S)
    assert _left(other_name) == []


def test_host_sees_one_card_whose_folder_is_no_virtual_one(tmp_path: Path) -> None:
    made = Hosts(name=f"ballast-lab-{os.getpid()}", count=1)
    try:
        made.up()
        script = "ls /sys/class/net; readlink -f /sys/class/net/eth0; cat /proc/self/cgroup"
        command = made.on_host(1, tmp_path / "sys", ["sh", "-c", script])
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        made.down()
    assert said.splitlines()[:2] == ["eth0", "/sys/class/net/eth0"]
    assert f":cpu:/{made.host(1)}" in said
