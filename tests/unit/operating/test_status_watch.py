"""`ballast status --watch`: drawn in a terminal until Ctrl-C, refused without one."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.cli import main
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables

ROOT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watch") / "tables"
    write_tables(running(3, 12), root, time.time_ns() // 1_000_000)
    return root


def test_watch_without_a_terminal_says_what_else_there_is(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--watch", "--tables", str(tables)]) == 2
    assert "`ballast status` writes one look" in capsys.readouterr().err


def test_watch_draws_again_and_leaves_the_screen_at_ctrl_c(tables: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"}
    environment["BALLAST_STATE_DIR"] = str(tables.parent / "no-run")
    command = [sys.executable, "-m", "jobs.cli", "status", "--tables", str(tables)]
    process = subprocess.Popen(
        [*command, "--watch", "--every", "200ms"],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.set_blocking(ours, False)
    text, deadline_s = "", time.monotonic() + _PATIENCE_S

    def read() -> str:
        try:
            return os.read(ours, 1 << 16).decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            time.sleep(0.02)
            return ""

    while len(re.findall("Ctrl-C ends it", text)) < 2:
        assert time.monotonic() < deadline_s, text[-2_000:]
        assert process.poll() is None, text[-2_000:]
        text += read()
    assert "bundles 12 Owned" in text
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        assert time.monotonic() < deadline_s, text[-2_000:]
        text += read()
    text += read()
    assert process.returncode == 130
    assert text.rindex("\x1b[?1049l") > text.rindex("\x1b[?1049h")
    os.close(ours)
    os.close(theirs)
