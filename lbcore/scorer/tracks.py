"""State of each broker in a scorer: current start, topic positions and load.

Decides which start of a broker counts. The order of broker-load decides; a start is first heard of
there. Other topics are read at other times. What they carry of a start that is not known yet is
therefore early, and comes again. A start that was superseded counts again when it goes on sending
while the one after it does not. That one was then only a late echo. Used by `scorer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from lbcore import packing
from lbcore.machine import UnknownStateSchemaError
from lbcore.plain import applied, plain_of
from lbcore.wire.messages import BrokerLoad, Envelope, Position

STATE_SCHEMA = 3
REINSTATED_AFTER_MS = 10_000
_SUPERSEDED_KEPT = 16
TRACK_KEPT_MS = 3_600_000
"""Time that a silent broker is remembered, ms.

What is forgotten by then would not be used again: its averages are old, and no echo of an older
start takes an hour. It begins anew.
"""


class IncarnationStatus(str, Enum):
    """Relation of a message's incarnation to its broker's track."""

    CURRENT = "current"
    SUPERSEDED = "late"
    UNKNOWN = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message as Kafka gave it.

    refusal: "REASON sentence" where the source could not read it; key and value are prefixes then.
    """

    position: Position
    key: bytes | None
    value: bytes | None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """A broker's smoothed load.

    weighted_max_ema: 1.0 = 100 %; throughput_ema: bytes/s.
    """

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


@dataclass(slots=True, kw_only=True)
class MutableTrack:
    """BrokerTrack that changes in place within a batch.

    A copy for each message would be expensive. loads: reports of this start in this batch, with
    their messages; not smoothed in yet.
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
    def of(cls, track: BrokerTrack) -> "MutableTrack":
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


def track_after(track: MutableTrack | None, envelope: Envelope, at_ms: int) -> MutableTrack | None:
    """Return the track after a message of broker-load; None when it is late.

    The same one, moved on, while the start goes on; a new one where another start counts now.
    """
    if track is None:
        return MutableTrack(incarnation=envelope.incarnation, heard_ms=at_ms)
    if envelope.incarnation == track.incarnation:
        track.heard_ms = at_ms
        return track
    is_superseded = envelope.incarnation in track.superseded
    track.heard_ms = min(track.heard_ms, at_ms)  # Kafka's clock was set back: it counts from now
    if is_superseded and at_ms - track.heard_ms <= REINSTATED_AFTER_MS:
        return None
    others = [one for one in track.superseded if one != envelope.incarnation]
    superseded = (*others, track.incarnation)[-_SUPERSEDED_KEPT:]
    return MutableTrack(incarnation=envelope.incarnation, heard_ms=at_ms, superseded=superseded)


def incarnation_status(track: MutableTrack | None, envelope: Envelope) -> IncarnationStatus:
    """Return the relation of a message of any other topic to the broker's track."""
    if track is None:
        return IncarnationStatus.UNKNOWN
    if envelope.incarnation == track.incarnation:
        return IncarnationStatus.CURRENT
    return (
        IncarnationStatus.SUPERSEDED
        if envelope.incarnation in track.superseded
        else IncarnationStatus.UNKNOWN
    )


_STATE = plain_of(ScorerState)


def pack_tracks(state: ScorerState) -> bytes:
    """The tracks as one blob; equal tracks give equal bytes."""
    return packing.pack({"schema": STATE_SCHEMA, "brokers": applied(_STATE.to, state)}, {})


def unpack_tracks(blob: bytes) -> ScorerState:
    """Inverse of `pack_tracks`. Raises UnknownStateSchemaError, MalformedBlobError."""
    plain, _ = packing.unpack(blob)
    if plain["schema"] != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("BrokerScorer", plain["schema"], STATE_SCHEMA)
    state: ScorerState = applied(_STATE.back, plain["brokers"])
    return state
