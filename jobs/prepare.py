"""Set-up of all that a run or the tests need; finished steps are skipped.

The virtual environment, its locked packages, the project itself, the jars. `make` calls it with the
system's Python, so it uses the standard library only. Each step writes its stamp last, so an
interrupted one is done again.

python3 -m jobs.prepare run|dev
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.adapters.processes.jars import absent_jars, ensure_jars, jars_folder
from jobs.adapters.processes.preflight import (
    check_disk,
    check_python,
    find_java,
)
from jobs.console import CommandError, Exit, complain, note
from jobs.parser import Parser

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
BUILD_LOCK = "requirements-build.lock"
_PACKAGES_BYTES = 3_500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A virtual environment that set-up fills, and the checkout it fills it for."""

    root: Path
    venv: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.venv / "bin" / "python"

    def stamp(self, step: str) -> Path:
        """Return the file that marks a finished step, with a digest of its inputs."""
        return self.venv / "share" / "ballast" / f"{step}.done"


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare for `run` or for `dev` (tests and checks too); returns the exit code."""
    parser = Parser(prog="prepare", description="Set Ballast up.")
    parser.add_argument("purpose", choices=sorted(LOCKS))
    parser.add_argument("--venv", default=os.environ.get("VENV") or ".venv", type=Path)
    args = parser.parse_args(argv)
    place = Place(root=ROOT, venv=(ROOT / args.venv).absolute())
    try:
        with alone(place):
            prepare(place, args.purpose)
    except CommandError as error:
        complain(error, as_json=False)
        return error.exit_code
    except KeyboardInterrupt:
        note("set-up: interrupted; the same command goes on where it stopped")
        return Exit.CUT
    return Exit.DONE


def prepare(place: Place, purpose: str) -> None:
    """Execute every unfinished step. Raises CommandError at the first failure."""
    check_python()
    find_java()  # without Java nothing else is worth the wait
    started_s = time.monotonic()
    steps: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("virtual environment", lambda: make_venv(place)),
        ("packages", lambda: install_packages(place, purpose)),
        ("ballast itself", lambda: install_project(place)),
        ("jars of Kafka", lambda: install_jars(place)),
    )
    is_any_done = False
    for name, step in steps:
        began_s = time.monotonic()
        if step():
            note(f"    {name}: done in {time.monotonic() - began_s:.0f} s")
            is_any_done = True
    if is_any_done:
        note(f"set-up: ready after {time.monotonic() - started_s:.0f} s")


def make_venv(place: Place) -> bool:
    """Make the virtual environment; False if a working one exists, made by anyone."""
    probe = [str(place.python), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 10))"]
    if place.python.exists():
        ended = subprocess.run(probe, check=False, capture_output=True)  # noqa: S603 (the user's own Python)
        if not ended.returncode:
            return False
    note(f"set-up: virtual environment in {place.venv}")
    check_disk(place.venv, _PACKAGES_BYTES)
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(place.venv)
    return True


def install_packages(place: Place, purpose: str) -> bool:
    """Install exactly the locked packages, hashes checked; False if all exist."""
    locks = [place.root / name for name in (BUILD_LOCK, LOCKS[purpose])]
    digest = _digest(locks)
    larger = _digest([place.root / BUILD_LOCK, place.root / LOCKS["dev"]])
    if _read(place.stamp("packages")) in (digest, larger):
        return False
    note(f"set-up: packages of {LOCKS[purpose]} (the largest, pyspark, is 460 MB)")
    check_disk(place.venv, _PACKAGES_BYTES)
    for lock in locks:  # what builds the packages comes first, from its own lock
        # locks are whole, so pip chooses nothing, nor does it object to an override of pyproject
        _pip(place, "--no-deps", "--require-hashes", "--requirement", str(lock))
    _write_stamp(place.stamp("packages"), digest)
    return True


def install_project(place: Place) -> bool:
    """Put `ballast` on the path of the virtual environment; False when it is there."""
    digest = _digest([place.root / "pyproject.toml"], str(place.root))
    if _read(place.stamp("project")) == digest:
        return False
    note("set-up: the command ballast")
    _pip(place, "--no-deps", "--editable", str(place.root))
    _write_stamp(place.stamp("project"), digest)
    return True


def install_jars(place: Place) -> bool:
    """Fetch and check the jars; False when they are there."""
    folder = jars_folder(place.venv)
    if not absent_jars(folder):
        return False
    (site_packages,) = place.venv.glob("lib/python*/site-packages")
    ensure_jars(folder, site_packages=site_packages)
    return True


def _pip(place: Place, *arguments: str) -> None:
    """Run pip quietly. Raises CommandError with the next step."""
    command = [
        *(str(place.python), "-m", "pip", "install", "--quiet"),
        *("--no-build-isolation", *arguments),
    ]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    # it inherits set-up's lock, so it can't race with a later set-up
    ended = subprocess.run(command, check=False, env=environment, close_fds=False)  # noqa: S603 (pip of this environment)
    if ended.returncode:
        raise CommandError(
            "the packages could not be installed",
            why=f"pip ended with code {ended.returncode}; it says why above",
            next_step="mend that (the network, with a mirror in PIP_INDEX_URL, or the disk) and run"
            " the same command again; it goes on where it stopped",
        )


@contextmanager
def alone(place: Place) -> Iterator[None]:
    """Keep a second set-up of the same environment waiting until this one is done."""
    lock_path = place.venv.with_name(f"{place.venv.name}.setup-lock")
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("set-up: another one is at work, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Children hold it too: should we be killed, an orphaned pip ends before the next.
        os.set_inheritable(lock.fileno(), True)  # noqa: FBT003 (the call takes no name)
        yield


def _digest(paths: Sequence[Path], *words: str) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write_stamp(path: Path, digest: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(digest)


if __name__ == "__main__":
    sys.exit(main())
