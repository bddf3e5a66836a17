"""Class archives on the real Java: used by Kafka and Spark, and left where they don't fit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from jobs.adapters.processes.class_archive import KAFKA, PROGRAMS, SPARK, archive_path
from jobs.adapters.processes.jars import JarStore, default_store

ROOT = Path(__file__).resolve().parents[2]
_SPARK = """
import sys
from pathlib import Path
from jobs.adapters.processes.class_archive import SPARK, archive_words
from jobs.adapters.processes.jars import jar_paths
from jobs.adapters.spark.stream import driver_options, spark_session
words = driver_options([*archive_words(SPARK), "-Xlog:class+load:file=" + sys.argv[1]])
session = spark_session(jar_paths("spark"), master="local[1]", local_dir=Path(sys.argv[2]),
                        settings={"spark.driver.extraJavaOptions": words})
assert session.range(3).count() == 3
session.stop()
"""


def test_kafka_finds_its_classes_in_the_archive(tmp_path: Path) -> None:
    """As a rule three quarters; Java decides what it keeps, and has once kept a third."""
    assert _from_archive(_loads_of_kafka(tmp_path)) > 0.2


def test_spark_finds_its_classes_in_the_archive(tmp_path: Path) -> None:
    loads = tmp_path / "loads"
    _run("-c", _SPARK, str(loads), str(tmp_path / "spark"))
    assert _from_archive(loads) > 0.5


@pytest.mark.parametrize("kind", ["of another class path", "no archive"])
def test_kafka_starts_without_an_archive_that_does_not_fit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _jars_alone(tmp_path)
    path = archive_path(KAFKA, store)
    path.parent.mkdir()
    if kind == "no archive":
        path.write_bytes(bytes(range(256)) * 1_000)
    else:
        path.symlink_to(archive_path(SPARK))
    monkeypatch.setenv("BALLAST_JARS", str(store.root))
    assert _from_archive(_loads_of_kafka(tmp_path)) == 0


@pytest.mark.long
def test_archives_are_recorded_and_used_in_a_folder_whose_name_has_a_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _jars_alone(tmp_path / "a folder")
    monkeypatch.setenv("BALLAST_JARS", str(store.root))
    for _ in range(2):  # the second time beside those of the first
        _run("-m", "jobs.class_archives")
        assert all(archive_path(program).exists() for program in PROGRAMS)
    assert _from_archive(_loads_of_kafka(tmp_path)) > 0.5
    loads = tmp_path / "loads"
    _run("-c", _SPARK, str(loads), str(tmp_path / "spark"))
    assert _from_archive(loads) > 0.5


def _jars_alone(folder: Path) -> JarStore:
    """A place for jars with the jars of this one, and no archive."""
    root = folder / "jars"
    root.mkdir(parents=True)
    for name in ("broker", "spark"):
        (root / name).symlink_to(default_store().root / name)
    return JarStore(root=root)


def _run(*words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]


def _loads_of_kafka(folder: Path) -> Path:
    """Where Java wrote what a Kafka loaded until it answered."""
    loads = folder / "kafka-loads"
    options = KafkaOptions(java_options=(f"-Xlog:class+load:file={loads}",))
    with EmbeddedKafka(folder / "kafka", options):
        pass
    return loads


def _from_archive(loads: Path) -> float:
    """Which part of what was loaded came from an archive that is ours (Java says: top)."""
    lines = loads.read_text().splitlines()
    return sum("shared objects file (top)" in line for line in lines) / len(lines)
