"""Checks before set-up or a start: disk space, free ports, a new Python.

Each check passes silently or raises CommandError with the next step. Standard library only.
"""

import os
import re
import secrets
import shutil
import socket
import sys
from pathlib import Path

from jobs.console import CommandError, MisuseError

OLDEST_PYTHON = (3, 10)
_MB = 1_000_000
_PORT_MAX = 65_535
_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^,\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NAME_MAX_BYTES, _PATH_MAX_BYTES = 255, 3_000
_LOWEST_PORT, _HIGHEST_PORT = 15_000, 32_000


def check_python(version: tuple[int, int]) -> None:
    """Raise unless `version` (major, minor) is new enough."""
    if version < OLDEST_PYTHON:
        raise CommandError(
            f"Python {version[0]}.{version[1]} is too old",
            why=f"Ballast needs Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer",
            next_step="run make with PYTHON=/path/to/a/newer/python3, or install one",
        )


def check_disk(folder: Path, needed_bytes: int) -> None:
    """Raise unless the disk of `folder` (or of its nearest parent that exists) has the room."""
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
    """Raise MisuseError for a folder whose name no part of the stack but Python can use.

    delta-rs reads a percent sign with two digits and a backslash as another folder, and ends the
    process at [ ] | ^ or a control character; Kafka takes a comma for the end of a folder's name.
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


def check_port(port: int, user: str, otherwise: str = "choose another port") -> None:
    """Raise when something else listens on the loopback port that `user` needs.

    otherwise: what can be done instead of ending what listens there.
    """
    if not 1 <= port <= _PORT_MAX:
        raise CommandError(
            f"{port} is no port for {user}",
            why=f"a port is a number from 1 to {_PORT_MAX}",
            next_step=otherwise,
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as cause:
            raise CommandError(
                f"port {port}, which {user} needs, is taken",
                why=str(cause),
                next_step=f"end the process that listens on it (see `ss -ltnp 'sport = :{port}'`), "
                f"or {otherwise}",
            ) from None


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on at this moment, on whatever address.

    They lie below the range from which the system takes the ports of outgoing connections: there,
    a client that keeps trying to reach a stopped server may connect to itself and hold the port.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _LOWEST_PORT + secrets.randbelow(_HIGHEST_PORT - _LOWEST_PORT)
        if port not in ports and _is_free(port):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (a look; nothing listens: servers bind all)
        except OSError:
            return False
    return True


def running_python() -> tuple[int, int]:
    """The version of the Python that runs this."""
    return sys.version_info[0], sys.version_info[1]
