"""The lock of the jars, and how they are fetched."""

import hashlib
from pathlib import Path

import pytest

from jobs.adapters.processes.jars import (
    LOCK_PATH,
    Jar,
    JarStore,
    default_store,
    fetch,
    jar_paths,
    parse_lock,
    sha256_of,
)
from jobs.console import CommandError

_BYTES = b"not really a jar"
_LOCK = f"# a comment\n\nbroker org.example:thing:1.0 {hashlib.sha256(_BYTES).hexdigest()}\n"


@pytest.fixture
def jar() -> Jar:
    (found,) = parse_lock(_LOCK)
    return found


def _fetch(folder: Path, jar: Jar, action: str) -> JarStore:
    """What Ivy would do is a script's, with the folder that Ivy fills as $J."""
    store = JarStore(root=folder / "jars")
    ivy = ["/bin/sh", "-c", f"J={store.root}/fetched; mkdir -p $J/broker; {action}"]
    fetch(store, [jar], ivy)
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


def test_fetch_right_bytes_get_their_name(tmp_path: Path, jar: Jar) -> None:
    store = _fetch(tmp_path, jar, f"printf '{_BYTES.decode()}' > $J/broker/thing-1.0.jar")
    assert store.path_of(jar).read_bytes() == _BYTES


def test_fetch_wrong_bytes_are_refused_and_not_kept(tmp_path: Path, jar: Jar) -> None:
    with pytest.raises(CommandError, match="checksum"):
        _fetch(tmp_path, jar, "printf 'evil' > $J/broker/thing-1.0.jar")
    assert not (tmp_path / "jars" / "broker" / "thing-1.0.jar").exists()


def test_fetch_offline_says_why_and_how_to_go_on(tmp_path: Path, jar: Jar) -> None:
    with pytest.raises(CommandError) as caught:
        _fetch(tmp_path, jar, "echo 'Server access error: host is down'; exit 1")
    assert "1 of the pinned jars" in caught.value.what
    assert "host is down" in caught.value.why
    assert "BALLAST_JAR_MIRROR" in caught.value.next_step


def test_fetch_mirror_is_written_for_ivy(
    tmp_path: Path, jar: Jar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BALLAST_JAR_MIRROR", "file:///a&b/maven")
    store = _fetch(tmp_path, jar, f"printf '{_BYTES.decode()}' > $J/broker/thing-1.0.jar")
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
