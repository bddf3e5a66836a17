"""`run-agent`: words that cannot be used, its help, and its clock."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs import cli
from jobs.adapters.processes import clocks
from jobs.adapters.processes.clocks import ForwardClock
from tests.support import Capsys, Patch

NEEDED = ("--service", "shop:make", "--cluster", "c", "--broker", "b:1", "--bootstrap", "k:1")
SHOP = """
def make(): return None
def broken(): raise OSError("port 80 is taken")
"""


def told(capsys: Capsys, *more: str) -> tuple[int, str]:
    code = cli.main(["run-agent", *NEEDED, *more])
    return code, capsys.readouterr().err


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: Patch) -> None:
    """The service's module, in the current folder only."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "shop", raising=False)


@pytest.mark.parametrize(
    ("more", "code", "what", "next_step"),
    [
        (("--service", "no_such:make"), 2, "can't be loaded", "MODULE:FUNCTION"),
        (("--service", "shop:absent"), 2, "can't be loaded", "MODULE:FUNCTION"),
        (("--service", "shop"), 2, "can't be loaded", "MODULE:FUNCTION"),
        (("--service", "shop:make"), 2, "returned NoneType", "return Callbacks("),
        (("--service", "shop:broken"), 1, "port 80 is taken", "start it again"),
        (("--broker", "a/b"), 2, "--broker 'a/b' can't be used", "host:port"),
        (("--cluster", ""), 2, "--cluster '' can't be used", "take another one"),
        (("--threads", "0"), 2, "no whole number from 1", "run-agent --help"),
        (("--capacity", "nan"), 2, "no number from 0.001", "run-agent --help"),
        (("--set", "agent.shutdown_timeut_ms=1"), 2, "shutdown_timeout_ms", "ballast config show"),
        (("--set", "ownership.fencing=lease", "--set", "agent.heartbeat_interval_ms=6000",
          "--set", "ownership.broker_timeout_ms=20000"), 2,
         "brokers would stop serving in normal operation", "correct them"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("shop")
def test_agent_that_cannot_run_says_why_and_what_to_do(
    capsys: Capsys, more: Sequence[str], code: int, what: str, next_step: str
) -> None:
    found, text = told(capsys, *more)
    assert found == code
    assert what in text
    assert next_step in text
    assert "Traceback" not in text


@pytest.mark.usefixtures("shop")
def test_agent_without_a_url_is_warned_that_lookups_cannot_name_it(capsys: Capsys) -> None:
    assert "has no URL" in told(capsys)[1]
    assert "has no URL" not in told(capsys, "--web-service-url", "http://b:1")[1]


def test_help_shows_a_whole_command_and_every_option_with_its_meaning(capsys: Capsys) -> None:
    assert cli.main(["run-agent", "--help"]) == 0
    text = capsys.readouterr().out
    assert "ballast run-agent --service word_store:make --cluster local" in text
    assert "docs/agent.md" in text


START_MS = 1_700_000_000_000


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -40_000, 5_000, 40_000, 3_600_000])
def test_agents_clock_goes_on_whatever_its_machines_shows(
    monkeypatch: Patch, ahead_ms: int
) -> None:
    wall_ms, passed_ms = [START_MS], [0]
    monkeypatch.setattr(time, "time_ns", lambda: wall_ms[0] * 1_000_000)
    monkeypatch.setattr(clocks, "boot_ms", lambda: 5_000 + passed_ms[0])
    clock = ForwardClock()
    seen = []
    for passed_ms[0], wall_ms[0] in ((1_000, START_MS + ahead_ms), (3_000, START_MS + 3_000)):
        seen.append(clock.now_ms() - START_MS)
    assert seen == [1_000, 3_000]
