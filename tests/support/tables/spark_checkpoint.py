"""A checkpoint as Spark leaves it behind, with the sums of Hadoop's local file system."""

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

SNAPSHOT = 2
"""The version of the state of which there is a snapshot, where there are so many batches."""


def write_checkpoint(
    checkpoint: Path, *, begun: int, ended: int, query: str = "q", partitions: int = 1
) -> None:
    """Leave behind what Spark does: batches 0..begun-1 begun, 0..ended-1 finished."""
    write_file(checkpoint / "metadata", json.dumps({"id": query}).encode())
    for batch in range(begun):
        conf = {"spark.sql.shuffle.partitions": str(partitions)}
        head = {"batchWatermarkMs": 0, "batchTimestampMs": 1_000 * (batch + 1), "conf": conf}
        ends = {"acks": {"0": batch}}
        write_file(checkpoint / "offsets" / str(batch), log_file(head, ends))
    for batch in range(ended):
        write_file(checkpoint / "commits" / str(batch), log_file({"nextBatchWatermarkMs": 0}))
    for operator in range(2):
        state = checkpoint / "state" / str(operator)
        write_file(state / "_metadata" / "v2" / "0", b'v2\n{"operatorInfo":{}}')
        write_file(state / "_stateSchema" / "default" / "0_x", b"\x00\x02v3 schema")
        for partition in range(partitions):
            _write_state(state / str(partition), begun)


def log_file(*lines: object) -> bytes:
    """A file of a log of Spark's."""
    return "\n".join(["v1", *map(json.dumps, lines)]).encode()


def write_file(path: Path, data: bytes) -> None:
    """Write a file and its sums."""
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
