"""Finds the Java that runs the Kafka broker and Spark, and says so when there is none.

Decides which one: BALLAST_JAVA, then JAVA_HOME/bin/java, then the PATH. Standard library only,
because set-up runs it before anything is installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.console import CommandError

OLDEST_JAVA = 17
_HOW_TO_INSTALL = (
    f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless;"
    " macOS: brew install openjdk@17), or set BALLAST_JAVA to one that you have"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that is new enough: the command that starts it, and its major version.

    build: all that it says of itself, which differs with each update.
    """

    command: str
    major: int
    build: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use; raises CommandError when there is none or it is too old."""
    _use_utf8_names()
    command = _candidate(os.environ if environment is None else environment)
    try:
        said = subprocess.run(  # noqa: S603 (the user's own Java)
            [command, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError as cause:
        raise CommandError(
            f"{command} does not start", why=str(cause), next_step=_HOW_TO_INSTALL
        ) from None
    major = parse_major(said.stdout + said.stderr)
    if major is None:
        raise CommandError(
            f"{command} does not say its version",
            why=(said.stdout + said.stderr).strip()[:200] or f"exit code {said.returncode}",
            next_step=_HOW_TO_INSTALL,
        )
    if major < OLDEST_JAVA:
        raise CommandError(
            f"Java is too old: {command} is Java {major}",
            why=f"Spark 4 and Kafka 4 need Java {OLDEST_JAVA} or newer",
            next_step=_HOW_TO_INSTALL,
        )
    return Java(command=command, major=major, build=said.stdout + said.stderr)


def use_java_home() -> None:
    """Have Spark start the Java that everything else here uses, unless JAVA_HOME names one."""
    os.environ.setdefault("JAVA_HOME", str(Path(find_java().command).resolve().parents[1]))


def _use_utf8_names() -> None:
    """Let Java name files as Python does: under LC_ALL=C it would write é as another folder."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if "utf" not in (next(filter(None, named), None) or "").lower():
        os.environ["LC_ALL"] = "C.UTF-8"


def parse_major(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_402"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = found.groups()
    return int(second) if first == "1" and second else int(first)


def _candidate(environment: Mapping[str, str]) -> str:
    named = environment.get("BALLAST_JAVA", "")
    if named:
        return named
    home = environment.get("JAVA_HOME", "")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is None:
        raise CommandError(
            "Java was not found",
            why="neither BALLAST_JAVA, JAVA_HOME nor the PATH leads to one",
            next_step=_HOW_TO_INSTALL,
        )
    return on_path
