"""State of each broker in a scorer: current start, topic positions and load.

The order of broker-load decides which start (incarnation) of a broker counts. Other topics are read
at other times: what they carry of a start that is not known yet is *early*, and comes again. A
superseded start counts again when it goes on sending while the one after it does not: that one was
a late echo.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from lbcore.packing import LEFT_OUT
from lbcore.scorer.group_update import (
    BrokerReport,
    BundleReport,
    PositionedMessage,
    RejectedMessage,
)
from lbcore.wire.messages import BrokerLoad, Envelope, Position, Rejected

STATE_SCHEMA = 3
REINSTATED_AFTER_MS = 10_000
_SUPERSEDED_KEPT = 16
BROKER_STATE_KEPT_MS = 3_600_000
"""Time that a silent broker is remembered, ms.

What is forgotten by then would not be used again: its averages are old, and no echo of an older
start takes an hour. It begins again.
"""


SUPERSEDED, UNKNOWN = "late", "early"
"""Verdicts on messages of another start than the one that counts; labels of the messages metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message as Kafka gave it.

    refusal: "REASON sentence" where the source could not read it; key and value are prefixes then.
    is_full: its batch was cut off by the source's bound, which is one for all clusters.
    """

    position: Position
    key: bytes | None
    value: bytes | None
    refusal: str = ""
    is_full: bool = False


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


@dataclass(slots=True, kw_only=True)
class BrokerState:
    """State of one broker: its start, topic positions and smoothed load.

    A batch changes its own copy in place: one for each message would be expensive. heard_ms:
    Kafka's time of the start's last message of broker-load. loads: reports of this start in this
    batch, with their messages; not smoothed in yet.
    """

    incarnation: str
    heard_ms: int = 0
    superseded: tuple[str, ...] = ()
    seqs: dict[str, int] = field(default_factory=dict)
    smoothed: Smoothed | None = None
    pending: PendingParts | None = None
    loads: Annotated[list[tuple[BrokerLoad, RawMessage]], LEFT_OUT] = field(default_factory=list)

    @property
    def pending_bytes(self) -> int:
        """Size of the parts that wait for other parts, bytes."""
        parts = self.pending.parts if self.pending else {}
        return sum(len(event.value or b"") for event in parts.values())


ScorerState: TypeAlias = Mapping[str, BrokerState]


def state_after(state: BrokerState | None, envelope: Envelope, at_ms: int) -> BrokerState | None:
    """Return the broker's state after a message of broker-load; None when it is late.

    The same one, moved on, while the start goes on; a new one where another start counts now.
    """
    if state is None:
        return BrokerState(incarnation=envelope.incarnation, heard_ms=at_ms)
    if envelope.incarnation == state.incarnation:
        state.heard_ms = at_ms
        return state
    is_superseded = envelope.incarnation in state.superseded
    state.heard_ms = min(state.heard_ms, at_ms)  # Kafka's clock was set back: it counts from now
    if is_superseded and at_ms - state.heard_ms <= REINSTATED_AFTER_MS:
        return None
    others = [one for one in state.superseded if one != envelope.incarnation]
    superseded = (*others, state.incarnation)[-_SUPERSEDED_KEPT:]
    return BrokerState(incarnation=envelope.incarnation, heard_ms=at_ms, superseded=superseded)


def incarnation_verdict(state: BrokerState | None, envelope: Envelope) -> str:
    """Return the verdict on the start of a message of any other topic; "" = it counts."""
    if state is not None and envelope.incarnation == state.incarnation:
        return ""
    is_superseded = state is not None and envelope.incarnation in state.superseded
    return SUPERSEDED if is_superseded else UNKNOWN


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

    before: states at the start of the batch; broker_states: those it has touched. loaded: the
    states of brokers with a load in this batch; reports: their newest loads, smoothed. silent:
    brokers to be forgotten.
    """

    before: ScorerState
    broker_states: dict[str, BrokerState] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    arrivals: list[tuple[int, int, int, str]] = field(default_factory=list)
    loaded: dict[str, BrokerState] = field(default_factory=dict)
    bundles: dict[str, BundleReport] = field(default_factory=dict)
    messages: list[PositionedMessage] = field(default_factory=list)
    rejected: list[RejectedMessage] = field(default_factory=list)
    refused_bytes: int = 0
    is_full: bool = False
    pending_bytes: int = field(init=False)
    not_kept: Counter[str] = field(default_factory=Counter)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    reports: dict[str, BrokerReport] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pending_bytes = sum(state.pending_bytes for state in self.before.values())

    def refuse(self, event: RawMessage, rejected: Rejected) -> None:
        """Keep a refused message, or count it where there are too many."""
        self.counts["rejected"] += 1
        position = event.position
        if len(self.rejected) >= REFUSED_PER_BATCH or self.refused_bytes > REFUSED_BYTES_PER_BATCH:
            self.not_kept[f"{position.topic}:{rejected.reason.value}"] += 1
            return
        size = len(rejected.raw)
        if size > REFUSED_RAW_BYTES:
            detail = f"{rejected.detail} (of its {size} bytes {REFUSED_RAW_BYTES} are kept)"
            rejected = replace(rejected, raw=rejected.raw[:REFUSED_RAW_BYTES], detail=detail)
        self.refused_bytes += len(rejected.raw)
        self.rejected.append(RejectedMessage(position=position, rejected=rejected))

    def close(self) -> ScorerState:
        """Return the state after the batch, whose loads have been smoothed in."""
        broker_states = {
            **self.before,
            **{n: replace(one, loads=[]) for n, one in self.broker_states.items()},
        }
        if not self.silent:
            return broker_states
        return {name: state for name, state in broker_states.items() if name not in self.silent}

    def broker_state(self, broker: str) -> BrokerState | None:
        """The batch's copy of a broker's state; None when it has none."""
        found = self.broker_states.get(broker)
        if found is None and broker in self.before:
            before = self.before[broker]
            found = self.broker_states[broker] = replace(before, seqs=dict(before.seqs), loads=[])
        return found
