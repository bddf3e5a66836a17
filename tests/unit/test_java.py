"""Finding Java: which one is taken, and what is said when none fits."""

from pathlib import Path

import pytest

from jobs.adapters.processes.preflight import find_java, parse_major
from jobs.console import CommandError


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


def test_find_java_prefers_the_named_one_over_home_and_path(tmp_path: Path) -> None:
    named = _java_that_says(tmp_path / "named", 'openjdk version "21.0.1"')
    _java_that_says(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    java = find_java({"BALLAST_JAVA": str(named), "JAVA_HOME": str(tmp_path / "home")})
    assert (java.command, java.major) == (str(named), 21)


def test_find_java_takes_home_before_path(tmp_path: Path) -> None:
    home = _java_that_says(tmp_path / "home" / "bin", 'openjdk version "17.0.1"')
    _java_that_says(tmp_path / "path", 'openjdk version "21.0.1"')
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert java.command == str(home)


def test_find_java_without_any_says_how_to_install(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        find_java({"PATH": str(tmp_path)})
    assert "not found" in caught.value.what
    assert "install Java 17" in caught.value.next_step


def test_find_java_too_old_names_its_version(tmp_path: Path) -> None:
    old = _java_that_says(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(CommandError) as caught:
        find_java({"BALLAST_JAVA": str(old)})
    assert "too old" in caught.value.what
    assert "Java 11" in caught.value.what


def test_find_java_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        find_java({"BALLAST_JAVA": str(tmp_path / "absent")})
    assert "does not start" in caught.value.what
