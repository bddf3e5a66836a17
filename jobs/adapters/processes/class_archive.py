"""Class archives: what Kafka and Spark load at each start, kept ready for the next (Java's CDS).

Decides where the archives are and by which words Java uses one. Java itself holds an archive
against its own build and the class path, and starts without one that does not fit: only slower.
`jobs.class_archives` records them. Standard library only. Source: ours; the words are Java 17's.
"""

from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.processes.jars import JarStore, default_store

KAFKA, SPARK = "kafka", "spark"
PROGRAMS = (KAFKA, SPARK)


def archive_path(program: str, store: JarStore | None = None) -> Path:
    """Where a program's archive is, or will be: beside the jars."""
    if program not in PROGRAMS:
        raise ValueError(f"program must be one of {PROGRAMS}, got {program!r}")
    root = (default_store() if store is None else store).root
    return root / "classes" / f"{program}.jsa"


def archive_words(program: str, store: JarStore | None = None) -> Sequence[str]:
    """By which words Java uses the program's archive; none where there is no archive."""
    path = archive_path(program, store)
    if not path.exists():
        return ()
    # of one that doesn't fit Java would say so on standard output, where others read
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds*=off")


def recording_words(path: Path) -> Sequence[str]:
    """By which words Java writes an archive when it ends in order; not beside `archive_words`."""
    return (f"-XX:ArchiveClassesAtExit={path}", "-Xlog:cds*=off")
