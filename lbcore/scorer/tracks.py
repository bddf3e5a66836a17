"""State of each broker in a scorer: current start, topic positions and load.

Decides which start of a broker counts. The order of broker-load decides; a start is first heard of
there. Other topics are read at other times. What they carry of a start that is not known yet is
therefore early, and comes again. A start that was superseded counts again when it goes on sending
while the one after it does not. That one was then only a late echo. Used by `scorer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, TypeAlias

from lbcore import columns, packing
from lbcore.machine import UnknownStateSchemaError
from lbcore.plain import LEFT_OUT
from lbcore.wire.messages import BrokerLoad, Envelope, Position

STATE_SCHEMA = 2
REINSTATED_AFTER_MS = 10_000
_SUPERSEDED_KEPT = 16
TRACK_KEPT_MS = 3_600_000
"""Time that a silent broker is remembered, ms.

What is forgotten by then would not be used again: its averages are old, and no echo of an older
start takes an hour. It begins anew.
"""


class Start(str, Enum):
    """Relation of a message's incarnation to its broker's track."""

    PRESENT = "present"
    LATE = "late"
    EARLY = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message as Kafka gave it.

    refusal: "REASON sentence" where the source could not read it; key and value are prefixes then.
    """

    position: Position
    key: bytes | None
    value: bytes | None
    refusal: Annotated[str, LEFT_OUT] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """A broker's smoothed load: weighted_max_ema 1.0 = 100 %, throughput_ema in bytes/s."""

    weighted_max_ema: float
    throughput_ema: float
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingParts:
    """The parts so far of one bundle report: part → message."""

    seq: int
    parts: Mapping[int, RawMessage] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The length of all values."""
        return sum(len(event.value or b"") for event in self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTrack:
    """State of one broker: its start, topic positions and smoothed load.

    heard_ms: Kafka's time of the start's last message of broker-load.
    """

    incarnation: str
    heard_ms: int = 0
    superseded: tuple[str, ...] = ()
    seqs: Mapping[str, int] = field(default_factory=dict)
    smoothed: Smoothed | None = None
    pending: PendingParts | None = None

    @property
    def pending_bytes(self) -> int:
        """Size of the parts that wait for other parts, bytes."""
        return self.pending.bytes if self.pending else 0


ScorerState: TypeAlias = Mapping[str, BrokerTrack]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tracks:
    """The state as it is packed: broker → track."""

    brokers: Mapping[str, BrokerTrack]


@dataclass(slots=True, kw_only=True)
class OpenTrack:
    """A BrokerTrack that changes in place while a batch is worked on: a copy a message is dear.

    loads: reports of this start in this batch, with their messages; not smoothed in yet.
    """

    incarnation: str
    heard_ms: int = 0
    superseded: tuple[str, ...] = ()
    seqs: dict[str, int] = field(default_factory=dict)
    smoothed: Smoothed | None = None
    pending: PendingParts | None = None
    loads: list[tuple[BrokerLoad, RawMessage]] = field(default_factory=list)

    @property
    def pending_bytes(self) -> int:
        """Size of the parts that wait for other parts, bytes."""
        return self.pending.bytes if self.pending else 0

    @classmethod
    def of(cls, track: BrokerTrack) -> "OpenTrack":
        """The track, opened; it stays as it is."""
        return cls(
            incarnation=track.incarnation,
            heard_ms=track.heard_ms,
            superseded=track.superseded,
            seqs=dict(track.seqs),
            smoothed=track.smoothed,
            pending=track.pending,
        )

    def close(self) -> BrokerTrack:
        """Return the track to keep.

        `loads` must have been smoothed in.
        """
        return BrokerTrack(
            incarnation=self.incarnation,
            heard_ms=self.heard_ms,
            superseded=self.superseded,
            seqs=self.seqs,
            smoothed=self.smoothed,
            pending=self.pending,
        )


def follow_start(track: OpenTrack | None, envelope: Envelope, at_ms: int) -> OpenTrack | None:
    """The broker's track after a message of broker-load; None when that message is late.

    The same one, moved on, while the start goes on; a new one where another start counts now.
    """
    if track is None:
        return OpenTrack(incarnation=envelope.incarnation, heard_ms=at_ms)
    if envelope.incarnation == track.incarnation:
        track.heard_ms = at_ms
        return track
    is_superseded = envelope.incarnation in track.superseded
    track.heard_ms = min(track.heard_ms, at_ms)  # Kafka's clock was set back: it counts from now
    if is_superseded and at_ms - track.heard_ms <= REINSTATED_AFTER_MS:
        return None
    others = [one for one in track.superseded if one != envelope.incarnation]
    superseded = (*others, track.incarnation)[-_SUPERSEDED_KEPT:]
    return OpenTrack(incarnation=envelope.incarnation, heard_ms=at_ms, superseded=superseded)


def start_of(track: OpenTrack | None, envelope: Envelope) -> Start:
    """Return the relation of a message of any other topic to the broker's track."""
    if track is None:
        return Start.EARLY
    if envelope.incarnation == track.incarnation:
        return Start.PRESENT
    return Start.LATE if envelope.incarnation in track.superseded else Start.EARLY


def pack_tracks(state: ScorerState) -> bytes:
    """The tracks as one blob; equal tracks give equal bytes."""
    packed = columns.columns_of(_Tracks(brokers=state))
    return packing.pack({"schema": STATE_SCHEMA, **packed.plain}, packed.arrays)


def unpack_tracks(blob: bytes) -> ScorerState:
    """The inverse of `pack_tracks`, also for schema 1. Raises UnknownStateSchemaError."""
    plain, arrays = packing.unpack(blob)
    if plain["schema"] == 1:
        return _first_schema(plain, memoryview(arrays["raw"].tobytes()))
    if plain["schema"] != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("BrokerScorer", plain["schema"], STATE_SCHEMA)
    return columns.record_of(_Tracks, columns.Packed(plain, arrays)).brokers


_POSITION = ("topic", "partition", "offset", "timestamp_ms")
_EMAS = ("weighted_max_ema", "throughput_ema", "updated_ms")


def _first_schema(plain: Mapping[str, Any], raw: memoryview) -> ScorerState:
    """The tracks of a state that was packed by position: raw has its messages' bytes in a row."""
    tracks = {}
    for name, (start, seqs, emas, pending) in plain["brokers"].items():
        parts = {}
        for part, place, *sizes in pending[1] if pending else ():
            key, value, raw = raw[: sizes[0]], raw[sizes[0] : sum(sizes)], raw[sum(sizes) :]
            position = Position(**dict(zip(_POSITION, place, strict=True)))
            parts[part] = RawMessage(position=position, key=bytes(key), value=bytes(value))
        tracks[name] = BrokerTrack(
            incarnation=start[0],
            heard_ms=start[1],
            superseded=tuple(start[2]),
            seqs=seqs,
            smoothed=Smoothed(**dict(zip(_EMAS, emas, strict=True))) if emas else None,
            pending=PendingParts(seq=pending[0], parts=parts) if pending else None,
        )
    return tracks
