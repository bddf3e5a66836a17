"""The jars of the embedded Kafka: the pinned files of conf/jars.lock.

Whatever a repository offers today, only these are used. The Ivy that pyspark ships fetches them
from Maven Central or the mirror that BALLAST_JAR_MIRROR names, without POMs (another tool's
half-filled cache or an unreachable second repository can't break it). They are checked against
their sha256 before they get their name. A process that needs a missing jar fetches it, one process
at a time. Standard library only: set-up runs this before anything else is importable.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jobs.adapters.processes.paths import CONF
from jobs.adapters.processes.preflight import check_disk, find_java
from jobs.adapters.processes.processes import last_lines
from jobs.console import CommandError, note

LOCK_PATH = CONF / "jars.lock"
_DISK_BYTES = 200_000_000
_COLUMNS = 2
_COORDINATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One pinned jar. sha256: lower-case hex."""

    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the folder."""
        return f"{self.artifact}-{self.revision}.jar"


def jars_folder(venv: Path | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of BALLAST_JARS, else the one in a virtual environment.

    venv: None = the one that runs this.
    """
    named = (os.environ if environment is None else environment).get("BALLAST_JARS", "")
    return Path(named) if named else (venv or Path(sys.prefix)) / "share" / "ballast" / "jars"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parse a lock: `group:artifact:revision sha256` a line, # for comments."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        coordinate = words[0].split(":")
        if len(words) != _COLUMNS or len(coordinate) != _COORDINATES:
            shape = "`group:artifact:revision sha256`"
            raise ValueError(f"line {number} must be {shape}, got {line!r}")
        group, artifact, revision = coordinate
        jars.append(Jar(group=group, artifact=artifact, revision=revision, sha256=words[1]))
    return tuple(jars)


def absent_jars(folder: Path, lock: Path = LOCK_PATH) -> list[Jar]:
    """Return the jars of the lock that the folder lacks."""
    return [jar for jar in parse_lock(lock.read_text()) if not (folder / jar.file_name).exists()]


def ensure_jars(
    folder: Path, lock: Path = LOCK_PATH, site_packages: Path | None = None
) -> list[Path]:
    """Return the jars in lock order; fetch missing ones first.

    site_packages: where pyspark is, None = where this Python finds it. What another process fetches
    meanwhile is waited for. Safe to interrupt and to repeat. Raises CommandError when a repository,
    the disk or a checksum fails.
    """
    if absent_jars(folder, lock):
        with _folder_lock(folder):
            absent = absent_jars(folder, lock)  # another process may have fetched them meanwhile
            if absent:
                check_disk(folder, _DISK_BYTES)
                note(f"fetching {len(absent)} jars, once, into {folder}")
                began_s = time.monotonic()
                fetch(folder, absent, _ivy(site_packages))
                note(f"    done in {time.monotonic() - began_s:.0f} s")
    return [folder / jar.file_name for jar in parse_lock(lock.read_text())]


def _ivy(site_packages: Path | None) -> list[str]:
    """The command of the Ivy that pyspark ships. Raises CommandError."""
    found = find_spec("pyspark") if site_packages is None else None
    packages = site_packages or (Path(found.origin).parents[1] if found and found.origin else None)
    jars = sorted(packages.glob("pyspark/jars/ivy-*.jar")) if packages else []
    if not jars:
        raise CommandError(
            "pyspark's Ivy is missing",
            why=f"no pyspark/jars/ivy-*.jar in {packages or 'any folder of packages'}",
            next_step="install pyspark anew (pip install --force-reinstall --no-deps pyspark),"
            " then run the same command again",
        )
    return [find_java().command, "-jar", str(jars[-1])]


def fetch(folder: Path, absent: Sequence[Jar], ivy: Sequence[str]) -> None:
    """Fetch the jars by Ivy, and check each one's bytes before it gets its name.

    Ivy's cache is of this folder alone, so no other tool's leftovers are in it.
    """
    staged, cache, log_path = folder / "fetched", folder / "ivy-cache", folder / "ivy.log"
    _write_ivy_files(folder, cache, absent, os.environ.get("BALLAST_JAR_MIRROR", ""))
    # No -sync: it empties the whole retrieve root. No -types: it drops jars packaged as bundles.
    arguments = ["-settings", str(folder / "ivysettings.xml"), "-ivy", str(folder / "ivy.xml")]
    arguments += ["-confs", "default", "-retrieve", f"{staged}/[artifact]-[revision].[ext]"]
    with log_path.open("w") as log:
        ended = subprocess.run([*ivy, *arguments], stdout=log, stderr=log, check=False)  # noqa: S603 (our own Ivy)
    missing = 0
    for jar in absent:
        path = staged / jar.file_name
        if not path.exists():
            missing += 1
        elif hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256:
            path.replace(folder / jar.file_name)
        else:
            shutil.rmtree(cache / jar.group / jar.artifact, ignore_errors=True)
            raise CommandError(
                f"{jar.file_name} has another checksum than its lock says",
                why="the repository served other bytes, or the download was cut short",
                next_step="run the same command again: the file is fetched anew",
            )
    if missing:
        raise CommandError(
            f"{missing} of the pinned jars could not be fetched",
            why=last_lines(log_path) or f"Ivy ended with code {ended.returncode}",
            next_step="check the network and run the same command again, it goes on where it"
            f" stopped; BALLAST_JAR_MIRROR may name a mirror of Maven Central; see {log_path}",
        )
    shutil.rmtree(cache, ignore_errors=True)


def _write_ivy_files(folder: Path, cache: Path, jars: Sequence[Jar], mirror: str) -> None:
    root = f" root={quoteattr(mirror)}" if mirror else ""  # Ivy's own default is Maven Central
    (folder / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/><resolvers>"
        f'<ibiblio name="central" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    wanted = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.revision}"'
        ' conf="default" transitive="false"/>'
        for jar in jars
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="ballast" module="jars"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; other processes wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "fetching").open("w")
    except OSError as cause:
        raise CommandError(
            "the jars of Kafka can't be fetched",
            why=f"{folder} can't be written to: {cause.strerror}",
            next_step="run the same command once as a user who may write there, or name a folder"
            " of your own in BALLAST_JARS",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
