"""The lock of the jars, and when the fetched ones count as complete."""

import hashlib
from pathlib import Path

import pytest

from jobs.adapters.processes.jars import (
    LOCK_PATH,
    Jar,
    JarStore,
    default_store,
    fetch_jars,
    is_complete,
    jar_paths,
    parse_lock,
    sha256_of,
)
from jobs.console import CommandError

_BYTES = b"not really a jar"
_LOCK = f"# a comment\n\nbroker org.example:thing:1.0 {hashlib.sha256(_BYTES).hexdigest()}\n"


def _ivy_that(folder: Path, action: str) -> Path:
    """A stand-in for Java: a script that does what Ivy would, with the folder of the jars as $J."""
    java = folder / "java"
    java.write_text(f"#!/bin/sh\nJ={folder / 'jars'}\nmkdir -p $J/broker\n{action}\n")
    java.chmod(0o755)
    return java


def _fetch(folder: Path, action: str) -> JarStore:
    store = JarStore(root=folder / "jars")
    java = str(_ivy_that(folder, action))
    fetch_jars(store, _LOCK, java=java, ivy_jar=folder / "ivy.jar", mirror="")
    return store


def test_parse_lock_skips_comments_and_reads_columns() -> None:
    assert parse_lock(_LOCK) == (
        Jar(
            folder="broker",
            group="org.example",
            artifact="thing",
            revision="1.0",
            sha256=hashlib.sha256(_BYTES).hexdigest(),
        ),
    )


@pytest.mark.parametrize("line", ["broker a:b:1", "cellar a:b:1 00", "broker a:b 00", "x"])
def test_parse_lock_malformed_line_names_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 must be"):
        parse_lock(f"# first\n{line}\n")


def test_fetch_jars_right_bytes_are_complete(tmp_path: Path) -> None:
    store = _fetch(tmp_path, f"printf '{_BYTES.decode()}' > $J/broker/thing-1.0.jar")
    assert is_complete(store, _LOCK)


def test_is_complete_after_change_of_lock_or_loss_of_file_is_false(tmp_path: Path) -> None:
    store = _fetch(tmp_path, f"printf '{_BYTES.decode()}' > $J/broker/thing-1.0.jar")
    assert not is_complete(store, _LOCK + "# changed\n")
    store.path_of(parse_lock(_LOCK)[0]).unlink()
    assert not is_complete(store, _LOCK)


def test_fetch_jars_wrong_bytes_are_removed_and_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, "printf 'evil' > $J/broker/thing-1.0.jar")
    assert "checksum" in caught.value.what
    assert not (tmp_path / "jars" / "broker" / "thing-1.0.jar").exists()
    assert not is_complete(JarStore(root=tmp_path / "jars"), _LOCK)


def test_fetch_jars_offline_says_why_and_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, "echo 'Server access error: host is down'; exit 1")
    assert "1 of the pinned jars" in caught.value.what
    assert "host is down" in caught.value.why
    assert "BALLAST_JAR_MIRROR" in caught.value.next_step


def test_fetch_jars_mirror_is_written_for_ivy(tmp_path: Path) -> None:
    store = JarStore(root=tmp_path / "jars")
    java = str(_ivy_that(tmp_path, f"printf '{_BYTES.decode()}' > $J/broker/thing-1.0.jar"))
    mirror = "file:///a&b/maven"
    fetch_jars(store, _LOCK, java=java, ivy_jar=tmp_path / "ivy.jar", mirror=mirror)
    assert 'root="file:///a&amp;b/maven"' in (store.root / "ivysettings.xml").read_text()


def test_default_store_follows_the_environment(tmp_path: Path) -> None:
    assert default_store({"BALLAST_JARS": str(tmp_path)}).root == tmp_path


def test_jar_paths_missing_jars_point_to_set_up(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        jar_paths("spark", JarStore(root=tmp_path))
    assert "make setup" in caught.value.next_step


def test_jar_paths_of_set_up_have_the_locked_bytes() -> None:
    jars = {
        jar.file_name: jar for jar in parse_lock(LOCK_PATH.read_text()) if jar.folder == "spark"
    }
    paths = jar_paths("spark")
    assert {path.name: sha256_of(path) for path in paths} == {
        name: jar.sha256 for name, jar in jars.items()
    }
