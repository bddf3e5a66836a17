"""Set-up: jars, Java, Pulsar versions, preflight checks."""

import hashlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import prepare
from jobs.adapters.processes.jars import (
    LOCK_PATH,
    Jar,
    ensure_jars,
    fetch,
    jars_folder,
    parse_lock,
)
from jobs.adapters.processes.preflight import (
    check_disk,
    check_port,
    check_python,
    find_java,
    free_ports,
    parse_major,
)
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


def test_packages_are_installed_once_and_again_for_more_or_after_a_change(place: Place) -> None:
    _python_that(place, "exit 0")
    assert prepare.install_packages(place, "run")
    assert ["requirements-build.lock" in call for call in _calls(place)] == [True, False]
    assert all("--require-hashes" in call for call in _calls(place))
    assert not prepare.install_packages(place, "run")
    assert len(_calls(place)) == 2
    (place.root / "requirements.lock").write_text("other\n")
    assert prepare.install_packages(place, "run")
    assert prepare.install_packages(place, "dev")
    assert not prepare.install_packages(place, "run")


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


_BYTES = b"not really a jar"
_LOCK = f"# a comment\n\norg.example:thing:1.0 {hashlib.sha256(_BYTES).hexdigest()}\n"


@pytest.fixture
def jar() -> Jar:
    (found,) = parse_lock(_LOCK)
    return found


def _fetch(folder: Path, jar: Jar, action: str) -> Path:
    """What Ivy would do is a script's, with the folder that Ivy fills as $J."""
    folder.joinpath("jars", "fetched").mkdir(parents=True)
    fetch(folder / "jars", [jar], ["/bin/sh", "-c", f"J={folder}/jars/fetched; {action}"])
    return folder / "jars" / jar.file_name


def test_parse_lock_skips_comments_and_reads_columns() -> None:
    assert parse_lock(_LOCK) == (
        Jar(
            group="org.example",
            artifact="thing",
            revision="1.0",
            sha256=hashlib.sha256(_BYTES).hexdigest(),
        ),
    )


@pytest.mark.parametrize("line", ["a:b:1", "cellar a:b:1 00", "a:b 00", "x"])
def test_parse_lock_malformed_line_names_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 must be"):
        parse_lock(f"# first\n{line}\n")


def test_fetch_wrong_bytes_are_refused_and_not_kept(tmp_path: Path, jar: Jar) -> None:
    with pytest.raises(CommandError, match="checksum"):
        _fetch(tmp_path, jar, "printf 'evil' > $J/thing-1.0.jar")
    assert not (tmp_path / "jars" / "thing-1.0.jar").exists()


def test_fetch_offline_says_why_and_how_to_go_on(tmp_path: Path, jar: Jar) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, jar, "echo 'Server access error: host is down'; exit 1")
    assert "1 of the pinned jars" in caught.value.what
    assert "host is down" in caught.value.why
    assert "BALLAST_JAR_MIRROR" in caught.value.next_step


def test_fetch_right_bytes_get_their_name_also_from_a_mirror(
    tmp_path: Path, jar: Jar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BALLAST_JAR_MIRROR", "file:///a&b/maven")
    path = _fetch(tmp_path, jar, f"printf '{_BYTES.decode()}' > $J/thing-1.0.jar")
    assert path.read_bytes() == _BYTES
    assert 'root="file:///a&amp;b/maven"' in path.with_name("ivysettings.xml").read_text()


def test_jars_folder_follows_the_environment(tmp_path: Path) -> None:
    assert jars_folder(None, {"BALLAST_JARS": str(tmp_path)}) == tmp_path
    assert jars_folder(tmp_path, {}).is_relative_to(tmp_path)


def test_jars_of_set_up_have_the_locked_bytes() -> None:
    for jar, path in zip(
        parse_lock(LOCK_PATH.read_text()), ensure_jars(jars_folder()), strict=True
    ):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _java_that_says(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_parse_major_of_what_java_prints_is_its_major(text: str, major: int | None) -> None:
    assert parse_major(text) == major


def test_find_java_takes_the_named_one_before_home_before_path(tmp_path: Path) -> None:
    named = _java_that_says(tmp_path / "named", 'openjdk version "21.0.1"')
    home = _java_that_says(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    _java_that_says(tmp_path / "path", 'openjdk version "21.0.1"')
    given = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}
    assert find_java(given).command == str(home)
    java = find_java({**given, "BALLAST_JAVA": str(named)})
    assert (java.command, java.major) == (str(named), 21)


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("PATH", "not found.*install Java 17"),
        ("BALLAST_JAVA", "does not start"),
        ("JAVA_HOME", "too old.*Java 11"),
    ],
)
def test_find_java_that_cannot_be_used_is_an_error(
    tmp_path: Path, variable: str, said: str
) -> None:
    _java_that_says(tmp_path / "home" / "bin", 'openjdk version "11.0.2"')
    place = {"PATH": tmp_path, "BALLAST_JAVA": tmp_path / "absent", "JAVA_HOME": tmp_path / "home"}
    with pytest.raises(CommandError, match=f"(?s){said}"):
        find_java({variable: str(place[variable])})


def test_find_java_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(CommandError, match=r"(?s)does not start.*timed out"):
        find_java({"BALLAST_JAVA": str(tmp_path / "java")})


def test_check_python_too_old_names_both_versions() -> None:
    for version in ((3, 10), (4, 0)):
        check_python(version)
    for version in ((2, 7), (3, 9)):
        with pytest.raises(CommandError, match=r"(?s){}\.{}.*3\.10".format(*version)):
            check_python(version)


def test_check_disk_too_full_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        check_disk(tmp_path, 10**18)
    assert "1000000000000 MB are needed" in caught.value.why
    check_disk(tmp_path / "not" / "yet", 1)


def test_check_port_taken_names_port_and_user() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CommandError) as caught:
            check_port(port, "the lookup service")
    assert str(port) in caught.value.what
    assert "the lookup service" in caught.value.what


def test_free_ports_are_different_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        check_port(port, "this test")
