"""Bounded decoder of Kafka's record batches; hostile bytes become refusals.

Kafka's own clients allocate a record's whole plain size while they inflate its batch. This decoder
inflates at most `PLAIN_BATCH_BYTES` of a batch. A record over the limit becomes a row without its
value; what lies beyond the bound of its batch becomes one row that names the offsets. Source: the
format is Kafka's (KIP-98, clients/.../record/DefaultRecordBatch.java, 3.9). Checksums are left to
the broker, which has verified them.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from lbcore.wire.messages import RejectReason

PLAIN_BATCH_BYTES = 32 * 1024 * 1024
"""The most of one batch that is inflated; one record may have 1 MiB."""

RECORDS_PER_BATCH = 50_000
"""The most records of one batch that are read."""

ENVELOPE_BYTES = 65_536
"""The most that a record may have besides its value: key, headers, lengths."""

PREFIX_BYTES = 256
"""So much of the key, and of the value, is kept of a record that is too large."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRAME = struct.Struct(">qi")
_MAGIC_AT = 16
_MAGIC = 2
_CODEC, _LOG_APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20
_PIECE = 262_144
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_VARINT_BYTES = 10


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
    """The bytes are not what the format says, or (`reason`) are too many."""

    reason = RejectReason.UNREADABLE


class TooLargeError(UnreadableError):
    """More would have to be inflated at once than is allowed."""

    reason = RejectReason.TOO_LARGE


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch as it stands in the log. end: the offset after its last record."""

    content: memoryview
    first: int
    end: int
    problem: str = ""

    @property
    def records(self) -> int:
        """The number of records that its header claims, at least 1."""
        if self.problem:
            return 1
        count: int = _HEADER.unpack_from(self.content)[12]
        return max(1, min(count, RECORDS_PER_BATCH))


def split_batches(log: bytes, position: int) -> Iterator[RecordBatch]:
    """Split a part of a partition's log into batches, without looking into them.

    position: the next offset wanted. A batch that is cut at the end is left out, as Kafka cuts
    where the size asked for ends. After a frame that makes no sense nothing more is found.
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
    if magic < _MAGIC:  # a wrapper of old has the offset of its last message
        problem = f"its format is {magic}, of Kafka before 0.11"
        return RecordBatch(content, min(first, position), max(first, position) + 1, problem)
    if magic > _MAGIC or len(content) < _HEADER.size:
        problem = f"its format {magic} is not known" if magic > _MAGIC else "its header is cut"
        return RecordBatch(content, min(first, position), max(first, position) + 1, problem)
    delta, count = (_HEADER.unpack_from(content)[field] for field in (6, 12))
    problem = "its header has a negative count" if delta < 0 or count < 0 else ""
    return RecordBatch(content, first, max(first + max(delta, 0), position) + 1, problem)


def plain_size(batch: RecordBatch) -> int:
    """The bytes of the batch when inflated, at most a little over `PLAIN_BATCH_BYTES`."""
    if batch.problem:
        return len(batch.content)
    try:
        plain, _ = _inflate(batch)
    except UnreadableError:
        return len(batch.content)
    return len(plain)


def read_batch(batch: RecordBatch, start: int, end: int, value_bytes: int) -> Iterator[Row]:
    """Read the records of a batch from offset start to end, in their order.

    value_bytes: the longest value; a record that is longer by `ENVELOPE_BYTES` has no value here.
    """
    if batch.problem:
        yield _refused(
            batch, start, end, RejectReason.UNREADABLE, f"it can't be read: {batch.problem}"
        )
        return
    if _HEADER.unpack_from(batch.content)[5] & _CONTROL:
        return
    reader = _RecordReader(batch, value_bytes + ENVELOPE_BYTES)
    for row in reader.rows():
        if start <= row.offset < end:
            yield row
    left = max(start, min(reader.next_offset, batch.end - reader.is_broken))
    if reader.problem and left < min(end, batch.end):
        yield _refused(batch, left, end, reader.reason, reader.problem)


def _refused(batch: RecordBatch, start: int, end: int, reason: RejectReason, why: str) -> Row:
    """Return one row for all offsets of the batch from start; it stands at the last."""
    first, last = max(start, batch.first), min(end, batch.end) - 1
    found = _HEADER.unpack_from(batch.content) if len(batch.content) >= _HEADER.size else ()
    stamp_ms = found[8] if found and batch.content[_MAGIC_AT] == _MAGIC else 0
    where = f"offset {first}" if first >= last else f"offsets {first} to {last}"
    sentence = f"{where} of a batch of {len(batch.content)} bytes: {why}"
    return Row(max(first, last), max(0, stamp_ms), None, None, f"{reason.value} {sentence}")


class _RecordReader:
    """Walks through the inflated part of a batch.

    next_offset: the offset after the last row. problem: why the rest can't be read, "" at the end.
    is_broken: whether a record can't, maybe one that claims an offset that was there already.
    """

    def __init__(self, batch: RecordBatch, record_bytes: int) -> None:
        self._batch, self._record_bytes = batch, record_bytes
        head = _HEADER.unpack_from(batch.content)
        self._count, self._first_ms, self._max_ms = head[12], head[7], head[8]
        self._is_append_time = bool(head[5] & _LOG_APPEND_TIME)
        self._plain, self._is_whole, self._at = b"", True, 0
        self.next_offset = batch.first
        self.reason, self.problem = RejectReason.UNREADABLE, ""
        self.is_broken = False

    def rows(self) -> Iterator[Row]:
        """The records up to the first that can't be read."""
        try:
            self._plain, self._is_whole = _inflate(self._batch)
            for number in range(min(self._count, RECORDS_PER_BATCH)):
                if not self._is_whole and self._at >= len(self._plain):
                    break
                row = self._row(number)
                self.next_offset = row.offset + 1
                yield row
        except UnreadableError as error:
            self.reason, self.problem = error.reason, f"it can't be read: {error}"
            self.is_broken = True
        if self._count > RECORDS_PER_BATCH or not self._is_whole:
            self.reason = RejectReason.TOO_LARGE
            self.problem = (
                f"it has {self._count} records and inflates to more than is read of one batch"
                f" ({PLAIN_BATCH_BYTES} bytes, {RECORDS_PER_BATCH} records); send smaller batches"
            )

    def _row(self, number: int) -> Row:
        length = self._varint()
        begin = self._at
        if length < 0:
            raise UnreadableError(f"record {number} has a negative length")
        self._at += 1  # attributes, which no version uses
        stamp_delta, offset_delta = self._varint(), self._varint()
        offset = self._batch.first + offset_delta
        if not self.next_offset <= offset < self._batch.end:
            raise UnreadableError(f"record {number} has an offset outside of its batch or order")
        stamp_ms = self._max_ms if self._is_append_time else self._first_ms + stamp_delta
        stamp_ms = min(max(stamp_ms, 0), 2**62)
        if length > self._record_bytes:
            return self._too_large(offset, stamp_ms, length, begin)
        if begin + length > len(self._plain):
            raise UnreadableError(f"record {number} ends beyond its batch")
        key, value = self._bytes(begin + length), self._bytes(begin + length)
        self._at = begin + length  # headers are of no use here
        return Row(offset, stamp_ms, key, value)

    def _too_large(self, offset: int, stamp_ms: int, length: int, begin: int) -> Row:
        key = self._prefix()
        value = self._prefix() if len(key) < PREFIX_BYTES else b""
        self._at = begin + length
        sentence = (
            f"offset {offset}: the record has {length} bytes when inflated and the limit is"
            f" {self._record_bytes}; its key begins with {key[:64]!r}; send less in one message"
        )
        return Row(offset, stamp_ms, key, value, f"{RejectReason.TOO_LARGE.value} {sentence}")

    def _prefix(self) -> bytes:
        """Return the first of the next bytes, whatever length they claim."""
        try:
            length = max(self._varint(), 0)
        except UnreadableError:
            return b""
        found = bytes(self._plain[self._at : self._at + min(length, PREFIX_BYTES)])
        self._at += length
        return found

    def _bytes(self, end: int) -> bytes | None:
        length = self._varint()
        if length < 0:
            return None
        if self._at + length > end:
            raise UnreadableError("a key or value ends beyond its record")
        found = self._plain[self._at : self._at + length]
        self._at += length
        return found

    def _varint(self) -> int:
        found = shift = 0
        for at in range(self._at, min(self._at + _VARINT_BYTES, len(self._plain))):
            byte = self._plain[at]
            found |= (byte & 0x7F) << shift
            if not byte & 0x80:
                self._at = at + 1
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise UnreadableError("a number has no end")


def _inflate(batch: RecordBatch) -> tuple[bytes, bool]:
    """The plain bytes of a batch up to the bound, and whether these are all."""
    content = batch.content[_HEADER.size :]
    codec = _HEADER.unpack_from(batch.content)[5] & _CODEC
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
    """Yield the first member.

    Producers write one, and a million empty ones would take a minute.
    """
    stream, left = zlib.decompressobj(wbits=31), bytes(content)
    while not stream.eof:
        piece = stream.decompress(left, _PIECE)
        left = stream.unconsumed_tail
        if not piece and not left and not stream.eof:
            raise UnreadableError("the compressed bytes are cut")
        yield piece


def _streamed_pieces(codec: str) -> Callable[[memoryview], Iterator[bytes]]:
    def pieces(content: memoryview) -> Iterator[bytes]:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(content)), codec) as stream:
            while piece := stream.read(_PIECE):
                yield piece

    return pieces


def _snappy_pieces(content: memoryview) -> Iterator[bytes]:
    """Kafka's Java clients frame blocks as xerial does; others send one block."""
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
    plain: bytes = pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)
    return plain


_PIECES: Mapping[int, Callable[[memoryview], Iterator[bytes]]] = {
    1: _gzip_pieces,
    2: _snappy_pieces,
    3: _streamed_pieces("lz4"),
    4: _streamed_pieces("zstd"),
}
