"""The balancer's state: everything that it remembers of one cluster, from batch to batch.

Decides nothing; `balancer` packs it, `work` opens it for change. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lbcore.balancer.state.book import BrokerEntry, NamespaceEntry
from lbcore.balancer.state.catalogue import Catalogue
from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.state.memo import Memo
from lbcore.balancer.state.other_shards import OtherShard
from lbcore.balancer.state.outcome import Waiting
from lbcore.balancer.state.pending_effects import PendingEffect
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.shadows import Shadow
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.ownership.liveness import Liveness
from lbcore.plan.decision import PlanState


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When the balancer did what.

    clock_ms: the waiting clock, see `broker_liveness`. decided_ms: time of the last batch, as
    `telling_time` tells it; stepped_ms: and by the driver's clock alone; read_ms: of the last one
    that left nothing unread, 0 = none yet. tick_ms: the newest tick's. cycle: number of the last
    cycle, begun at cycle_ms; shed_ms, split_ms: of the last that shed, and split. history_ms: of
    the last rows of history, written for brokers up to history_after, "" = for all.
    repaired_up_to: the last bundle of a repair that goes on, "" = none does. newcomer_clock_ms:
    clock_ms when a broker's start was first seen; brake_clock_ms: and when the brake was engaged.
    fault_ms: when a fault was last written down. version_floor: no time, but the highest version of
    forgotten namespaces. apart: clock → by how much it was ahead when last seen to be wrong, when
    that was, and when that was written down. share: no time either, but `Work.share`, 0 = not known
    yet. usual_ms: how long after the one before it a batch comes that makes few bundles, see
    `pace`, 0 = not known yet. silent_brokers: how many were silent when it was last told that many
    are, 0 = not so many. refused_bytes: what has been kept of refused messages, less what time
    allows since, at refused_ms.
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
    that a rebuild could not read, as `put_aside.told` says it, until the first batch has told of
    them. shadows: strategy → what it remembers that plans beside. others: shard → what it said last
    that it carries. told: digest of the settings that the tables were told last. packed: no part of
    the state, but chunks that `pack` need not make again.
    """

    ledger: Ledger
    liveness: Liveness
    plan: PlanState
    brokers: Mapping[str, BrokerEntry] = field(default_factory=dict)
    namespaces: Mapping[str, NamespaceEntry] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: ClusterRules = field(default_factory=ClusterRules)
    catalogue: Catalogue = field(default_factory=Catalogue)
    times: Times = field(default_factory=Times)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    topics: TopicBook = field(default_factory=TopicBook)
    pending_effects: Mapping[str, PendingEffect] = field(default_factory=dict)
    unread: Sequence[Mapping[str, Any]] = ()
    shadows: Mapping[str, Shadow] = field(default_factory=dict)
    others: Mapping[str, OtherShard] = field(default_factory=dict)
    told: str = ""
    packed: Memo = field(default_factory=dict, repr=False, compare=False)
