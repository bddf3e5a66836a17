"""What a scorer remembers of each broker: which start counts, where its topics stand, its load.

Decides which start of a broker counts: the order of broker-load does, where a start is first heard
of. Other topics are read at other times, so what they carry of a start that is not known yet is
early, and comes again. A start that was superseded counts again when it goes on speaking while the
one after it does not: then that one was only a late echo. Used by `scorer`. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from lbcore import packing
from lbcore.machine import UnknownStateSchemaError
from lbcore.wire.messages import BrokerLoad, Envelope, Position

STATE_SCHEMA = 1
REINSTATED_AFTER_MS = 10_000
_SUPERSEDED_KEPT = 16
TRACK_KEPT_MS = 3_600_000
"""How long a broker is remembered that says nothing. What is forgotten by then would not be used
again: its averages are old, and no echo of an older start takes an hour. It begins anew."""


class Start(str, Enum):
    """What a message's incarnation is to its broker's track."""

    PRESENT = "present"
    LATE = "late"
    EARLY = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message as Kafka gave it."""

    position: Position
    key: bytes | None
    value: bytes | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTrack:
    """What is remembered of one broker: its start, where each topic stands, its smoothed load.

    heard_ms: Kafka's time of the start's last message of broker-load.
    """

    incarnation: str
    heard_ms: int = 0
    superseded: tuple[str, ...] = ()
    seqs: Mapping[str, int] = field(default_factory=dict)
    smoothed: Smoothed | None = None
    pending: PendingParts | None = None


ScorerState: TypeAlias = Mapping[str, BrokerTrack]


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
        """What is remembered of it. `loads` must have been smoothed in."""
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
    """What a message of any other topic is to the broker's track."""
    if track is None:
        return Start.EARLY
    if envelope.incarnation == track.incarnation:
        return Start.PRESENT
    return Start.LATE if envelope.incarnation in track.superseded else Start.EARLY


def pack_tracks(state: ScorerState) -> bytes:
    """The tracks as one blob; equal tracks give equal bytes."""
    raws: list[bytes] = []
    plain = {name: _plain_track(state[name], raws) for name in sorted(state)}
    raw = np.frombuffer(b"".join(raws), dtype=np.uint8)
    return packing.pack({"schema": STATE_SCHEMA, "brokers": plain}, {"raw": raw})


def _plain_track(track: BrokerTrack, raws: list[bytes]) -> list[Any]:
    smoothed = track.smoothed
    emas = None
    if smoothed:
        emas = [smoothed.weighted_max_ema, smoothed.throughput_ema, smoothed.updated_ms]
    pending = None
    if track.pending:
        parts = []
        for part, event in sorted(track.pending.parts.items()):
            key, value = event.key or b"", event.value or b""
            at = event.position
            place = [at.topic, at.partition, at.offset, at.timestamp_ms]
            parts.append([part, place, len(key), len(value)])
            raws += [key, value]
        pending = [track.pending.seq, parts]
    start = [track.incarnation, track.heard_ms, track.superseded]
    return [start, dict(track.seqs), emas, pending]


def unpack_tracks(blob: bytes) -> ScorerState:
    """The inverse of `pack_tracks`. Raises UnknownStateSchemaError."""
    plain, arrays = packing.unpack(blob)
    if plain["schema"] != STATE_SCHEMA:
        raise UnknownStateSchemaError.of("BrokerScorer", plain["schema"], STATE_SCHEMA)
    raw = memoryview(arrays["raw"].tobytes())
    tracks = {}
    for name, (start, seqs, emas, pending) in plain["brokers"].items():
        smoothed = None
        if emas:
            smoothed = Smoothed(
                weighted_max_ema=emas[0], throughput_ema=emas[1], updated_ms=emas[2]
            )
        kept, raw = _unpack_pending(pending, raw)
        tracks[name] = BrokerTrack(
            incarnation=start[0],
            heard_ms=start[1],
            superseded=tuple(start[2]),
            seqs=seqs,
            smoothed=smoothed,
            pending=kept,
        )
    return tracks


def _unpack_pending(
    pending: Sequence[Any] | None, raw: memoryview
) -> tuple[PendingParts | None, memoryview]:
    if pending is None:
        return None, raw
    parts = {}
    for part, (topic, partition, offset, timestamp_ms), key_size, value_size in pending[1]:
        position = Position(
            topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms
        )
        key, value = bytes(raw[:key_size]), bytes(raw[key_size : key_size + value_size])
        parts[part] = RawMessage(position=position, key=key, value=value)
        raw = raw[key_size + value_size :]
    return PendingParts(seq=pending[0], parts=parts), raw
