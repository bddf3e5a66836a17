"""Files, the environment and the command line become one configuration, or an error that helps."""

import contextlib
from pathlib import Path

import pytest

from jobs.adapters.processes.paths import CONF, shipped
from jobs.adapters.processes.settings import (
    describe_differences,
    load_settings,
    read_base,
    read_secret,
)
from jobs.console import CommandError, MisuseError


def test_settings_take_the_overlays_that_the_environment_names() -> None:
    config = load_settings(environment={"BALLAST_CONF": " pulsar , demo "})
    assert config.cluster.authority == "external"
    assert config.pipeline.shed_interval_ms == 5_000
    instead = load_settings(["test"], environment={"BALLAST_CONF": "pulsar"})
    assert (instead.cluster.authority, instead.ownership.broker_timeout_ms) == ("ballast", 3_000)
    assert load_settings(environment={}) == read_base()


def test_settings_take_an_overlay_by_path_and_then_assignments(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[pipeline]\ntrigger_ms = 300\nscorer_groups = 7\n")
    config = load_settings([str(path)], ["pipeline.trigger_ms=400"])
    assert (config.pipeline.trigger_ms, config.pipeline.scorer_groups) == (400, 7)
    assert describe_differences(config, read_base()) == [
        "pipeline.scorer_groups = 7 (base: 2, from mine.toml)",
        "pipeline.trigger_ms = 400 (base: 1000, from --set)",
    ]


def test_settings_in_a_folder_without_a_base_lie_upon_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[lookup]\nport = 9\n")
    assert load_settings(["own"], conf=tmp_path).lookup.port == 9


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_settings_are_read_as_any_editor_writes_utf_8(
    tmp_path: Path, mark: bytes, end: bytes
) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(mark + end.join([b"# \xc3\xa9", b"[lookup]", b"port = 9", b""]))
    assert load_settings([str(path)]).lookup.port == 9


DEEP = 5_000
UNREADABLE = {
    "UTF-16, little": ("[lookup]\n".encode("utf-16"), "UTF-16"),
    "UTF-16, big": (b"\xfe\xff" + "[lookup]\n".encode("utf-16-be"), "UTF-16"),
    "UTF-16 without a mark": ("[lookup]\n".encode("utf-16-le"), "UTF-16"),
    "Latin-1": ("# a\n# é\n".encode("latin-1"), "line 2 has byte 0xe9"),
    "digits": (b"# 1\n[lookup]\nport = " + b"9" * DEEP, "line 3 has a number"),
    "digits of a float": (b"[lookup]\nport = " + b"9" * DEEP + b".5", "write a whole number"),
    "hexadecimal digits": (b"[lookup]\nport = 0x" + b"f" * DEEP, "20000 bits"),
    "digits in a list": (b"[lookup]\nport = [0x" + b"f" * DEEP + b"]", "too large to be shown"),
    "digits alone": (b"lookup = 0x" + b"f" * DEEP, "20000 bits"),
    "lists": (b"[lookup]\n# a\nport = " + b"[" * DEEP + b"]" * DEEP, "line 3 has lists"),
    "lists by the line": (b"a = 1\nport = " + b"[\n" * DEEP + b"]" * DEEP, "has lists"),
    "tables": (b"[lookup]\nport = " + b"{a=" * DEEP + b"1" + b"}" * DEEP, "line 2 has lists"),
    "open lists": (b"[lookup]\nport = " + b"[" * DEEP, "line 2 has lists"),
    "dotted key": (b"[lookup]\nport" + b".a" * DEEP + b" = 1", "can't be used here"),
    "table's name": (b"[lookup" + b".a" * DEEP + b"]\nport = 1", "there is no such setting"),
    "clusters": (b"[clusters" + b".a" * DEEP + b"]\nport = 1", "there is no such section"),
    "nothing but NUL": (b"\0" * 8, "UTF-16"),
    "folder": (None, "Is a directory"),
    "bytes": (b"\xff\xfe", ""),
    "half a line": (b"[pipeline\n", ""),
    "unknown": (b"[pipeline]\ntriger_ms = 3\n", "did you mean pipeline.trigger_ms?"),
    "one of two": (b"[placement]\nstrategy = 'round_robin'\n", "must be ballast or neither"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_settings_that_no_parser_takes_are_misuse_with_their_place(
    tmp_path: Path, kind: str
) -> None:
    content, words = UNREADABLE[kind]
    path = tmp_path / "bad.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(MisuseError) as caught:
        load_settings([str(path)])
    assert str(path) in caught.value.what or words
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1_000 + 2 * DEEP * kind.startswith(("dotted", "table", "clus"))


@pytest.mark.parametrize("text", ["9" * DEEP, "[" * DEEP, "{" * DEEP, "0x" + "f" * DEEP])
def test_assignment_of_any_size_is_misuse(text: str) -> None:
    for key in ("lookup.port", "shedding.strategy", "kafka.bootstrap_servers"):
        with contextlib.suppress(MisuseError):
            load_settings([], [f"{key}={text}"])
    with pytest.raises(MisuseError):
        load_settings([], [f"lookup.port={text}"])


def test_overlay_that_is_not_there_is_misuse_that_lists_those_that_are() -> None:
    with pytest.raises(MisuseError) as raised:
        load_settings(["prodution"])
    assert "demo, production, pulsar, pulsar-4.0-extensible" in raised.value.next_step
    assert str(CONF / "prodution.toml") in raised.value.why


def test_secret_comes_from_the_variable_or_the_file_it_names(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("hush\n")
    assert read_secret("X", {"X": "direct"}) == "direct"
    assert read_secret("X", {"X": "direct", "X_FILE": str(path)}) == "hush"
    assert read_secret("X", {}) == ""
    path.write_bytes(b"\xef\xbb\xbfhidden\r\n")
    assert read_secret("X", {"X_FILE": str(path)}) == "hidden"
    with pytest.raises(CommandError, match="the secret X can't be read"):
        read_secret("X", {"X_FILE": str(tmp_path / "none")})


def test_path_in_conf_is_the_users_own_or_what_came_with_ballast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped(Path("conf/test.toml")) == CONF / "test.toml"
    assert load_settings(["conf/test.toml"]) == load_settings(["test"])
    assert shipped(Path("conf/none.toml")) == Path("conf/none.toml")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "test.toml").touch()
    assert shipped(Path("conf/test.toml")) == Path("conf/test.toml")
