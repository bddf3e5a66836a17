"""Damage of a state folder: each kind of file, damaged in each way.

Each is told with its file, and comes to a rebuild from the tables, or is no damage. The same with
a checkpoint of Spark's own, and a job that starts on it: tests/integration/test_damaged_state.py.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.spark.checkpoint import (
    LAYOUT,
    CheckpointMismatchError,
    ClaimedTables,
    DamagedStateError,
    Manifest,
    Resumption,
    check_standby,
    choose_checkpoint,
    hold_folder,
    note_version,
    read_manifest,
    remove_old_checkpoints,
    write_manifest,
)
from jobs.adapters.spark.checkpoint_damage import find_damage, is_damage
from jobs.console import CommandError
from tests.support.tables.commands_table import SNAPSHOT, log_file, write_checkpoint, write_file

PRESENT = Manifest(
    code_version="c",
    config_version="f",
    scorer_groups=2,
    layout=LAYOUT,
    clusters=("local",),
    kafka_cluster="k",
    topics={"acks": "t"},
    epoch=1,
)
BATCHES = 5
NEWEST = BATCHES - 1
COMMIT = {"query_id": "q", "batch_id": NEWEST, "topics": {"acks": "t"}}

FILES = {
    "metadata": "metadata",
    "newest offsets": f"offsets/{NEWEST}",
    "offsets before": f"offsets/{NEWEST - 1}",
    "newest commit": f"commits/{NEWEST}",
    "older commit": "commits/1",
    "newest change log": f"state/0/0/{BATCHES}.changelog",
    "older change log": f"state/1/0/{SNAPSHOT + 1}.changelog",
    "change log in the snapshot": f"state/1/0/{SNAPSHOT}.changelog",
    "snapshot": f"state/1/0/{SNAPSHOT}.zip",
    "table of the snapshot": "state/1/0/SSTs/1-x.sst",
    "state schema": "state/0/_stateSchema/default/0_x",
    "operator metadata": "state/1/_metadata/v2/0",
}
HARMLESS = {
    ("newest commit", "missing"),  # the batch is done again, alike
    ("newest commit", "old copy"),  # says nothing of its batch
    ("snapshot", "missing"),  # all change logs are there
    ("offsets before", "old copy"),  # its times still go on, and Spark reads no offsets of it
} | {
    (file, fault)
    for file in ("older commit", "change log in the snapshot")
    for fault in ("missing", "empty", "cut", "garbage", "old copy")
}
"""What no start reads, or needs."""


def _put_old_copy(path: Path) -> None:
    """Put the file of the batch before there, with its sums; of what has none, the file itself."""
    number = int(path.stem) if path.stem.isdigit() else 0
    before = path.with_name(f"{number - 1}{path.suffix}")
    if number and before.exists():
        write_file(path, before.read_bytes())


FAULTS: Mapping[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(b"\xff\x00{" * 40),
    "old copy": _put_old_copy,
}


def tables(**known: Any) -> ClaimedTables:
    return ClaimedTables(**{"epoch": 0, "last_commit": lambda: COMMIT, **known})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first = choose_checkpoint(tmp_path, replace(PRESENT, epoch=0), ClaimedTables(epoch=-1))
    write_manifest(tmp_path, replace(PRESENT, epoch=0), first)
    write_checkpoint(first.checkpoint, begun=BATCHES, ended=BATCHES)
    note_version(tmp_path, 12)
    return tmp_path


def choose(folder: Path, **known: Any) -> Resumption:
    return choose_checkpoint(folder, PRESENT, tables(**known))


def test_whole_checkpoint_goes_on(folder: Path) -> None:
    assert choose(folder).reason == ""
    write_checkpoint(folder / "checkpoints" / "epoch-0", begun=BATCHES + 1, ended=BATCHES)
    assert choose(folder).reason == ""


def test_checkpoint_is_whole_when_the_machines_clock_was_set_back_between_two_batches(
    folder: Path,
) -> None:
    path = folder / "checkpoints" / "epoch-0" / "offsets" / str(NEWEST)
    version, first, *offsets = path.read_bytes().splitlines()
    back = {**json.loads(first), "batchTimestampMs": 10}
    write_file(path, b"\n".join([version, json.dumps(back).encode(), *offsets]))
    assert choose(folder).reason == ""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("file", FILES)
def test_damaged_file_of_a_checkpoint_is_told_and_rebuilt_from_the_tables(
    folder: Path, file: str, fault: str
) -> None:
    checkpoint = folder / "checkpoints" / "epoch-0"
    path = checkpoint / FILES[file]
    whole = path.read_bytes()
    FAULTS[fault](path)
    if (file, fault) in HARMLESS or (path.exists() and path.read_bytes() == whole):
        assert choose(folder).reason == ""
        return
    chosen = choose(folder)
    assert chosen.is_damaged
    assert str(checkpoint / Path(FILES[file]).parent) in chosen.reason
    assert chosen.checkpoint == folder / "checkpoints" / "epoch-1"
    with pytest.raises(CheckpointMismatchError):  # what the manifest refuses is refused
        choose(folder, epoch=5)


@pytest.mark.parametrize("fault", ["empty", "cut", "garbage"])
@pytest.mark.parametrize("file", ["metadata", "newest offsets", "newest commit", "snapshot"])
def test_damage_of_a_file_without_sums_is_found_by_what_it_holds(
    folder: Path, file: str, fault: str
) -> None:
    path = folder / "checkpoints" / "epoch-0" / FILES[file]
    path.with_name(f".{path.name}.crc").unlink()
    FAULTS[fault](path)
    assert choose(folder).is_damaged


@pytest.mark.parametrize("size", [0, 3, 9])
def test_damaged_sums_are_no_damage_where_hadoop_passes_over_them(folder: Path, size: int) -> None:
    sums = folder / "checkpoints" / "epoch-0" / "offsets" / f".{NEWEST}.crc"
    sums.write_bytes(sums.read_bytes()[:size])
    assert choose(folder).is_damaged is (size == 9)


@pytest.mark.parametrize("folder_name", ["offsets", "state", "state/1", "state/0/0", "commits"])
def test_folder_that_is_gone_is_rebuilt(folder: Path, folder_name: str) -> None:
    path = folder / "checkpoints" / "epoch-0" / folder_name
    path.rename(folder / "elsewhere")
    assert choose(folder).is_rebuilt


def test_old_copy_of_a_whole_checkpoint_is_rebuilt(folder: Path) -> None:
    chosen = choose(folder, last_commit=lambda: {**COMMIT, "batch_id": NEWEST + 3})
    assert chosen.is_damaged
    assert f"ends with batch {NEWEST}, the tables have batch {NEWEST + 3}" in chosen.reason


OWN = ("job.json", "events-version")


@pytest.mark.parametrize("content", [None, b"", b'{"code_ve', b"\xff\x00", b"[]", b"{}", b"x" * 99])
@pytest.mark.parametrize("name", OWN)
def test_damaged_file_of_the_job_is_rebuilt_where_the_tables_prove_that_they_are_its_own(
    folder: Path, name: str, content: bytes | None
) -> None:
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    if name == "events-version" and content is None:
        assert choose(folder).reason == ""
        return
    chosen = choose(folder)
    assert chosen.is_damaged
    assert chosen.reason.startswith(f"{name} is damaged: ")
    for other in (None, {**COMMIT, "query_id": "r"}, {**COMMIT, "topics": {"acks": "u"}}):
        with pytest.raises(DamagedStateError) as refused:
            choose(folder, last_commit=lambda other=other: other)
        assert str(path) in refused.value.what
        assert f"ballast state rebuild --state-dir {folder}" in refused.value.next_step
    with pytest.raises(DamagedStateError, match=name) as refused:
        choose(folder, last_commit=lambda: None)
    if name == "job.json":
        with pytest.raises(CheckpointMismatchError):  # restored tables are found all the same
            choose(folder, events_version=11)
        check_standby(folder, ("local",), 0)


def test_manifest_with_a_value_of_another_type_or_too_deep_is_damaged(folder: Path) -> None:
    path = folder / "job.json"
    whole = json.loads(path.read_text())
    wrong = ({"clusters": 3}, {"topics": []}, {"epoch": "1"}, {"checkpoint": None})
    for content in (*(json.dumps({**whole, **one}) for one in wrong), "[" * 100_000):
        path.write_text(content)
        with pytest.raises(DamagedStateError):
            read_manifest(folder)


def test_lock_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff garbage")
    with hold_folder(tmp_path) as is_held:
        assert is_held
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    with pytest.raises(CommandError, match="lock") as refused, hold_folder(tmp_path):
        pass
    assert "move what is in the way" in refused.value.next_step


def test_damaged_checkpoints_are_kept_two_at_a_time(folder: Path) -> None:
    for epoch in range(1, 6):
        current = folder / "checkpoints" / f"epoch-{epoch}"
        current.mkdir()
        remove_old_checkpoints(folder, current)
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert left == ["epoch-3", "epoch-4", "epoch-5"]


def test_changed_number_of_state_partitions_is_rebuilt(folder: Path) -> None:
    for known in (PRESENT, replace(PRESENT, partitions=1)):
        assert choose_checkpoint(folder, known, tables()).reason == ""
    chosen = choose_checkpoint(folder, replace(PRESENT, partitions=4), tables())
    assert chosen.reason == "the number of state partitions was changed: 1 to 4"


def test_offsets_cut_after_a_line_are_damage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, begun=2, ended=2)
    assert find_damage(tmp_path) == ""
    write_file(tmp_path / "offsets" / "1", log_file({"batchTimestampMs": 9_000}))
    assert find_damage(tmp_path) == "offsets/1 is cut short"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error", True),
        ("org.apache.hadoop.fs.ChecksumException: Checksum error: file:/x/1.zip at 0", True),
        ("java.lang.IllegalStateException: batch 18 doesn't exist", True),
        ("java.io.EOFException\n\tat org.apache.spark.sql.execution.streaming.state.X.y", True),
        ("java.io.EOFException\n\tat org.apache.spark.network.X.y", False),
        ("ValueError: boom", False),
        (
            "[CANNOT_LOAD_STATE_STORE]\nCaused by: java.io.IOException: No space left on device",
            False,
        ),
        (
            (
                "java.io.IOException: x\n\tat org.apache.spark.sql.execution.streaming.state.A.b\n"
                "Traceback (most recent call last):\nValueError: boom"
            ),
            False,
        ),
        ("java.lang.OutOfMemoryError: Java heap space", False),
    ],
)
def test_damage_is_recognised_in_what_spark_says(text: str, *, is_one: bool) -> None:
    assert is_damage(text) is is_one


@pytest.mark.parametrize(
    ("frame", "is_one"),
    [
        ("org.apache.spark.sql.execution.streaming.state.SchemaHelper$SchemaReader.read", True),
        ("org.apache.spark.sql.execution.streaming.state.StateStoreRDD.compute", False),
    ],
)
def test_stack_tells_a_cut_schema_from_a_killed_worker(frame: str, *, is_one: bool) -> None:
    assert is_damage("java.io.EOFException", f"java.io.EOFException\n\tat {frame}") is is_one
