"""Folders with odd names: used as they are named, or refused in a sentence."""

import argparse
import os
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.kafka.embedded_kafka import write_properties
from jobs.adapters.processes.preflight import check_folder, find_java
from jobs.balance_cluster import main as balance_cluster
from jobs.cli import main
from jobs.console import MisuseError
from jobs.local.layout import Layout

USABLE = (
    *(
        "plain",
        "a b",
        "é",
        "e\u0301",
        "🙂",
        "中",
        "quo'te",
        'dou"ble',
        "-dash",
        "--tables",
        "x" * 200,
    ),
    *(
        "a#b",
        "a?b",
        "a*b",
        "{x}",
        "a%b",
        "100%",
        "$x",
        "`b`",
        "a;b",
        "a&b",
        "a=b",
        "~",
        ".x",
        "(x)",
    ),
)
REFUSED = (
    *("%41", "%20", "a%2Fb", "back\\slash", "[1]", "a]", "a|b", "a^b", "a,b"),
    *("new\nline", "tab\tx", "\x1b[31m", "\x7f", "\x85", "x" * 256, "🙂" * 64, "\udc80"),
)


@pytest.mark.parametrize("name", USABLE)
def test_tables_are_in_the_folder_that_was_named(tmp_path: Path, name: str) -> None:
    check_folder(tmp_path / name)
    table = table_place(str(tmp_path / name / "tables")) / "t"
    table.mkdir(parents=True)
    write_deltalake(str(table), pa.table({"a": [1]}))
    write_deltalake(str(table), pa.table({"a": [2]}), mode="append")
    assert DeltaTable(str(table)).version() == 1
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 (names as they are)
    assert len(list((table / "_delta_log").glob("*.json"))) == 2


@pytest.mark.parametrize("name", REFUSED)
def test_folder_that_no_table_can_lie_in_is_refused(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / name / "state"
    with pytest.raises(MisuseError, match="can't hold state or tables"):
        check_folder(there)
    with pytest.raises(MisuseError):
        Layout(root=there)
    for place in (str(there), f"file://{quote(os.fsencode(there))}"):
        with pytest.raises(argparse.ArgumentTypeError, match="can't hold state or tables"):
            table_place(place)
    for words in (["--state-dir", str(there)], ["--tables", str(there)]):
        assert main(["status", *words]) == 2
    assert main(["run-local", "--state-dir", str(there)]) == 2
    job = ["--bootstrap", "127.0.0.1:1", "--tables", str(tmp_path / "t")]
    with pytest.raises(SystemExit) as ended:
        balance_cluster([*job, "--state-dir", str(there)])
    assert ended.value.code == 2
    assert "Traceback" not in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_properties_are_written_as_java_reads_them() -> None:
    assert write_properties({"log.dirs": "/é/🙂/a b\\c:d=e", "a:b": " x"}) == (
        "a\\:b=\\ x\nlog.dirs=/\\u00e9/\\ud83d\\ude42/a b\\\\c:d=e\n"
    )


@pytest.mark.parametrize(
    ("named", "after"),
    [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8"), ("", "C.UTF-8")],
)
def test_java_names_files_in_utf_8(monkeypatch: pytest.MonkeyPatch, named: str, after: str) -> None:
    monkeypatch.setenv("LC_ALL", named)
    monkeypatch.setenv("LC_CTYPE", "")
    monkeypatch.setenv("LANG", "")
    find_java()
    assert os.environ["LC_ALL"] == after
