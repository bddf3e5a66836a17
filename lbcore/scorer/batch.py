"""Working state of one scorer batch.

Part of `scorer`.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from lbcore.scorer.group_update import BrokerReport, BundleReport, Placed, RejectedMessage
from lbcore.scorer.tracks import MutableTrack, ScorerState

REFUSED_RAW_BYTES = 16_384
"""So much of a refused message is kept."""

REFUSED_PER_BATCH, REFUSED_BYTES_PER_BATCH = 1_000, 4_194_304
"""So many refused messages of a group are kept of one batch; the others are counted."""

PENDING_BYTES = 67_108_864
"""So many bytes of reports that wait for their other parts are held, of all brokers of a group."""


@dataclass(slots=True)
class ScorerBatch:
    """Working state and results of one batch.

    not_kept: "TOPIC:REASON" → refused messages that are not in `rejected`, which has refused_bytes.

    before: tracks at the start of the batch; tracks: those it has touched. loads: the track with
    the newest load of each broker; reports: that load, smoothed. silent: brokers to be forgotten.
    """

    before: ScorerState
    tracks: dict[str, MutableTrack] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    arrivals: list[tuple[int, int, int, str]] = field(default_factory=list)
    loads: dict[str, MutableTrack] = field(default_factory=dict)
    bundles: dict[str, BundleReport] = field(default_factory=dict)
    placed: list[Placed] = field(default_factory=list)
    rejected: list[RejectedMessage] = field(default_factory=list)
    refused_bytes: int = 0
    read_bytes: int = 0
    pending_bytes: int = field(init=False)
    not_kept: Counter[str] = field(default_factory=Counter)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    reports: dict[str, BrokerReport] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pending_bytes = sum(track.pending_bytes for track in self.before.values())

    def refuse(self, message: RejectedMessage) -> None:
        """Keep a refused message, or count it where there are too many."""
        self.counts["rejected"] += 1
        rejected = message.rejected
        if len(self.rejected) >= REFUSED_PER_BATCH or self.refused_bytes > REFUSED_BYTES_PER_BATCH:
            self.not_kept[f"{message.position.topic}:{rejected.reason.value}"] += 1
            return
        size = len(rejected.raw)
        if size > REFUSED_RAW_BYTES:
            detail = f"{rejected.detail} (of its {size} bytes {REFUSED_RAW_BYTES} are kept)"
            raw = rejected.raw[:REFUSED_RAW_BYTES]
            message = replace(message, rejected=replace(rejected, raw=raw, detail=detail))
        self.refused_bytes += len(message.rejected.raw)
        self.rejected.append(message)

    def close(self) -> ScorerState:
        """Return the state after the batch."""
        closed = {name: track.close() for name, track in self.tracks.items()}
        tracks = {**self.before, **closed}
        if not self.silent:
            return tracks
        return {name: track for name, track in tracks.items() if name not in self.silent}

    def track(self, broker: str) -> MutableTrack | None:
        """The broker's track, opened on first touch; None when it has none."""
        found = self.tracks.get(broker)
        if found is None and broker in self.before:
            found = self.tracks[broker] = MutableTrack.of(self.before[broker])
        return found
