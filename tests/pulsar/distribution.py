"""Pulsar's server distribution: fetched once, checked, unpacked outside of the checkout.

Decides where it lies (BALLAST_PULSAR, else the user's cache folder) and that its bytes are the
pinned ones. Fetched by the Ivy that pyspark ships, from Maven Central or the mirror that
BALLAST_JAR_MIRROR names. Only the demonstration and the tests need it; where the repository can't
be reached the demonstration ends with an error and the tests are skipped, for that says nothing
about Ballast, while bytes that are other than the pinned ones fail both. Source: ours.
"""

import fcntl
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from jobs.adapters.processes.jars import sha256_of
from jobs.adapters.processes.java import find_java
from jobs.adapters.processes.preflight import check_disk
from jobs.adapters.processes.progress import last_words
from jobs.console import CommandError, note

VERSION = "4.0.8"
SHA256 = "35c7d064c9e0928edbf2e708989faba0379662f98aa84ce0d4190c59efb6765e"
_ARTIFACT = "pulsar-server-distribution"
_BYTES = 900_000_000


class NotFetchedError(CommandError):
    """The repository did not give it."""


def default_folder() -> Path:
    """Where the distribution is kept, beside everything else that is cached for this user."""
    named = os.environ.get("BALLAST_PULSAR", "")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else caches / "ballast" / "pulsar"


def ensure_distribution(folder: Path | None = None) -> Path:
    """The unpacked distribution; fetched, checked and unpacked when it isn't there yet.

    Safe to interrupt and to repeat, and from several processes at once. Raises CommandError when
    the repository, the disk or the checksum fails.
    """
    place = folder or default_folder()
    place.mkdir(parents=True, exist_ok=True)
    home = place / f"apache-pulsar-{VERSION}"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = place / f"{VERSION}.complete"
        if not (stamp.exists() and stamp.read_text() == SHA256 and home.is_dir()):
            _unpack(_fetched(place), place)
            stamp.write_text(SHA256)
    return home


def _fetched(place: Path) -> Path:
    archive = place / f"{_ARTIFACT}-{VERSION}.tar.gz"
    if sha256_of(archive) == SHA256:
        return archive
    note(f"pulsar: fetching the server distribution {VERSION} (245 MB)")
    check_disk(place, _BYTES)
    said = _run_ivy(place)
    if sha256_of(archive) == SHA256:
        shutil.rmtree(place / "ivy-cache", ignore_errors=True)
        return archive
    existed = archive.exists()
    archive.unlink(missing_ok=True)
    shutil.rmtree(place / "ivy-cache", ignore_errors=True)
    what = f"Pulsar's server distribution {VERSION} could not be fetched"
    if existed:
        raise CommandError(
            what,
            why="its checksum is another one",
            next_step="look at what BALLAST_JAR_MIRROR names, if it is set, and try again",
        )
    raise NotFetchedError(
        what,
        why=said,
        next_step="check the network and run the same command again; BALLAST_JAR_MIRROR may name a"
        " mirror of Maven Central",
    )


def _run_ivy(place: Path) -> str:
    """What Ivy said at its end."""
    mirror = os.environ.get("BALLAST_JAR_MIRROR", "")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    (place / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(place / 'ivy-cache'))}/><resolvers>"
        f'<ibiblio name="central" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    (place / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="ballast" module="pulsar"/><configurations><conf name="default"/>'
        f'</configurations><dependencies><dependency org="org.apache.pulsar" name="{_ARTIFACT}"'
        f' rev="{VERSION}" conf="default->default" transitive="false"><artifact name="{_ARTIFACT}"'
        ' type="tar.gz" ext="tar.gz" m:classifier="bin"/></dependency></dependencies></ivy-module>'
    )
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    words = [find_java().command, "-jar", str(jars[-1]), "-settings", "ivysettings.xml"]
    words += ["-ivy", "ivy.xml", "-confs", "default", "-retrieve"]
    ended = subprocess.run(
        [*words, f"{place}/[artifact]-[revision].[ext]"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    return last_words(ended.stdout + ended.stderr)


def _unpack(archive: Path, place: Path) -> None:
    fresh = place / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    home = place / f"apache-pulsar-{VERSION}"
    shutil.rmtree(home, ignore_errors=True)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # since 3.10.12
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(fresh)  # noqa: S202 (its checksum is the pinned one)
    (fresh / home.name).rename(home)
    shutil.rmtree(fresh)
