"""The jars of Kafka and Delta: which, where, and how they get there.

Exactly the pinned files of conf/jars.lock are used, whatever a repository offers today. They are
fetched by the Ivy that pyspark ships, from Maven Central or the mirror that BALLAST_JAR_MIRROR
names, without POMs (another tool's half-filled cache or an unreachable second repository can't
break it), and checked against their sha256 before they get their name. A process that needs a
missing jar fetches it, one process at a time. Standard library only: set-up runs this before
anything else is importable.
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
FOLDERS = ("broker", "spark")
JARS_BYTES = 300_000_000
"""Disk space of the jars, including those that Ivy keeps."""
_BLOCK_BYTES = 1 << 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JarStore:
    """Folder of the jars: root/broker/*.jar and root/spark/*.jar."""

    root: Path

    def path_of(self, jar: Jar) -> Path:
        """Return the path where `jar` is, or will be."""
        return self.root / jar.folder / jar.file_name

    @property
    def ivy_cache(self) -> Path:
        """Ivy's own cache: of this project alone, so no other tool's leftovers are in it."""
        return self.root.parent / "ivy-cache"


def default_store(environment: Mapping[str, str] | None = None) -> JarStore:
    """Return the store of BALLAST_JARS, else the one in this virtual environment."""
    named = (os.environ if environment is None else environment).get("BALLAST_JARS", "")
    return JarStore(root=Path(named) if named else store_path(Path(sys.prefix)))


def store_path(venv: Path) -> Path:
    """Return the folder where a virtual environment keeps the jars."""
    return venv / "share" / "ballast" / "jars"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parse a lock: `folder group:artifact:revision sha256` a line, # for comments."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        jars.append(_parse_line(words, number))
    return tuple(jars)


def jar_paths(folder: str, store: JarStore | None = None) -> tuple[Path, ...]:
    """Return the jars of `broker` or `spark` in lock order. Raises CommandError.

    Spark wants them as `spark.jars`, Kafka as its class path.
    """
    if folder not in FOLDERS:
        raise ValueError(f"folder must be one of {FOLDERS}, got {folder!r}")
    place = default_store() if store is None else store
    paths = [
        place.path_of(jar) for jar in parse_lock(LOCK_PATH.read_text()) if jar.folder == folder
    ]
    absent = [path.name for path in paths if not path.exists()]
    if absent:
        raise CommandError(
            f"{len(absent)} jars are missing, {absent[0]} first",
            why=f"nobody has filled {place.root} yet",
            next_step="run what needs them (run-local, attach, the job), which fetches them, or"
            " `make setup` in a checkout",
        )
    return tuple(paths)


def absent_jars(store: JarStore) -> tuple[Jar, ...]:
    """Those of the lock that are not there."""
    wanted = parse_lock(LOCK_PATH.read_text())
    return tuple(jar for jar in wanted if not store.path_of(jar).exists())


def ensure_jars(folder: str) -> tuple[Path, ...]:
    """Return the jars of `broker` or `spark`; fetch both if some are missing.

    Raises CommandError when they can't be had.
    """
    store = default_store()
    if absent_jars(store):
        found = find_spec("pyspark")
        origin = Path(found.origin) if found and found.origin else Path("pyspark/__init__.py")
        fetch_jars(store, find_java().command, origin.parents[1])
    return jar_paths(folder, store)


def fetch_jars(store: JarStore, java: str, site_packages: Path) -> None:
    """Fetch what is missing, by the Ivy of the pyspark in `site_packages`.

    What another process fetches meanwhile is waited for. Safe to interrupt and to repeat. Raises
    CommandError when a repository, the disk or a checksum fails.
    """
    ivy_jars = sorted(site_packages.glob("pyspark/jars/ivy-*.jar"))
    if not ivy_jars:
        raise CommandError(
            "pyspark's Ivy is missing",
            why=f"no pyspark/jars/ivy-*.jar in {site_packages}",
            next_step="install pyspark anew (pip install --force-reinstall --no-deps pyspark),"
            " then run the same command again",
        )
    with _alone(store):
        absent = absent_jars(store)
        check_disk(store.root, JARS_BYTES)
        note(f"fetching {len(absent)} jars of Kafka and Delta, once: 55 MB in {store.root}")
        began_s = time.monotonic()
        fetch(store, absent, [java, "-jar", str(ivy_jars[-1])])
        note(f"    done in {time.monotonic() - began_s:.0f} s")


def fetch(store: JarStore, absent: Sequence[Jar], ivy: Sequence[str]) -> None:
    """Have Ivy fetch them, and check each one's bytes before it gets its name."""
    staged, log_path = JarStore(root=store.root / "fetched"), store.root / "ivy.log"
    for folder in FOLDERS:
        (store.root / folder).mkdir(parents=True, exist_ok=True)
    _write_ivy_files(store, absent, os.environ.get("BALLAST_JAR_MIRROR", ""))
    # No -sync: it empties the whole retrieve root. No -types: it drops jars packaged as bundles.
    pattern = f"{staged.root}/[conf]/[artifact]-[revision].[ext]"
    settings, module = str(store.root / "ivysettings.xml"), str(store.root / "ivy.xml")
    words = ["-settings", settings, "-ivy", module, "-confs", *FOLDERS, "-retrieve", pattern]
    with log_path.open("w") as log:
        ended = subprocess.run([*ivy, *words], stdout=log, stderr=log, check=False)  # noqa: S603 (our own Ivy)
    missing = 0
    for jar in absent:
        path = staged.path_of(jar)
        digest = sha256_of(path)
        if digest == jar.sha256:
            path.replace(store.path_of(jar))
        elif digest:
            shutil.rmtree(store.ivy_cache / jar.group / jar.artifact, ignore_errors=True)
            raise CommandError(
                f"{jar.file_name} has another checksum than conf/jars.lock says",
                why="the repository served other bytes, or the download was cut short",
                next_step="run the same command again: the file is fetched anew",
            )
        missing += not digest
    if missing:
        raise CommandError(
            f"{missing} of the pinned jars could not be fetched",
            why=last_lines(log_path) or f"Ivy ended with code {ended.returncode}",
            next_step="check the network and run the same command again, it goes on where it"
            f" stopped; BALLAST_JAR_MIRROR may name a mirror of Maven Central; see {log_path}",
        )


def sha256_of(path: Path) -> str:
    """The sha256 of a file as lower-case hex; '' when the file is not there."""
    digest = hashlib.sha256()
    if not path.exists():
        return ""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _parse_line(words: Sequence[str], number: int) -> Jar:
    coordinate = words[1].split(":") if len(words) == 3 else []  # noqa: PLR2004 (three columns)
    if len(coordinate) != 3 or words[0] not in FOLDERS:  # noqa: PLR2004 (group:artifact:revision)
        shape = "`folder group:artifact:revision sha256`"
        raise ValueError(f"line {number} must be {shape}, got {' '.join(words)!r}")
    group, artifact, revision = coordinate
    return Jar(folder=words[0], group=group, artifact=artifact, revision=revision, sha256=words[2])


def _write_ivy_files(store: JarStore, jars: Sequence[Jar], mirror: str) -> None:
    root = f" root={quoteattr(mirror)}" if mirror else ""  # Ivy's own default is Maven Central
    cache = quoteattr(str(store.ivy_cache))
    settings = (
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={cache}/><resolvers>"
        f'<ibiblio name="central" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    confs = "".join(f'<conf name="{folder}"/>' for folder in FOLDERS)
    module = (
        '<ivy-module version="2.0"><info organisation="ballast" module="jars"/>'
        f"<configurations>{confs}</configurations>"
        f"<dependencies>{''.join(map(_dependency, jars))}</dependencies></ivy-module>"
    )
    (store.root / "ivysettings.xml").write_text(settings)
    (store.root / "ivy.xml").write_text(module)


def _dependency(jar: Jar) -> str:
    return (
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.revision}"'
        f' conf="{jar.folder}->default" transitive="false"/>'
    )


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
