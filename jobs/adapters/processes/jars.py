"""The jars of Kafka and Delta: a list with digests, and the download of what is missing.

conf/jars.lock pins each file. Maven Central, or the mirror that BALLAST_JAR_MIRROR names, serves
them. A file takes its place only when its sha256 is the pinned one. Standard library only: set-up
imports this before anything else is importable.
"""

import fcntl
import hashlib
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from jobs.adapters.processes.paths import CONF
from jobs.adapters.processes.preflight import check_disk
from jobs.console import CommandError, note

LOCK_PATH = CONF / "jars.lock"
FOLDERS = ("broker", "spark")
CENTRAL = "https://repo1.maven.org/maven2"
_JARS_BYTES = 120_000_000
_AT_ONCE = 4
_TIMEOUT_S = 30.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One pinned jar. folder: `broker` or `spark`; sha256: lower-case hex."""

    folder: str
    group: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the folder."""
        return f"{self.artifact}-{self.revision}.jar"

    @property
    def repository_path(self) -> str:
        """Its path in a Maven repository."""
        group = self.group.replace(".", "/")
        return f"{group}/{self.artifact}/{self.revision}/{self.file_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarStore:
    """Folder of the jars: root/broker/*.jar and root/spark/*.jar."""

    root: Path

    def path_of(self, jar: Jar) -> Path:
        """Return the path where `jar` is, or will be."""
        return self.root / jar.folder / jar.file_name


def default_store(environment: Mapping[str, str] | None = None) -> JarStore:
    """The store that BALLAST_JARS names, otherwise the one in this virtual environment."""
    named = (os.environ if environment is None else environment).get("BALLAST_JARS", "")
    return JarStore(root=Path(named) if named else store_path(Path(sys.prefix)))


def store_path(venv: Path) -> Path:
    """Return the folder where a virtual environment keeps the jars."""
    return venv / "share" / "ballast" / "jars"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars of a lock file: `folder group:artifact:revision sha256` a line, # for comments."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and not words[0].startswith("#"):
            jars.append(_parse_line(words, number))
    return tuple(jars)


def jar_paths(folder: str, store: JarStore | None = None) -> tuple[Path, ...]:
    """The jars of `broker` or `spark`, in the order of the lock; CommandError when one is missing.

    Spark wants them as `spark.jars`, Kafka as its class path.
    """
    if folder not in FOLDERS:
        raise ValueError(f"folder must be one of {FOLDERS}, got {folder!r}")
    place = default_store() if store is None else store
    jars = [jar for jar in parse_lock(LOCK_PATH.read_text()) if jar.folder == folder]
    absent = [jar.file_name for jar in jars if not place.path_of(jar).exists()]
    if absent:
        raise CommandError(
            f"{len(absent)} jars are missing, {absent[0]} first",
            why=f"nobody has filled {place.root} yet",
            next_step="run what needs them (run-local, attach, the job), which fetches them, or"
            " `make setup` in a checkout",
        )
    return tuple(map(place.path_of, jars))


def absent_jars(store: JarStore, lock_text: str | None = None) -> tuple[Jar, ...]:
    """Those of the lock that are not there."""
    wanted = parse_lock(LOCK_PATH.read_text() if lock_text is None else lock_text)
    return tuple(jar for jar in wanted if not store.path_of(jar).exists())


def ensure_jars(folder: str) -> tuple[Path, ...]:
    """The jars of `broker` or `spark`; fetches those of both first where some are missing.

    Raises CommandError when they can't be had.
    """
    place = default_store()
    if absent_jars(place):
        fetch_jars(place)
    return jar_paths(folder, place)


def fetch_jars(store: JarStore, lock_text: str | None = None, mirror: str = "") -> None:
    """Fetch the missing jars, one process at a time; may be interrupted and repeated.

    mirror: URL of a Maven repository, "" = BALLAST_JAR_MIRROR, or else Maven Central. Raises
    CommandError when a repository, the disk or a checksum fails.
    """
    root = (mirror or os.environ.get("BALLAST_JAR_MIRROR") or CENTRAL).rstrip("/")
    with _alone(store):
        jars = absent_jars(store, lock_text)
        if not jars:  # another process may have fetched them meanwhile
            return
        check_disk(store.root, _JARS_BYTES)
        note(f"fetching {len(jars)} jars of Kafka and Delta, once, into {store.root}")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            faults = [one for one in pool.map(lambda jar: _fetch(store, jar, root), jars) if one]
    if faults:
        raise CommandError(
            f"{len(faults)} of the pinned jars could not be fetched",
            why=faults[0],
            next_step="check the network and run the same command again, it goes on where it"
            " stopped; BALLAST_JAR_MIRROR may name a mirror of Maven Central",
        )


def _fetch(store: JarStore, jar: Jar, root: str) -> str:
    """Fetch one jar; the fault, "" = none."""
    path, fault = store.path_of(jar), ""
    for _ in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(  # noqa: S310 (the operator's own mirror may be a file)
                f"{root}/{jar.repository_path}", timeout=_TIMEOUT_S
            ) as answer:
                content = answer.read()
        except (OSError, HTTPException, ValueError) as error:
            fault = f"{jar.file_name}: {error}"
            continue
        if hashlib.sha256(content).hexdigest() != jar.sha256:
            return f"{jar.file_name} has another checksum at {root} than conf/jars.lock says"
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(content)
        part.replace(path)
        return ""
    return fault


def _parse_line(words: Sequence[str], number: int) -> Jar:
    coordinate = words[1].split(":") if len(words) == 3 else []  # noqa: PLR2004 (three columns)
    if len(coordinate) != 3 or words[0] not in FOLDERS:  # noqa: PLR2004 (group:artifact:revision)
        shape = "`folder group:artifact:revision sha256`"
        raise ValueError(f"line {number} must be {shape}, got {' '.join(words)!r}")
    group, artifact, revision = coordinate
    return Jar(folder=words[0], group=group, artifact=artifact, revision=revision, sha256=words[2])


@contextmanager
def _alone(place: JarStore) -> Iterator[None]:
    """Keep other processes that need them waiting."""
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        lock = (place.root / "fetching").open("w")
    except OSError as cause:
        raise CommandError(
            "the jars of Kafka and Delta can't be fetched",
            why=f"{place.root} can't be written to: {cause.strerror}",
            next_step="run the same command once as a user who may write there, or name a folder"
            " of your own in BALLAST_JARS",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
