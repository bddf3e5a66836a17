"""The file of a rolling restart, the shell's command of it, and what the verb refuses."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapters.processes.paths import locked
from jobs.bridge.restarted_cluster import command_line
from jobs.bridge.rolling_progress import (
    STATE_FILE,
    RestartStage,
    read_progress,
    rollout_message,
    save_progress,
)
from jobs.cli import main
from jobs.console import CommandError
from tests.support.worlds.rolling_cluster import new_progress

PROGRESS = replace(new_progress(), stage=RestartStage.FILLING, since_ms=60_000)


def test_file_goes_on_where_it_was_and_is_gone_when_all_is_done(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    assert read_progress(path) is None
    save_progress(path, PROGRESS)
    assert read_progress(path) == PROGRESS
    save_progress(path, replace(PROGRESS, stage=RestartStage.DONE))
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stage": "nonsense"}', "\x00"])
def test_file_that_is_none_is_told_and_no_status_ends_by_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / STATE_FILE
    path.write_text(text)
    with pytest.raises(CommandError, match="can't be read"):
        read_progress(path)
    assert rollout_message(path, 0) == ""


def test_status_says_which_broker_since_when_and_by_whom(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    save_progress(path, PROGRESS)
    words = rollout_message(path, 90_000)
    assert words == "broker 1 of 3, a:1: being filled again for 30 s (by ada, begun 1 min 30 s ago)"
    save_progress(path, replace(PROGRESS, stopped="the job is away"))
    assert "stopped: the job is away" in rollout_message(path, 90_000)


def test_verb_is_refused_beside_another_without_a_place_or_with_nothing_to_abort(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bridge", "rolling-restart", "--state-dir", str(tmp_path), "--json"]
    with locked(tmp_path / "rolling-restart.lock", CommandError("", why="", next_step="")):
        assert main(words) == 1
    assert json.loads(capsys.readouterr().err)["error"] == "a rolling restart is under way already"
    assert main([*words, "--abort"]) == 1
    assert json.loads(capsys.readouterr().err)["error"] == "there is nothing to abort"
    assert main([*words, "--conf", "pulsar"]) == 2
    assert "it is not known where Pulsar is" in capsys.readouterr().err


def test_command_has_broker_and_host_quoted_for_the_shell() -> None:
    assert command_line("ssh {host} x {broker}", "b-1:8080") == "ssh b-1 x b-1:8080"
    hostile = command_line("echo {broker}", "a;touch b:1")
    said = subprocess.run(["/bin/sh", "-c", hostile], capture_output=True, text=True, check=True)
    assert said.stdout == "a;touch b:1\n"
