"""State of the balancer: everything that it remembers of one cluster from batch to batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lbcore import packing
from lbcore.balancer.state.book import BrokerEntry, NamespaceEntry
from lbcore.balancer.state.chunks import Memo
from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.state.outcome import Waiting
from lbcore.balancer.state.records import Records
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.ownership.liveness import Liveness
from lbcore.plan.decision import PlanState


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEffect:
    """A bundle that was decided to move. moved_tick_ms: Kafka's time when it was opened, 0 = not.

    destination: "" = placement's to choose; then whoever gets it.
    """

    decision_id: str
    source: str
    destination: str
    decided_ms: int
    source_before: float
    destination_before: float
    moved_ms: int = 0
    moved_tick_ms: int = 0


def effects_to_plain(pending_effects: Mapping[str, PendingEffect]) -> dict[str, Any]:
    """Return pending effects in the form that a packed state keeps."""
    return {bundle: packing.fields_of(one) for bundle, one in pending_effects.items()}


def effects_from_plain(plain: Mapping[str, Any]) -> dict[str, PendingEffect]:
    """The inverse of `effects_to_plain`."""
    return {bundle: PendingEffect(**one) for bundle, one in plain.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of the balancer's actions.

    clock_ms: the waiting clock, see `broker_liveness`. decided_ms: time of the last batch by
    `clock`. stepped_ms: the same by the driver's clock alone. read_ms: of the last batch that left
    nothing unread, 0 = none yet. tick_ms: the newest tick's. cycle: number of the last cycle, begun
    at cycle_ms. shed_ms, split_ms: of the last cycle that shed, and split. history_ms: of the last
    rows of history, written for brokers up to history_after, "" = for all. repaired_up_to: the last
    bundle of a repair in progress, "" = none. newcomer_clock_ms: clock_ms when a broker's start was
    first seen. brake_clock_ms: clock_ms when the brake was engaged. fault_ms: when a fault was last
    written down. version_floor: not a time, but the highest version of forgotten namespaces. apart:
    clock → how far ahead it was when last seen to be wrong, when that was, and when it was written
    down. share: not a time either, but `Work.share`, 0 = not known yet. usual_ms: usual interval
    between a batch that makes few bundles and the one before it, see `pace`, 0 = not known yet.
    silent_brokers: number of silent brokers when last reported as many, 0 = not so many.
    refused_bytes: bytes kept of refused messages at refused_ms, less what time has allowed since.
    """

    clock_ms: int = 0
    decided_ms: int = 0
    stepped_ms: int = 0
    read_ms: int = 0
    tick_ms: int = 0
    cycle: int = 0
    cycle_ms: int = 0
    shed_ms: int = 0
    split_ms: int = 0
    history_ms: int = 0
    history_after: str = ""
    repaired_up_to: str = ""
    newcomer_clock_ms: int = 0
    brake_clock_ms: int = 0
    fault_ms: int = 0
    version_floor: int = 0
    share: int = 0
    usual_ms: int = 0
    silent_brokers: int = 0
    refused_bytes: int = 0
    refused_ms: int = 0
    apart: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerState:
    """Everything that the balancer remembers of one cluster.

    commands: id → what `identity` remembers of it, the latest. settings: those that commands have
    changed, by "section.name". waiting: id → command that was accepted and has not ended.
    pending_effects: bundle → its last move by balancing, until its effect is seen. unread: rows
    that a rebuild could not read, by cause, until the first batch has told of
    them. told: digest of the settings that the
    tables were told last. packed: no part of the state, but chunks that `pack` need not make again.
    """

    ledger: Ledger
    liveness: Liveness
    plan: PlanState
    brokers: Mapping[str, BrokerEntry] = field(default_factory=dict)
    namespaces: Mapping[str, NamespaceEntry] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: ClusterRules = field(default_factory=ClusterRules)
    records: Records = field(default_factory=Records)
    times: Times = field(default_factory=Times)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    topics: TopicBook = field(default_factory=TopicBook)
    pending_effects: Mapping[str, PendingEffect] = field(default_factory=dict)
    unread: Sequence[Mapping[str, Any]] = ()
    told: str = ""
    packed: Memo = field(default_factory=dict, repr=False, compare=False)
