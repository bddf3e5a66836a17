"""Damage of Spark's checkpoint: files missing, empty, cut, overwritten or old.

`find_damage` looks before a query begins, at those files alone that its start reads. Hadoop's local
file system keeps the sums of a file NAME in .NAME.crc: CRC-32 of each 512 bytes. `is_damage`
recognises what Spark says of the rest, and of damage that comes later.
"""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPERATORS = 2
"""Stateful operators of the query, each with a folder under `state`."""

_SUMS_HEAD = struct.Struct(">4sI")
_SUMS_MAGIC = b"crc\0"
_SAME_BYTES_MIN = 200  # the change log of a batch that changed nothing is shorter
_BATCH_TIME, _PARTITIONS = "batchTimestampMs", "spark.sql.shuffle.partitions"
_OF_A_CHECKPOINT = re.compile(
    r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_(STATE|CHECKPOINT)\w*|STATE_STORE_\w*(CORRUPT|INVALID)\w*"
    r"|org\.apache\.hadoop\.fs\.ChecksumException|RocksDBException: Corruption"
    r"|Incomplete log file|Log file was malformed|MALFORMED_LOG\w*|batch \d+ doesn't exist"
    r"|FAILED_TO_READ_CHECKPOINT|Failed to read (log|checkpoint|metadata)|STDS_\w+"
    r"|com\.fasterxml\.jackson\.[\w.]+Exception|MISSING_OPERATOR_METADATA"
    r"|MISSING_OPERATOR_METADATA|Error reading (streaming )?state|INVALID_CHANGE_LOG\w*"
)
_OF_A_FILE = re.compile(
    r"java\.io\.(EOFException|FileNotFoundException|UTFDataFormatException|IOException)"
    r"|java\.util\.zip\.ZipException|AvroRuntimeException|Json\w*Exception|MappingException"
    r"|NoSuchElementException|NumberFormatException|NoSuchFileException|MatchError"
    r"|AssertionError|IllegalStateException|LZ4Exception"
)
_OF_THE_MACHINE = re.compile(
    r"No space left on device|Disk quota exceeded|OutOfMemoryError|Too many open files"
    r"|Permission denied|Read-only file system"
)
_READING = re.compile(
    r"execution\.streaming\.(state|checkpointing)\.\w+|StreamMetadata|OffsetSeqLog|CommitLog"
    r"|HDFSMetadataLog"
)


class _DamageError(Exception):
    """A file that can't be what Spark wrote."""


def find_damage(checkpoint: Path) -> str:
    """Return the first damaged file that a start reads, and its fault; "" = none."""
    try:
        _check_file(checkpoint, "metadata")
        if not isinstance(_parsed(checkpoint / "metadata").get("id"), str):
            return "metadata names no query"
        begun = numbered(checkpoint / "offsets")
        ended = numbered(checkpoint / "commits")
        if not ended:
            return ""  # a start takes it for one that never worked
        if ended[-1] not in begun:
            return f"offsets/{ended[-1]} is missing"
        _check_offsets(checkpoint, begun[-1])
        _check_file(checkpoint, f"commits/{ended[-1]}")
        _lines(checkpoint / f"commits/{ended[-1]}")
        conf = _lines(checkpoint / f"offsets/{begun[-1]}")[0]["conf"]
        version = begun[-1] + (begun[-1] == ended[-1])
        for operator in range(OPERATORS):
            for folder in ("_metadata/v2", "_stateSchema/default"):
                _check_folder(checkpoint, f"state/{operator}/{folder}")
            for partition in range(int(conf[_PARTITIONS])):
                _check_state(checkpoint, f"state/{operator}/{partition}", version)
    except _DamageError as damage:
        return str(damage)
    except (OSError, RecursionError) as error:
        return f"it can't be read: {type(error).__name__} {error}"
    return ""


def is_damage(text: str, stack: str = "") -> bool:
    """Test whether an error of Spark's is about its checkpoint.

    text, stack: as `java_text` and `java_stack` have them. A schema of the state that was cut is a
    bare EOFException, which a killed Python worker is as well: the stack tells them apart.
    """
    if _OF_THE_MACHINE.search(text):
        return False  # a rebuild would meet the same
    if _OF_A_CHECKPOINT.search(text) or "SchemaHelper$SchemaReader" in stack:
        return True
    is_ours = "Traceback (most recent call last)" in text
    return bool(not is_ours and _OF_A_FILE.search(text) and _READING.search(text))


def numbered(folder: Path) -> list[int]:
    """The batches that a log of Spark's has, sorted."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def state_partitions(checkpoint: Path) -> int:
    """Return the number of partitions of a checkpoint; 0 where it does not say."""
    begun = numbered(checkpoint / "offsets")
    try:
        return int(_lines(checkpoint / f"offsets/{begun[-1]}")[0]["conf"][_PARTITIONS])
    except (_DamageError, OSError, IndexError, KeyError, TypeError, ValueError):
        return 0


def _check_offsets(checkpoint: Path, newest: int) -> None:
    """Check the two batches that Spark reads; a later one has a later time."""
    times = []
    for batch in range(max(0, newest - 1), newest + 1):
        name = f"offsets/{batch}"
        _check_file(checkpoint, name)
        lines = _lines(checkpoint / name)
        is_whole = len(lines) > 1 and isinstance(lines[0].get("conf"), dict)
        if not is_whole or not str(lines[0]["conf"].get(_PARTITIONS, "")).isdigit():
            raise _DamageError(f"{name} is cut short")
        times.append(lines[0].get(_BATCH_TIME, 0))
    if len(times) > 1 and times[1] <= times[0]:
        raise _DamageError(f"offsets/{newest} is a copy of an older one")


def _check_state(checkpoint: Path, name: str, version: int) -> None:
    """Check a version of a partition's state: a snapshot and change logs."""
    folder = checkpoint / name
    snapshots = [int(path.stem) for path in folder.glob("*.zip") if path.stem.isdigit()]
    base = max((one for one in snapshots if one <= version), default=0)
    if base:
        _check_file(checkpoint, f"{name}/{base}.zip")
        for file in _files_of(folder / f"{base}.zip"):
            _check_file(checkpoint, f"{name}/SSTs/{file}")
    first = folder / f"{base}.changelog"  # a snapshot has it in it
    before = first.read_bytes() if first.is_file() else b""
    for number in range(base + 1, version + 1):
        now = _check_file(checkpoint, f"{name}/{number}.changelog")
        if len(now) > _SAME_BYTES_MIN and now == before:
            raise _DamageError(f"{name}/{number}.changelog is a copy of an older one")
        before = now


def _files_of(snapshot: Path) -> Iterator[str]:
    """The files of RocksDB that a snapshot names."""
    try:
        with zipfile.ZipFile(snapshot) as archive:
            lines = archive.read("metadata").decode().splitlines()
        yield from (file["dfsSstFileName"] for file in json.loads(lines[1])["sstFiles"])
    except (zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError) as error:
        raise _DamageError(f"{snapshot.name} is no snapshot: {error}") from error


def _check_folder(checkpoint: Path, name: str) -> None:
    """Check all files of a folder, which has one at least."""
    folder = checkpoint / name
    files = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    wanted = sorted(file for file in files if not file.startswith("."))
    if not wanted:
        raise _DamageError(f"{name} has no file")
    for file in wanted:
        if not _check_file(checkpoint, f"{name}/{file}").startswith((b"v", b"\x00")):
            raise _DamageError(f"{name}/{file} is not what Spark wrote")


def _check_file(checkpoint: Path, name: str) -> bytes:
    """A file's bytes, which its sums prove where they are there; raises _DamageError."""
    path = checkpoint / name
    if not path.is_file():
        raise _DamageError(f"{name} is missing")
    data = path.read_bytes()
    if not data:
        raise _DamageError(f"{name} is empty")
    sums = path.with_name(f".{path.name}.crc")
    if sums.is_file() and not _proves(sums.read_bytes(), data):
        raise _DamageError(f"{name} is not what Spark wrote: its check sums differ")
    return data


def _proves(sums: bytes, data: bytes) -> bool:
    """Compare sums with data; Hadoop passes over sums without their head."""
    if len(sums) < _SUMS_HEAD.size:
        return True
    magic, size = _SUMS_HEAD.unpack_from(sums)
    if magic != _SUMS_MAGIC or size < 1:
        return True
    found = b"".join(
        struct.pack(">I", zlib.crc32(data[at : at + size])) for at in range(0, len(data), size)
    )
    return sums[_SUMS_HEAD.size :] == found


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a log's file, after the line of its version."""
    try:
        version, *lines = path.read_text().splitlines()
        found = [json.loads(line) for line in lines if line]
    except (ValueError, RecursionError) as error:
        raise _DamageError(f"{path.parent.name}/{path.name} is no log of Spark's") from error
    if not version.startswith("v") or not found or not isinstance(found[0], dict):
        raise _DamageError(f"{path.parent.name}/{path.name} is cut short")
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise _DamageError(f"{path.name} is no JSON") from error
    return found if isinstance(found, dict) else {}
