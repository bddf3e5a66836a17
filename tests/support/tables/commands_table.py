"""The table of commands, claims of the tables, Spark's checkpoint."""

import io
import json
import struct
import threading
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from jobs.adapters.delta.table_writer import FencedError, TableWriter
from jobs.adapters.delta.tables import arrow_schema, ensure_table, open_table, table_path
from lbcore.balancer.effects import to_json
from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS
from tests.support.tables.small_batches import batch, record, sink_on

CLUSTER = "local"


class CommandsTable:
    """Tables under a folder: `commands`, and the heartbeats of the job in `ownership_events`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for table in (COMMANDS, OWNERSHIP_EVENTS):
            ensure_table(root, table)

    def add(
        self, command_id: str, status: str, at_ms: int = 1, cluster: str = CLUSTER, **row: Any
    ) -> None:
        """One row, merged in a commit of its own. row: reason, result, or raw_result, its text."""
        result: Mapping[str, Any] = row.pop("result", {})
        full = {
            "cluster": cluster,
            "command_id": command_id,
            "kind": "unload_bundle",
            "arguments": "{}",
            "principal": "",
            "address": "",
            "status": status,
            "reason": "",
            "result": row.pop("raw_result", to_json(result)),
            "at_ms": at_ms,
            "batch_id": 0,
            **row,
        }
        rows = pa.Table.from_pylist([full], schema=arrow_schema(COMMANDS))
        table = open_table(self.root, COMMANDS.name)
        same = "t.cluster = s.cluster AND t.command_id = s.command_id"
        merge = table.merge(rows, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def beat(self, silent_ms: int = 0) -> None:
        metadata = {
            "query_id": "q",
            "batch_id": 0,
            "now_ms": time.time_ns() // 1_000_000 - silent_ms,
            "writer_epoch": 0,
        }
        write_deltalake(
            str(table_path(self.root, OWNERSHIP_EVENTS.name)),
            arrow_schema(OWNERSHIP_EVENTS).empty_table(),
            mode="append",
            commit_properties=CommitProperties(
                custom_metadata={"ballast": to_json(metadata)},
                app_transactions=[Transaction(f"{OWNERSHIP_EVENTS.name}:q", 0)],
            ),
        )


WON, LOST = "won", "lost"


def race(*starts: Callable[[], TableWriter]) -> list[TableWriter | None]:
    """Let all begin at once; the writers that have claimed, None for who was refused."""
    together = threading.Barrier(len(starts))

    def begin(start: Callable[[], TableWriter]) -> TableWriter | None:
        together.wait()
        try:
            return start()
        except FencedError as error:
            assert_says_so(error)
            return None

    with ThreadPoolExecutor(len(starts)) as pool:
        return list(pool.map(begin, starts))


def started(root: str | Path, after_s: float = 0.0) -> Callable[[], TableWriter]:
    """A job's start on the tables; after_s: that much later than the others."""

    def start() -> TableWriter:
        time.sleep(after_s)
        writer = TableWriter(root)
        writer.claim()
        return writer

    return start


def assert_says_so(error: FencedError) -> None:
    lines = str(error).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["error", "why", "next"]
    assert "another balance_cluster job" in lines[1]


def ends(writers: Sequence[TableWriter | None], number: int) -> Counter[str]:
    """How each fares with its first batch; who was refused has none."""
    found = Counter({LOST: sum(writer is None for writer in writers)})
    for writer in [one for one in writers if one is not None]:
        sink = sink_on(writer)
        sink.use_query(f"query-{number}-{writer.epoch}")
        try:
            sink(batch(record("t/n/a", number)), 0)
        except FencedError as error:
            assert_says_so(error)
            found[LOST] += 1
        else:
            found[WON] += 1
    return found


SNAPSHOT = 2
"""The version of the state of which there is a snapshot, where there are so many batches."""


def write_checkpoint(
    checkpoint: Path, *, begun: int, ended: int, query: str = "q", partitions: int = 1
) -> None:
    """Leave behind what Spark does: batches 0..begun-1 begun, 0..ended-1 finished."""
    write_file(checkpoint / "metadata", json.dumps({"id": query}).encode())
    for number in range(begun):
        conf = {"spark.sql.shuffle.partitions": str(partitions)}
        head = {"batchWatermarkMs": 0, "batchTimestampMs": 1_000 * (number + 1), "conf": conf}
        ends = {"acks": {"0": number}}
        write_file(checkpoint / "offsets" / str(number), log_file(head, ends))
    for number in range(ended):
        write_file(checkpoint / "commits" / str(number), log_file({"nextBatchWatermarkMs": 0}))
    for operator in range(2):
        state = checkpoint / "state" / str(operator)
        write_file(state / "_metadata" / "v2" / "0", b'v2\n{"operatorInfo":{}}')
        write_file(state / "_stateSchema" / "default" / "0_x", b"\x00\x02v3 schema")
        for partition in range(partitions):
            _write_state(state / str(partition), begun)


def log_file(*lines: object) -> bytes:
    return "\n".join(["v1", *map(json.dumps, lines)]).encode()


def write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    sums = [struct.pack(">I", zlib.crc32(data[at : at + 512])) for at in range(0, len(data), 512)]
    head = b"crc\0" + struct.pack(">I", 512)
    path.with_name(f".{path.name}.crc").write_bytes(head + b"".join(sums))


def _write_state(folder: Path, batches: int) -> None:
    for version in range(1, batches + 1):
        write_file(folder / f"{version}.changelog", f"LZ4Block {version} ".encode() * 60)
    if batches >= SNAPSHOT:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("metadata", log_file({"sstFiles": [{"dfsSstFileName": "1-x.sst"}]}))
        write_file(folder / f"{SNAPSHOT}.zip", packed.getvalue())
        write_file(folder / "SSTs" / "1-x.sst", b"table" * 300)
