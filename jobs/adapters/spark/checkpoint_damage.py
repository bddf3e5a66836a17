"""Damage of Spark's checkpoint: files missing, empty, cut, overwritten or old.

`find_damage` checks, before a query begins, only the files that its start reads. Hadoop's local
file system keeps checksums of a file NAME in .NAME.crc: CRC-32 of each 512 bytes. `is_damage`
recognises Spark's errors about other files, and about later damage.
"""

import json
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

OPERATORS = 2
"""Stateful operators of the query, each with a folder under `state`."""

_SUMS_HEAD = struct.Struct(">4sI")
_SAME_BYTES_MIN = 200  # the change log of a batch that changed nothing is shorter
_PARTITIONS = "spark.sql.shuffle.partitions"
_CHECKPOINT_ERROR = re.compile(
    r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_(STATE|CHECKPOINT)\w*|STATE_STORE_\w*(CORRUPT|INVALID)\w*"
    r"|org\.apache\.hadoop\.fs\.ChecksumException|RocksDBException: Corruption"
    r"|Incomplete log file|Log file was malformed|MALFORMED_LOG\w*|batch \d+ doesn't exist"
    r"|FAILED_TO_READ_CHECKPOINT|Failed to read (log|checkpoint|metadata)|STDS_\w+"
    r"|com\.fasterxml\.jackson\.[\w.]+Exception"
    r"|MISSING_OPERATOR_METADATA|Error reading (streaming )?state|INVALID_CHANGE_LOG\w*"
)
_FILE_ERROR = re.compile(
    r"java\.io\.(EOFException|FileNotFoundException|UTFDataFormatException|IOException)"
    r"|java\.util\.zip\.ZipException|AvroRuntimeException|Json\w*Exception|MappingException"
    r"|NoSuchElementException|NumberFormatException|NoSuchFileException|MatchError"
    r"|AssertionError|IllegalStateException|LZ4Exception"
)
_MACHINE_ERROR = re.compile(
    r"No space left on device|Disk quota exceeded|OutOfMemoryError|Too many open files"
    r"|Permission denied|Read-only file system"
)
_READER = re.compile(
    r"execution\.streaming\.(state|checkpointing)\.\w+|StreamMetadata|OffsetSeqLog|CommitLog"
    r"|HDFSMetadataLog"
)


class _DamageError(Exception):
    """A file that can't be what Spark wrote."""


def find_damage(checkpoint: Path) -> str:
    """Return the first damaged file that a start reads, and its fault; "" = none."""
    try:
        _check(checkpoint)
    except _DamageError as damage:
        return str(damage)
    except (OSError, RecursionError) as error:
        return f"it can't be read: {type(error).__name__} {error}"
    return ""


def is_damage(text: str, stack: str = "") -> bool:
    """Test whether an error of Spark's is about its checkpoint.

    text, stack: as `java_text` and `java_stack` have them. A schema of the state that was cut is a
    bare EOFException, as after a killed Python worker: the stack distinguishes them.
    """
    if _MACHINE_ERROR.search(text):
        return False  # a rebuild would fail the same way
    if _CHECKPOINT_ERROR.search(text) or "SchemaHelper$SchemaReader" in stack:
        return True
    is_python = "Traceback (most recent call last)" in text
    return bool(not is_python and _FILE_ERROR.search(text) and _READER.search(text))


def numbered(folder: Path) -> list[int]:
    """The batches that a log of Spark's has, sorted."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def state_partitions(checkpoint: Path) -> int:
    """Return the number of partitions of a checkpoint; 0 where it does not say."""
    try:
        return int(_offsets(checkpoint, numbered(checkpoint / "offsets")[-1])[_PARTITIONS])
    except (_DamageError, OSError, IndexError):
        return 0


def _check(checkpoint: Path) -> None:
    """Check what a start reads; raises _DamageError, OSError, RecursionError."""
    try:
        known = json.loads(_read(checkpoint, "metadata"))
    except ValueError as error:
        raise _DamageError("metadata is no JSON") from error
    if not isinstance(known, dict) or not isinstance(known.get("id"), str):
        raise _DamageError("metadata names no query")
    begun, ended = numbered(checkpoint / "offsets"), numbered(checkpoint / "commits")
    if not ended:
        return  # a start treats it as one that was never used
    newest = begun[-1] if ended[-1] in begun else ended[-1]
    last = _offsets(checkpoint, newest)
    if newest:
        _offsets(checkpoint, newest - 1)  # Spark reads both
    # their times prove nothing, as the machine's clock may be set back between two batches
    older = ((checkpoint / f"offsets/{one}").read_bytes() for one in begun if one < newest)
    if _read(checkpoint, f"offsets/{newest}") in older:
        raise _DamageError(f"offsets/{newest} is a copy of an older one")
    _lines(checkpoint, f"commits/{ended[-1]}")
    for operator in range(OPERATORS):
        _check_folder(checkpoint, f"state/{operator}/_metadata/v2")
        _check_folder(checkpoint, f"state/{operator}/_stateSchema/default")
        version = newest + (newest == ended[-1])
        for partition in range(int(last[_PARTITIONS])):
            _check_state(checkpoint, f"state/{operator}/{partition}", version)


def _check_folder(checkpoint: Path, name: str) -> None:
    """Check all files of a folder; it must have one at least."""
    files = sorted(file.name for file in (checkpoint / name).glob("[!.]*"))
    if not files:
        raise _DamageError(f"{name} has no file")
    for file in files:
        if not _read(checkpoint, f"{name}/{file}").startswith((b"v", b"\x00")):
            raise _DamageError(f"{name}/{file} is not what Spark wrote")


def _check_state(checkpoint: Path, name: str, version: int) -> None:
    """Check a version of a partition's state: a snapshot and change logs."""
    folder = checkpoint / name
    snapshots = [int(path.stem) for path in folder.glob("*.zip") if path.stem.isdigit()]
    base = max((one for one in snapshots if one <= version), default=0)
    if base:
        _read(checkpoint, f"{name}/{base}.zip")
        try:
            with zipfile.ZipFile(folder / f"{base}.zip") as archive:
                files = json.loads(archive.read("metadata").splitlines()[1])["sstFiles"]
            names = [file["dfsSstFileName"] for file in files]
        except (zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError) as error:
            raise _DamageError(f"{base}.zip is no snapshot: {error}") from error
        for file in names:
            _read(checkpoint, f"{name}/SSTs/{file}")
    first = folder / f"{base}.changelog"  # the snapshot includes it
    before = first.read_bytes() if first.is_file() else b""
    for number in range(base + 1, version + 1):
        now = _read(checkpoint, f"{name}/{number}.changelog")
        if len(now) > _SAME_BYTES_MIN and now == before:
            raise _DamageError(f"{name}/{number}.changelog is a copy of an older one")
        before = now


def _offsets(checkpoint: Path, batch: int) -> dict[str, Any]:
    """Return the settings of a batch that Spark has begun."""
    name = f"offsets/{batch}"
    first, *offsets = _lines(checkpoint, name)
    conf = first.get("conf")
    if not offsets or not isinstance(conf, dict) or not str(conf.get(_PARTITIONS)).isdigit():
        raise _DamageError(f"{name} is cut short")
    return conf


def _lines(checkpoint: Path, name: str) -> list[dict[str, Any]]:
    """The JSON objects of a log's file, after the line of its version."""
    try:
        version, *lines = _read(checkpoint, name).decode().splitlines()
        found = [json.loads(line) for line in lines if line]
    except (ValueError, RecursionError) as error:
        raise _DamageError(f"{name} is no log of Spark's") from error
    if not version.startswith("v") or not found or not isinstance(found[0], dict):
        raise _DamageError(f"{name} is cut short")
    return found


def _read(checkpoint: Path, name: str) -> bytes:
    """Return a file's bytes, checked against its checksums if there are any.

    Hadoop ignores checksums without their header. Raises _DamageError.
    """
    path = checkpoint / name
    if not path.is_file():
        raise _DamageError(f"{name} is missing")
    data = path.read_bytes()
    if not data:
        raise _DamageError(f"{name} is empty")
    sums = path.with_name(f".{path.name}.crc")
    known = sums.read_bytes() if sums.is_file() else b""
    head, sums_stored = known[: _SUMS_HEAD.size], known[_SUMS_HEAD.size :]
    magic, size = _SUMS_HEAD.unpack(head) if len(head) == _SUMS_HEAD.size else (b"", 0)
    if magic == b"crc\0" and size:
        parts = (data[at : at + size] for at in range(0, len(data), size))
        if sums_stored != b"".join(struct.pack(">I", zlib.crc32(part)) for part in parts):
            raise _DamageError(f"{name} is not what Spark wrote: its check sums differ")
    return data
