"""Folders and files: odd names, temporary folders, atomic replacement."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.kafka.embedded_kafka import write_properties
from jobs.adapters.processes.paths import private_directory
from jobs.adapters.processes.preflight import check_folder, find_java
from jobs.atomic_file import atomic_write
from jobs.balance_cluster import main as balance_cluster
from jobs.cli import main
from jobs.console import MisuseError
from jobs.local.layout import Layout

SIGNS = "a#b a?b a*b {x} a%b 100% $x `b` a;b a&b a=b ~ .x (x)"
WORDS = ("plain", "a b", "é", "e\u0301", "🙂", "中", "quo'te", 'dou"ble', "-dash", "--tables")
USABLE = (*WORDS, "x" * 200, *SIGNS.split())
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


_MAKES_ONE = (
    "import sys; from pathlib import Path\n"
    "from jobs.adapters.processes.paths import private_directory\n"
    "folder = private_directory('kind', Path(sys.argv[1]))\n"
    "(folder / 'deep').mkdir()\n"
    "(folder / 'deep' / 'file').write_text('x')\n"
    "print(folder, flush=True)\n"
    "sys.stdin.read()\n"
)


def _process(above: Path) -> tuple["subprocess.Popen[str]", Path]:
    running = subprocess.Popen(
        [sys.executable, "-c", _MAKES_ONE, str(above)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    return running, Path(running.stdout.readline().strip())


def test_folder_goes_when_its_process_ends_in_order(tmp_path: Path) -> None:
    running, folder = _process(tmp_path)
    assert (folder / "deep" / "file").exists()
    running.communicate()
    assert not list(tmp_path.iterdir())


def test_folder_of_a_killed_process_goes_with_the_next_one_and_no_other(tmp_path: Path) -> None:
    living, kept = _process(tmp_path)
    killed, left = _process(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.exists()
    (tmp_path / "kind-of-somebody-else").mkdir()
    (tmp_path / "another-kind").mkdir()
    next_one, own = _process(tmp_path)
    expected = {kept.name, own.name, "kind-of-somebody-else", "another-kind"}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == expected
    living.communicate()
    next_one.communicate()


def test_folder_that_was_removed_and_then_written_again_goes_as_well(tmp_path: Path) -> None:
    """Spark's state store uploads a snapshot up to a minute after the query has ended."""
    ended, again = _process(tmp_path)
    killed, left = _process(tmp_path)
    for folder in (again, left):
        shutil.rmtree(folder)
        (folder / "state").mkdir(parents=True)
    ended.communicate()
    killed.kill()
    killed.communicate()
    assert not again.exists()
    assert left.exists()
    private_directory("kind", tmp_path)
    assert not left.exists()


def test_lock_stays_with_a_folder_that_could_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its lock no process would ever take it for a dead one's."""
    killed, left = _process(tmp_path)
    killed.kill()
    killed.communicate()
    remove = shutil.rmtree

    def remove_while_written(path: Path, **how: bool) -> None:
        remove(path, **how)
        path.mkdir()

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove_while_written)
        private_directory("kind", tmp_path)
    assert left.exists()
    private_directory("kind", tmp_path)
    assert not left.exists()


def test_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "port"
    for content in ("8080\n", b"8081\n", "größer\n"):
        atomic_write(path, content)
        wanted = content if isinstance(content, bytes) else content.encode()
        assert path.read_bytes() == wanted
    atomic_write(path, "#!/bin/sh\n", mode=0o700)
    assert path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_cannot_be_replaced_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "port"
    (folder / "kept").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        atomic_write(folder, "8080\n")
    assert list(tmp_path.iterdir()) == [folder]
