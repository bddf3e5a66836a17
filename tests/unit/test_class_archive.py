"""Class archives: used where one is there, beside the jars that it was recorded with."""

from pathlib import Path

import pytest

from jobs.adapters.processes.class_archive import (
    KAFKA,
    PROGRAMS,
    SPARK,
    archive_path,
    archive_words,
)
from jobs.adapters.processes.jars import JarStore
from jobs.adapters.spark.stream import driver_options


@pytest.mark.parametrize("program", PROGRAMS)
def test_java_is_told_of_an_archive_only_where_there_is_one(program: str, tmp_path: Path) -> None:
    store = JarStore(root=tmp_path / "jars")
    assert archive_words(program, store) == ()
    path = archive_path(program, store)
    path.parent.mkdir(parents=True)
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in archive_words(program, store)


def test_each_program_has_an_archive_of_its_own() -> None:
    assert archive_path(KAFKA) != archive_path(SPARK)
    with pytest.raises(ValueError, match="one of"):
        archive_path("pulsar")


def test_folder_with_a_blank_stays_one_word_of_the_driver() -> None:
    assert driver_options(["-XX:SharedArchiveFile=/my jars/a.jsa"]).endswith(
        " '-XX:SharedArchiveFile=/my jars/a.jsa'"
    )
