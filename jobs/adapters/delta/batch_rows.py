"""Pending rows of a batch for other tables, in a file that its commit names.

These tables follow the batch's commit of events. Decides where the rows lie and that they are
complete. The file is written before the commit, so all of the batch can be read from one place. A
rebuild writes from it what a crash left out. A job alternates between two files: the one that the
newest commit names is never written to. Source: ours; Arrow IPC streams, one per table, one after
the other.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.table_place import TablePlace
from jobs.console import CommandError
from jobs.whole_file import sync_file, sync_folder

REST = "rest"
"""In the metadata of a commit of events: the file of the rows that follow it in other tables."""

FOLDER = "_batches"  # Delta leaves alone what begins so
_SUFFIX = ".arrow"
_OF_TABLE = b"table"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class BatchRowsError(CommandError):
    """The rows that a batch owes can't be read."""

    def __init__(self, file: TablePlace, found: str) -> None:
        super().__init__(
            "the last batch can't be completed",
            why=f"{file} has the rows that a crash kept from the tables, and {found}",
            next_step="put that file back from where the tables' folder was copied (all of it, "
            "hidden folders too); or, to go on without these rows, make an empty file in its place",
        )


def write_batch_rows(
    events: TablePlace, epoch: int, last: Mapping[str, Any], tables: Mapping[str, pa.Table]
) -> dict[str, Any]:
    """Write the rows; what the commit of events is to say of them.

    events: the place of ownership_events. epoch: the writer's. last: what was said before, whose
    file is left alone.
    """
    first, second = (f"{epoch}-{number}{_SUFFIX}" for number in (0, 1))
    name = second if last.get("file") == first else first
    data = b"".join(_stream(table, rows) for table, rows in tables.items())
    folder = events / FOLDER
    if isinstance(folder, Path):
        folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    if isinstance(folder, Path):
        sync_file(folder / name)
        sync_folder(folder)
    return {"file": name, "bytes": len(data), "crc32": zlib.crc32(data)}


def read_batch_rows(events: TablePlace, rest: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Table → the rows that a commit speaks of; none when somebody emptied the file.

    Raises BatchRowsError.
    """
    file = events / FOLDER / rest["file"]
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise BatchRowsError(file, "it is not there") from None
    if data and (len(data), zlib.crc32(data)) != (rest["bytes"], rest["crc32"]):
        raise BatchRowsError(file, "it is not what the batch wrote")
    found: dict[str, pa.Table] = {}
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        rows = pa.ipc.open_stream(source).read_all()
        found[rows.schema.metadata[_OF_TABLE].decode()] = rows.replace_schema_metadata()
    return found


def remove_batch_rows(events: TablePlace, epoch: int, last: Mapping[str, Any]) -> int:
    """Remove the files of earlier jobs, but for the one that is needed still; how many.

    epoch: of this job. last: what the newest commit of events says.
    """
    needed = last.get(REST, {}).get("file")
    past = [
        file
        for file in (events / FOLDER).glob(f"[0-9]*-[01]{_SUFFIX}")
        if file.name != needed and int(file.stem.partition("-")[0]) < epoch
    ]
    for file in past:
        file.unlink()
    return len(past)


def _stream(table: str, rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    schema = rows.schema.with_metadata({_OF_TABLE: table.encode()})
    with pa.ipc.new_stream(out, schema, options=_OPTIONS) as stream:
        stream.write_table(rows)
    return bytes(out.getvalue())
