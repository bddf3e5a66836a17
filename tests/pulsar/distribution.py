"""Pulsar's server, one of three versions: fetched once, checked, outside of the checkout.

Decides which version (BALLAST_PULSAR_VERSION, else 4.0.8), where it lies (BALLAST_PULSAR, else the
user's cache folder) and that its bytes are the pinned ones. 4.0.8 is the released archive; of the
others the repository may have no archive, so they are put together from `pulsar-broker` and what it
needs, with the scripts and the configuration of 4.2.4's source release. Only the demonstration, the
lab and the tests need it; where the repository can't be reached those end with an error and the
tests are skipped, for that says nothing about Ballast, while other bytes fail all.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from jobs.adapters.processes.preflight import check_disk, find_java
from jobs.adapters.processes.processes import last_output
from jobs.console import CommandError, MisuseError, note


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file of a repository. kind: its extension."""

    group: str
    name: str
    revision: str
    classifier: str = ""
    kind: str = "jar"

    @property
    def file_name(self) -> str:
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{tail}.{self.kind}"


def fetch(place: Path, wanted: Sequence[Artifact]) -> str:
    """Put them into a folder, `place`, with Ivy's cache beside; what Ivy said at its end."""
    mirror = os.environ.get("BALLAST_JAR_MIRROR", "")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    (place / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(ivy_cache(place)))}/><resolvers>"
        f'<ibiblio name="central" m2compatible="true" usepoms="false"{root}/>'
        "</resolvers></ivysettings>"
    )
    (place / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="ballast" module="pulsar"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{_dependencies(wanted)}</dependencies></ivy-module>"
    )
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    words = [find_java().command, "-jar", str(jars[-1]), "-settings", "ivysettings.xml"]
    words += ["-ivy", "ivy.xml", "-confs", "default", "-retrieve"]
    ended = subprocess.run(
        [*words, f"{place}/[artifact]-[revision](-[classifier]).[ext]"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    return last_output(ended.stdout + ended.stderr)


def ivy_cache(place: Path) -> Path:
    return place / "ivy-cache"


def _dependencies(wanted: Sequence[Artifact]) -> str:
    """One for each module, with all that is wanted of it."""
    modules = dict.fromkeys((one.group, one.name, one.revision) for one in wanted)
    return "".join(
        f'<dependency org="{group}" name="{name}" rev="{revision}" conf="default->default"'
        f' transitive="false">{_files(group, name, wanted)}</dependency>'
        for group, name, revision in modules
    )


def _files(group: str, name: str, wanted: Sequence[Artifact]) -> str:
    found = [one for one in wanted if (one.group, one.name) == (group, name)]
    return "".join(
        f'<artifact name="{name}" type="{one.kind}" ext="{one.kind}"'
        + (f' m:classifier="{one.classifier}"' if one.classifier else "")
        + "/>"
        for one in found
    )


DEFAULT = "4.0.8"
VERSIONS = (DEFAULT, "4.2.4", "5.0.0-M1")
VARIABLE = "BALLAST_PULSAR_VERSION"
_ARCHIVE = Artifact(
    group="org.apache.pulsar",
    name="pulsar-server-distribution",
    revision=DEFAULT,
    classifier="bin",
    kind="tar.gz",
)
_SHA256 = "35c7d064c9e0928edbf2e708989faba0379662f98aa84ce0d4190c59efb6765e"
_SOURCES = "source-release"
_BYTES = 900_000_000


class NotFetchedError(CommandError):
    """The repository did not give it."""


def chosen_version() -> str:
    """The version that BALLAST_PULSAR_VERSION names; raises MisuseError for one we don't have."""
    named = os.environ.get(VARIABLE) or DEFAULT
    if named not in VERSIONS:
        raise MisuseError(
            f"{VARIABLE} is {named}",
            why=f"the versions of Pulsar that are known are {', '.join(VERSIONS)}",
            next_step="name one of these, or leave it out",
        )
    return named


def default_folder() -> Path:
    """Where servers are kept, beside everything else that is cached for this user."""
    named = os.environ.get("BALLAST_PULSAR", "")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else caches / "ballast" / "pulsar"


def ensure_distribution(version: str = "") -> Path:
    """The unpacked server of a version, else the chosen one; fetched and checked when need be.

    Safe to interrupt and to repeat, and from several processes at once. Raises CommandError when
    the repository, the disk or a checksum fails.
    """
    wanted, place = version or chosen_version(), default_folder()
    place.mkdir(parents=True, exist_ok=True)
    home, stamp = place / f"apache-pulsar-{wanted}", place / f"{wanted}.complete"
    pinned = pinned_files(wanted)
    digest = _digest(pinned)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == digest and home.is_dir()):
            fetched = _fetched(place, wanted, pinned)
            shutil.rmtree(home, ignore_errors=True)
            _unpack(fetched, home) if wanted == DEFAULT else _assemble(fetched, pinned, home)
            shutil.rmtree(fetched)
            stamp.write_text(digest)
    return home


def pinned_files(version: str) -> Mapping[Artifact, str]:
    """What a version is made of → its SHA256, lower-case hex."""
    if version == DEFAULT:
        return {_ARCHIVE: _SHA256}
    lines = Path(__file__).with_name(f"jars-{version}.lock").read_text().splitlines()
    pairs = [line.split() for line in lines if not line.startswith("#")]
    return {_artifact(coordinate): sha256 for coordinate, sha256 in pairs}


def _digest(pinned: Mapping[Artifact, str]) -> str:
    """Of all of it; of one file its own."""
    found = sorted(pinned.values())
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def _artifact(coordinate: str) -> Artifact:
    group, name, revision, *rest = coordinate.split(":")
    classifier = rest[0] if rest else ""
    kind = "zip" if classifier == _SOURCES else "jar"
    return Artifact(group=group, name=name, revision=revision, classifier=classifier, kind=kind)


def _fetched(place: Path, version: str, pinned: Mapping[Artifact, str]) -> Path:
    folder = place / f"fetched-{version}"
    folder.mkdir(exist_ok=True)
    missing = _wrong(folder, pinned)
    if not missing:
        return folder
    note(f"pulsar: fetching the server {version} (some 250 MB)")
    check_disk(place, _BYTES)
    said = fetch(folder, missing)
    shutil.rmtree(ivy_cache(folder), ignore_errors=True)
    wrong = _wrong(folder, pinned)
    if not wrong:
        return folder
    first = folder / wrong[0].file_name
    what = f"Pulsar's server {version} could not be fetched: {len(wrong)} of {len(pinned)} files"
    if first.exists():
        first.unlink()
        raise CommandError(
            what,
            why=f"the checksum of {first.name} is another one",
            next_step="look at what BALLAST_JAR_MIRROR names, if it is set, and try again",
        )
    raise NotFetchedError(
        what,
        why=said,
        next_step="check the network and run the same command again; BALLAST_JAR_MIRROR may name a"
        " mirror of Maven Central",
    )


def _wrong(folder: Path, pinned: Mapping[Artifact, str]) -> list[Artifact]:
    return [one for one, sha256 in pinned.items() if _sha256(folder / one.file_name) != sha256]


def _sha256(path: Path) -> str:
    """The sha256 of a file as lower-case hex; '' when the file is not there."""
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _unpack(fetched: Path, home: Path) -> None:
    fresh = fetched / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(fetched / _ARCHIVE.file_name) as tar:
        if hasattr(tarfile, "data_filter"):  # since 3.10.12
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(fresh)  # noqa: S202 (its checksum is the pinned one)
    (fresh / home.name).rename(home)


def _assemble(fetched: Path, pinned: Mapping[Artifact, str], home: Path) -> None:
    """As the released archive lays it out: bin, conf and lib."""
    fresh = fetched / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    sources = next(one for one in pinned if one.classifier == _SOURCES)
    with zipfile.ZipFile(fetched / sources.file_name) as archive:
        wanted = [
            one for one in archive.namelist() if one.startswith(("pulsar/bin/", "pulsar/conf/"))
        ]
        archive.extractall(fresh, wanted)  # noqa: S202 (its checksum is the pinned one)
    made = fresh / "pulsar"
    for script in (made / "bin").iterdir():
        script.chmod(0o755)
    (made / "lib").mkdir()
    for one in pinned:
        if one is not sources:
            (fetched / one.file_name).rename(made / "lib" / one.file_name)
    made.rename(home)
