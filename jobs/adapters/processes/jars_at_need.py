"""Has the jars where nobody has set them up: whoever installed a wheel gets them at first need.

Decides when they are fetched: as soon as a process needs one that is missing, by one process at a
time. Standard library only.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from jobs.adapters.processes.jars import (
    LOCK_PATH,
    JarStore,
    absent_jars,
    default_store,
    fetch_jars,
    jar_paths,
)
from jobs.adapters.processes.java import find_java
from jobs.adapters.processes.preflight import check_disk
from jobs.console import CommandError, note

JARS_BYTES = 300_000_000
"""Disk space of the jars, including those that Ivy keeps."""


def have_jars(folder: str) -> tuple[Path, ...]:
    """The jars of `broker` or `spark`; fetches those of both first where some are missing.

    Raises CommandError when they can't be had.
    """
    place = default_store()
    if absent_jars(place):
        with _alone(place):
            if absent_jars(place):  # another process may have fetched them meanwhile
                _fetch(place)
    return jar_paths(folder, place)


def fetch_locked(place: JarStore, java: str, site_packages: Path) -> None:
    """Fetch what conf/jars.lock names, by the Ivy of the pyspark in `site_packages`."""
    check_disk(place.root, JARS_BYTES)
    ivy_jars = sorted(site_packages.glob("pyspark/jars/ivy-*.jar"))
    if not ivy_jars:
        raise CommandError(
            "pyspark's Ivy is missing",
            why=f"no pyspark/jars/ivy-*.jar in {site_packages}",
            next_step="install pyspark anew (pip install --force-reinstall --no-deps pyspark),"
            " then run the same command again",
        )
    mirror = os.environ.get("BALLAST_JAR_MIRROR", "")
    lock_text = LOCK_PATH.read_text()
    fetch_jars(place, lock_text, java=java, ivy_jar=ivy_jars[-1], mirror=mirror)


def _fetch(place: JarStore) -> None:
    java = find_java()
    note(f"fetching the jars of Kafka and Delta, once: 55 MB in {place.root}")
    began_s = time.monotonic()
    found = find_spec("pyspark")
    origin = Path(found.origin) if found and found.origin else Path("pyspark/__init__.py")
    fetch_locked(place, java.command, origin.parents[1])
    note(f"    done in {time.monotonic() - began_s:.0f} s")


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
