"""The lock of the jars, and when the fetched ones count as complete."""

import hashlib
from pathlib import Path

import pytest

from jobs.adapters.processes.jars import (
    LOCK_PATH,
    Jar,
    JarStore,
    absent_jars,
    default_store,
    fetch_jars,
    jar_paths,
    parse_lock,
)
from jobs.console import CommandError

_BYTES = b"not really a jar"
_LOCK = f"# a comment\n\nbroker org.example:thing:1.0 {hashlib.sha256(_BYTES).hexdigest()}\n"


def _fetch(folder: Path, content: bytes | None) -> JarStore:
    """Fetch from a repository in a folder that has this content, None = nothing."""
    store, served = JarStore(root=folder / "jars"), folder / "maven" / "org/example/thing/1.0"
    if content is not None:
        served.mkdir(parents=True, exist_ok=True)
        (served / "thing-1.0.jar").write_bytes(content)
    fetch_jars(store, _LOCK, (folder / "maven").as_uri())
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


def test_fetch_jars_right_bytes_are_complete_until_one_is_lost(tmp_path: Path) -> None:
    store = _fetch(tmp_path, _BYTES)
    assert not absent_jars(store, _LOCK)
    (jar,) = parse_lock(_LOCK)
    assert store.path_of(jar).read_bytes() == _BYTES
    store.path_of(jar).unlink()
    assert absent_jars(store, _LOCK) == (jar,)


def test_fetch_jars_wrong_bytes_are_not_kept_and_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, b"evil")
    assert "checksum" in caught.value.why
    assert not list((tmp_path / "jars").rglob("*.jar"))


def test_fetch_jars_offline_says_why_and_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, None)
    assert "1 of the pinned jars" in caught.value.what
    assert "No such file" in caught.value.why
    assert "BALLAST_JAR_MIRROR" in caught.value.next_step


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
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths} == {
        name: jar.sha256 for name, jar in jars.items()
    }
