"""Prometheus is taken from where it is, fetched where it can be, and missed with a reason."""

import os
from pathlib import Path

import pytest

from jobs.console import CommandError
from tests.support.processes.prometheus import FOLDER, have_tool


def program(folder: Path, name: str, text: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and an empty folder of our own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(FOLDER, str(tmp_path / "own"))
    return tmp_path / "bin"


def test_program_on_the_path_comes_first_then_the_named_folder(
    bin_folder: Path, tmp_path: Path
) -> None:
    own = program(tmp_path / "own", "prometheus")
    assert have_tool("prometheus") == own
    assert have_tool("prometheus") != (there := program(bin_folder, "prometheus"))
    assert have_tool("prometheus") == there


def test_package_is_fetched_with_lists_of_our_own_where_the_system_has_none(
    bin_folder: Path, tmp_path: Path
) -> None:
    program(
        bin_folder,
        "apt-get",
        'case "$*" in *update*) > lists;; *download*) test -e lists && > prometheus_1.deb;; esac',
    )
    unpack = '/bin/mkdir -p "$3/usr/bin"; echo > "$3/usr/bin/promtool"; /bin/ls "$2"'
    program(bin_folder, "dpkg-deb", unpack)
    found = have_tool("promtool")
    assert found == tmp_path / "own" / "unpacked" / "usr" / "bin" / "promtool"
    with pytest.raises(CommandError, match="prometheus can't be had"):
        have_tool("prometheus")


@pytest.mark.usefixtures("bin_folder")
def test_machine_without_the_package_says_why() -> None:
    with pytest.raises(CommandError) as raised:
        have_tool("prometheus")
    assert "no apt-get and dpkg-deb" in raised.value.why
    assert FOLDER in raised.value.next_step


def test_failure_of_apt_is_told_and_not_tried_again(bin_folder: Path, tmp_path: Path) -> None:
    program(bin_folder, "apt-get", f'echo x >> "{tmp_path}/calls"; echo "no route" >&2; exit 100')
    program(bin_folder, "dpkg-deb")
    for _ in range(2):
        with pytest.raises(CommandError) as raised:
            have_tool("prometheus")
        assert "no route" in raised.value.why
    assert (tmp_path / "calls").read_text().count("x") == 3
    assert os.environ[FOLDER] == str(tmp_path / "own")
