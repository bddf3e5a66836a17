"""Bounded decoder of Kafka's record batches; hostile bytes become refusals.

Kafka's own clients allocate a record's whole plain size while they inflate its batch. This decoder
inflates at most `PLAIN_BATCH_BYTES` of a batch. A record over the limit becomes a refusal
with the start of its value; the records beyond that bound become one row that names the offsets.
Source: Kafka's format (KIP-98, clients/.../record/DefaultRecordBatch.java, 3.9). Brokers have
verified the checksums.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from kafka.record.util import decode_varint

from lbcore.wire.messages import RejectReason

PLAIN_BATCH_BYTES = 32 * 1024 * 1024
"""Bytes of a batch that are inflated at most; one value may have 1 MiB."""

RECORDS_PER_BATCH = 50_000
"""Largest number of records read of a batch."""

ENVELOPE_BYTES = 65_536
"""Largest size of a record besides its value: key, headers, lengths."""

PREFIX_BYTES = 256
"""Bytes of key and of value that are kept when a record is too large."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRAME = struct.Struct(">qi")
_MAGIC_AT = 16
_MAGIC = 2
_CODEC, _LOG_APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_PIECE = 262_144
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


class Row(NamedTuple):
    """A record, or a refusal of one or several.

    refusal: "REASON sentence", "" for a record.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    refusal: str = ""


class UnreadableError(ValueError):
    """The bytes break the format, or (`reason`) are too many."""

    reason = RejectReason.UNREADABLE


class TooLargeError(UnreadableError):
    """One block would inflate to more than is allowed."""

    reason = RejectReason.TOO_LARGE


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch in the log.

    end: the offset after its last record. head: its header, () = it can't be read.
    """

    content: memoryview
    first: int
    end: int
    problem: str = ""
    head: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """Number of records by its header, from 1 to `RECORDS_PER_BATCH`."""
        return 1 if self.problem else max(1, min(self.head[12], RECORDS_PER_BATCH))


def split_batches(log: bytes, position: int) -> Iterator[RecordBatch]:
    """Split a part of a partition's log into batches, without reading them.

    position: the next wanted offset. A batch cut at the end is left out (Kafka cuts at the
    requested size). A malformed frame ends the split.
    """
    view, at = memoryview(log), 0
    while at + _FRAME.size <= len(view):
        first, length = _FRAME.unpack_from(view, at)
        content = view[at : at + _FRAME.size + max(length, 0)]
        if length <= _MAGIC_AT - _FRAME.size or first < 0:
            yield RecordBatch(content, position, position + 1, "its frame makes no sense")
            return
        if len(content) < _FRAME.size + length:
            return
        batch = _framed(content, first, position)
        position = batch.end
        at += len(content)
        yield batch


def _framed(content: memoryview, first: int, position: int) -> RecordBatch:
    magic = content[_MAGIC_AT]
    if magic == _MAGIC and len(content) >= _HEADER.size:
        head = _HEADER.unpack_from(content)
        delta, count = head[6], head[12]
        problem = "its header has a negative count" if delta < 0 or count < 0 else ""
        return RecordBatch(content, first, max(first + max(delta, 0), position) + 1, problem, head)
    if magic < _MAGIC:  # an old wrapper message has the offset of its last message
        problem = f"its format is {magic}, of Kafka before 0.11"
    else:
        problem = f"its format {magic} is not known" if magic > _MAGIC else "its header is cut"
    return RecordBatch(content, min(first, position), max(first, position) + 1, problem)


def plain_size(batch: RecordBatch) -> int:
    """Return the inflated bytes of a batch, up to a little over `PLAIN_BATCH_BYTES`."""
    if not batch.problem:
        with suppress(UnreadableError):
            return len(_inflate(batch)[0])
    return len(batch.content)


def read_batch(batch: RecordBatch, start: int, end: int, value_bytes: int) -> Iterator[Row]:
    """Read the records of a batch from offset start to end, in order.

    value_bytes: longest value; a record longer than that plus `ENVELOPE_BYTES` is refused.
    """
    reason, problem = RejectReason.UNREADABLE, ""
    if batch.problem:
        yield _refused(batch, start, end, reason, f"it can't be read: {batch.problem}")
        return
    if batch.head[5] & _CONTROL:
        return
    count, following, at = batch.head[12], batch.first, 0
    is_whole, is_broken = True, False
    try:
        plain, is_whole = _inflate(batch)
        for _ in range(min(count, RECORDS_PER_BATCH)):
            if not is_whole and at >= len(plain):
                break
            row, at = _row(batch, plain, at, value_bytes + ENVELOPE_BYTES)
            if not following <= row.offset < batch.end:
                raise UnreadableError("a record has an offset outside of its batch or order")
            following = row.offset + 1
            if start <= row.offset < end:
                yield row
    except (ValueError, IndexError) as error:
        cause = "its records are cut" if isinstance(error, IndexError) else error
        reason, problem = getattr(error, "reason", reason), f"it can't be read: {cause}"
        is_broken = True  # refuse at least the last offset: all may have been read
    if count > RECORDS_PER_BATCH or not is_whole:
        reason = RejectReason.TOO_LARGE
        problem = (
            f"it has {count} records and inflates to more than is read of one batch"
            f" ({PLAIN_BATCH_BYTES} bytes, {RECORDS_PER_BATCH} records); send smaller batches"
        )
    left = max(start, min(following, batch.end - is_broken))
    if problem and left < min(end, batch.end):
        yield _refused(batch, left, end, reason, problem)


def _refused(batch: RecordBatch, start: int, end: int, reason: RejectReason, why: str) -> Row:
    """Return one row for all offsets of the batch from start, at the last of them."""
    first, last = max(start, batch.first), min(end, batch.end) - 1
    stamp_ms = batch.head[8] if batch.head else 0
    where = f"offset {first}" if first >= last else f"offsets {first} to {last}"
    sentence = f"{where} of a batch of {len(batch.content)} bytes: {why}"
    return Row(max(first, last), max(0, stamp_ms), None, None, f"{reason.value} {sentence}")


def _row(batch: RecordBatch, plain: bytes, at: int, record_bytes: int) -> tuple[Row, int]:
    """Return the record that begins at a byte, and the start of the next one.

    Raises ValueError, IndexError for malformed bytes.
    """
    head = batch.head
    length, begin = decode_varint(plain, at)
    stamp_delta, at = decode_varint(plain, begin + 1)  # after the attributes, which are unused
    offset_delta, at = decode_varint(plain, at)
    offset, end = batch.first + offset_delta, begin + length
    stamp_ms = head[8] if head[5] & _LOG_APPEND_TIME else head[7] + stamp_delta
    stamp_ms = min(max(stamp_ms, 0), 2**62)
    if length < 0:
        raise UnreadableError("a record has a negative length")
    if length > record_bytes:
        name, at = _prefix(plain, at)
        content = _prefix(plain, at)[0] if len(name) < PREFIX_BYTES else b""
        sentence = (
            f"offset {offset}: the record has {length} bytes when inflated and the limit is"
            f" {record_bytes}; its key begins with {name[:64]!r}; send less in one message"
        )
        refusal = f"{RejectReason.TOO_LARGE.value} {sentence}"
        return Row(offset, stamp_ms, name, content, refusal), end
    if end > len(plain):
        raise UnreadableError("a record ends beyond its batch")
    key, at = _field(plain, at, end)
    value, _ = _field(plain, at, end)  # headers are of no use here
    return Row(offset, stamp_ms, key, value), end


def _prefix(plain: bytes, at: int) -> tuple[bytes, int]:
    """Return the first bytes of the next field, and where it ends."""
    try:
        length, at = decode_varint(plain, at)
    except (ValueError, IndexError):
        return b"", at
    return plain[at : at + min(max(length, 0), PREFIX_BYTES)], at + max(length, 0)


def _field(plain: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return a key or value, and where it ends, `end` at most."""
    length, at = decode_varint(plain, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise UnreadableError("a key or value ends beyond its record")
    return plain[at : at + length], at + length


def _inflate(batch: RecordBatch) -> tuple[bytes, bool]:
    """Return the inflated bytes of a batch up to the bound, and True if that is all."""
    content = batch.content[_HEADER.size :]
    codec = batch.head[5] & _CODEC
    if codec == 0:
        plain = bytes(content[:PLAIN_BATCH_BYTES])
        return plain, len(plain) == len(content)
    if codec not in _PIECES:
        raise UnreadableError(f"the codec {codec} is not known")
    pieces, size = [], 0
    try:
        for piece in _PIECES[codec](content):
            pieces.append(piece)
            size += len(piece)
            if size > PLAIN_BATCH_BYTES:
                return b"".join(pieces)[:PLAIN_BATCH_BYTES], False
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise UnreadableError(f"the compressed bytes are damaged ({error})"[:200]) from None
    return b"".join(pieces), True


def _gzip_pieces(content: memoryview) -> Iterator[bytes]:
    """Yield the first gzip member.

    Producers write one; a million empty ones would take a minute.
    """
    stream, left = zlib.decompressobj(wbits=31), bytes(content)
    while not stream.eof:
        piece = stream.decompress(left, _PIECE)
        left = stream.unconsumed_tail
        if not piece and not left and not stream.eof:
            raise UnreadableError("the compressed bytes are cut")
        yield piece


def _streamed_pieces(codec: str, content: memoryview) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(content)), codec) as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _snappy_pieces(content: memoryview) -> Iterator[bytes]:
    """Yield each block: Java clients frame several as xerial does, others send one."""
    if bytes(content[: len(_XERIAL)]) != _XERIAL:
        yield _snappy_block(content)
        return
    at = _XERIAL_HEADER
    while at < len(content):
        length = int.from_bytes(content[at : at + 4], "big")
        block = content[at + 4 : at + 4 + length]
        if not length or len(block) < length:
            raise UnreadableError("a block of snappy is cut")
        yield _snappy_block(block)
        at += 4 + length


def _snappy_block(block: memoryview) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > PLAIN_BATCH_BYTES:
        # the codec writes into a buffer of the size that the block claims
        raise TooLargeError(f"a block of snappy claims {size} bytes when inflated")
    return bytes(pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True))


_PIECES: Mapping[int, Callable[[memoryview], Iterator[bytes]]] = {
    1: _gzip_pieces,
    2: _snappy_pieces,
    3: partial(_streamed_pieces, "lz4"),
    4: partial(_streamed_pieces, "zstd"),
}
