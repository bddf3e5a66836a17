"""Checks before set-up or a start: disk, ports, folder names, Python, Java.

Each check passes silently or raises CommandError with the next step. Standard library only.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.console import CommandError, MisuseError

OLDEST_PYTHON = (3, 10)
_MB = 1_000_000
_PORT_MAX = 65_535
_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^,\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NAME_MAX_BYTES, _PATH_MAX_BYTES = 255, 3_000
_LOWEST_PORT, _HIGHEST_PORT = 15_000, 32_000


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Raise unless `version` (major, minor), of the running Python, is new enough."""
    if version < OLDEST_PYTHON:
        raise CommandError(
            f"Python {version[0]}.{version[1]} is too old",
            why=f"Ballast needs Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer",
            next_step="run make with PYTHON=/path/to/a/newer/python3, or install one",
        )


def check_disk(folder: Path, needed_bytes: int) -> None:
    """Raise unless the disk of `folder` (or its nearest parent) has the room."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < needed_bytes:
        raise CommandError(
            f"the disk of {place} is too full",
            why=f"{needed_bytes // _MB} MB are needed, {free_bytes // _MB} MB are free",
            next_step="free some space there, or set VENV to a folder on another disk",
        )


def check_folder(folder: Path) -> None:
    """Raise MisuseError for a folder's name that delta-rs or Kafka can't use.

    delta-rs takes `%41` or a backslash for another folder, and ends the process at [ ] | ^ or a
    control character; Kafka takes a comma for the end of a folder's name.
    """
    place = os.path.abspath(folder)  # noqa: PTH100 (Path has nothing that leaves links as they are)
    odd = _ODD.search(place)
    why = f"its name has {odd[0]!r}, and delta-rs or Kafka would use another folder" if odd else ""
    longest = max(len(os.fsencode(part)) for part in Path(place).parts)
    if longest > _NAME_MAX_BYTES or len(os.fsencode(place)) > _PATH_MAX_BYTES:
        why = f"a part of it has {longest} bytes, all {len(os.fsencode(place))}"
        why += f"; {_NAME_MAX_BYTES} and {_PATH_MAX_BYTES} are the most"
    if why:
        raise MisuseError(
            f"{place} can't hold state or tables",
            why=why,
            next_step="name another folder, without \\ [ ] | ^ , control characters and %41",
        )


def check_port(port: int, server: str, otherwise: str = "choose another port") -> None:
    """Raise when something else listens on the loopback port that a server needs.

    server: its name. otherwise: what can be done instead of ending what listens there.
    """
    if not 1 <= port <= _PORT_MAX:
        raise CommandError(
            f"{port} is no port for {server}",
            why=f"a port is a number from 1 to {_PORT_MAX}",
            next_step=otherwise,
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as cause:
            raise CommandError(
                f"port {port}, which {server} needs, is taken",
                why=str(cause),
                next_step=f"end the process that listens on it (see `ss -ltnp 'sport = :{port}'`), "
                f"or {otherwise}",
            ) from None


def free_ports(count: int) -> list[int]:
    """Return different ports on which no process listens now, on any address.

    They lie below the range from which the system takes the ports of outgoing connections: there,
    a client that keeps trying to reach a stopped server may connect to itself and hold the port.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _LOWEST_PORT + secrets.randbelow(_HIGHEST_PORT - _LOWEST_PORT)
        if port not in ports:
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("0.0.0.0", port))  # noqa: S104 (a probe; servers bind all)
                ports.append(port)
    return ports


OLDEST_JAVA = 17
_HOW_TO_INSTALL = (
    f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless;"
    " macOS: brew install openjdk@17), or set BALLAST_JAVA to one that you have"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that is new enough: the command that starts it, and its major version."""

    command: str
    major: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use; raises CommandError when there is none or it is too old."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if "utf" not in (next(filter(None, named), None) or "").lower():
        os.environ["LC_ALL"] = "C.UTF-8"  # with C alone Java would write é as another folder
    command = _java_command(os.environ if environment is None else environment)
    try:
        answer = subprocess.run(  # noqa: S603 (the user's own Java)
            [command, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise CommandError(
            f"{command} does not start", why=str(cause), next_step=_HOW_TO_INSTALL
        ) from None
    major = parse_major(answer.stdout + answer.stderr)
    if major is None:
        raise CommandError(
            f"{command} does not say its version",
            why=(answer.stdout + answer.stderr).strip()[:200] or f"exit code {answer.returncode}",
            next_step=_HOW_TO_INSTALL,
        )
    if major < OLDEST_JAVA:
        raise CommandError(
            f"Java is too old: {command} is Java {major}",
            why=f"Spark 4 and Kafka 4 need Java {OLDEST_JAVA} or newer",
            next_step=_HOW_TO_INSTALL,
        )
    return Java(command=command, major=major)


def use_java_home() -> None:
    """Let Spark start the same Java as everything else, unless JAVA_HOME is set."""
    os.environ.setdefault("JAVA_HOME", str(Path(find_java().command).resolve().parents[1]))


def parse_major(text: str) -> int | None:
    """Return the major version of `java -version`.

    17 for "17.0.15", 8 for "1.8.0_402".
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = found.groups()
    return int(second) if first == "1" and second else int(first)


def _java_command(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME", "")
    of_home = str(Path(home) / "bin" / "java") if home else ""
    found = (
        environment.get("BALLAST_JAVA")
        or (of_home and Path(of_home).exists() and of_home)
        or shutil.which("java", path=environment.get("PATH", os.defpath))
    )
    if not found:
        raise CommandError(
            "Java was not found",
            why="neither BALLAST_JAVA, JAVA_HOME nor the PATH leads to one",
            next_step=_HOW_TO_INSTALL,
        )
    return found
