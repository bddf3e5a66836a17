"""Set-up: what is due, what is skipped, what is said when a step can't be done."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import prepare
from jobs.console import CommandError
from jobs.prepare import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A checkout with lock files, and an environment whose Python is a script (`_python_that`)."""
    for name in (prepare.BUILD_LOCK, *prepare.LOCKS.values()):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return Place(root=tmp_path, venv=tmp_path / "venv")


def _python_that(place: Place, action: str) -> None:
    place.python.parent.mkdir(parents=True, exist_ok=True)
    place.python.write_text(f'#!/bin/sh\necho "$@" >> {place.root}/calls\n{action}\n')
    place.python.chmod(place.python.stat().st_mode | stat.S_IXUSR)


def _calls(place: Place) -> list[str]:
    path = place.root / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_packages_installed_once_are_skipped_then(place: Place) -> None:
    _python_that(place, "exit 0")
    assert prepare.install_packages(place, "run")
    assert ["requirements-build.lock" in call for call in _calls(place)] == [True, False]
    assert all("--require-hashes" in call for call in _calls(place))
    assert not prepare.install_packages(place, "run")
    assert len(_calls(place)) == 2


def test_packages_for_dev_satisfy_a_run_but_not_the_reverse(place: Place) -> None:
    _python_that(place, "exit 0")
    assert prepare.install_packages(place, "run")
    assert prepare.install_packages(place, "dev")
    assert not prepare.install_packages(place, "run")


def test_packages_are_installed_again_after_a_change_of_the_lock(place: Place) -> None:
    _python_that(place, "exit 0")
    assert prepare.install_packages(place, "run")
    (place.root / "requirements.lock").write_text("other\n")
    assert prepare.install_packages(place, "run")


def test_packages_that_fail_say_the_next_step_and_are_installed_again(place: Place) -> None:
    _python_that(place, "exit 1")
    with pytest.raises(CommandError) as caught:
        prepare.install_packages(place, "run")
    assert "code 1" in caught.value.why
    assert "PIP_INDEX_URL" in caught.value.next_step
    _python_that(place, "exit 0")
    assert prepare.install_packages(place, "run")


def test_virtual_environment_of_the_user_is_kept(place: Place) -> None:
    place.python.parent.mkdir(parents=True)
    place.python.symlink_to(sys.executable)
    assert not prepare.make_venv(place)


def test_virtual_environment_half_made_is_made_again(place: Place) -> None:
    _python_that(place, "exit 1")
    assert prepare.make_venv(place)
    probe = [str(place.python), "-c", "import pip"]
    assert subprocess.run(probe, check=False).returncode == 0


def test_second_set_up_waits_for_the_orphan_of_a_killed_one(place: Place) -> None:
    code = (
        "import os, signal, subprocess, sys\n"
        "from pathlib import Path\n"
        "from jobs import prepare\n"
        "place = prepare.Place(root=Path(sys.argv[1]), venv=Path(sys.argv[1]) / 'venv')\n"
        "with prepare.alone(place):\n"
        "    subprocess.Popen(['sh', '-c', 'sleep 1; echo x > \"$0\"', sys.argv[1] + '/orphan'],\n"
        "                     close_fds=False)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, str(place.root)]
    environment = {**os.environ, "PYTHONPATH": str(prepare.ROOT)}
    assert subprocess.run(command, check=False, env=environment).returncode < 0
    assert not (place.root / "orphan").exists()
    with prepare.alone(place):
        assert (place.root / "orphan").exists()


def test_main_without_java_fails_in_three_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("BALLAST_JAVA", raising=False)
    assert prepare.main(["run", "--venv", str(tmp_path / "venv")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0].strip() for line in said] == ["error", "why", "next"]
    assert not (tmp_path / "venv").exists()
