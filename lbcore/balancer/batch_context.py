"""The balancer's state, opened for the changes and effects of one batch.

The phases of `balancer` (commands, intake, repairs, cycle) work on it in turn.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.book import (
    BrokerEntry,
    Memo,
    NamespaceEntry,
    Waiting,
    namespace_row,
    remembered,
    set_or_drop,
)
from lbcore.balancer.effects import TOMBSTONE, Effect, Row, event_row, record_row, to_json
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.rules import (
    KIND_OF_FIELD,
    PIN,
    ClusterRules,
    Key,
    differing,
)
from lbcore.balancer.topic_book import Catalog, OpenCatalog, TopicBook
from lbcore.config.load import digest
from lbcore.config.setting import UNSET
from lbcore.config.tree import Config
from lbcore.fault_isolation import Guard
from lbcore.model.tables import (
    BUNDLE_OWNERSHIP,
    COMMANDS,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
)
from lbcore.ownership.changes import Instance, Origin, Refused, Transition
from lbcore.ownership.liveness import Liveness
from lbcore.ownership.records import Cause, OwnershipRecord
from lbcore.plan.decision import PlanState
from lbcore.scorer.group_update import GroupUpdate, PositionedMessage
from lbcore.validation.check import in_force, with_dynamic
from lbcore.wire.messages import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredMove:
    """Decided move whose effect on usage is not measured yet.

    source_before, destination_before: usages when it was decided. moved_tick_ms: Kafka's time when
    it was opened, 0 = not. destination: "" = whichever broker placement chooses.
    """

    decision_id: str
    source: str
    destination: str
    decided_ms: int
    source_before: float
    destination_before: float
    moved_ms: int = 0
    moved_tick_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of the balancer's actions.

    clock_ms: running time that timeouts count, without the job's absences, see
    `brokers.watch_clocks`. decided_ms, stepped_ms: now_ms and wall_ms of the last batch, see
    `BatchContext`. read_ms: decided_ms of the last batch that left no message unread, 0 = none
    yet. tick_ms: the newest tick's. cycle: number of the last cycle, begun at cycle_ms. shed_ms,
    split_ms: of the last cycle in which shedding, and splitting, was due. history_ms: of the last
    rows of history, written for brokers up to history_after, "" = for all. repaired_up_to: the last
    bundle of a repair in progress, "" = none. newcomer_clock_ms: clock_ms when the latest start of
    a broker was seen. brake_clock_ms: clock_ms when the brake was engaged. faults_ms: number of a
    fault's cause → when it was last written down. version_floor: not a time, but the highest
    version of forgotten namespaces. apart: clock → how far ahead it was when last seen to be wrong,
    when that was, and when it was written down. share: bundles that a batch may create, by
    `adapt_creation_rate`, 0 = not known yet. usual_ms: usual time from one batch to the next while
    few bundles are made, 0 = not known yet. silent_brokers: how many were silent when the alarm of
    many silent brokers was last recorded, 0 = it was off. refused_bytes: level of the leaky bucket
    of refused messages at refused_ms.
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
    faults_ms: Mapping[str, int] = field(default_factory=dict)
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

    commands: the latest that have ended, id → status and identity (`waiting.remember`). settings:
    those that commands have changed, by "section.name". waiting: id → command that was accepted and
    has not ended. unmeasured_moves: bundle → its last move by balancing, until its effect is seen.
    unread: rows that a rebuild could not read, by cause, until the first batch has reported them.
    told: digest of the settings last written to the tables. packed: no part of the state, but
    chunks that `pack` need not make again.
    """

    ledger: Ledger
    liveness: Liveness
    plan: PlanState
    brokers: Mapping[str, BrokerEntry] = field(default_factory=dict)
    namespaces: Mapping[str, NamespaceEntry] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: ClusterRules = field(default_factory=ClusterRules)
    catalog: Catalog = field(default_factory=Catalog)
    times: Times = field(default_factory=Times)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    topics: TopicBook = field(default_factory=TopicBook)
    unmeasured_moves: Mapping[str, UnmeasuredMove] = field(default_factory=dict)
    unread: tuple[Mapping[str, Any], ...] = ()
    told: str = ""
    packed: Memo = field(default_factory=dict, repr=False, compare=False)


@dataclass(slots=True)
class BatchContext:
    """The state opened for change, and what the batch adds up to.

    unplaced: id → command and deadline, of assignments and splits whose bundles get their brokers
    in one placement at the end of the phase `take_commands`; unplaced_bundles: their bundles;
    unplaced_splits: namespaces of the splits among these commands; places: what placement says of
    bundles and children. tenant_counts: kind that `limits` bounds → tenant → how many it has. made:
    how many bundles were made for new namespaces; unloaded: how many it began to unload for unloads
    of namespaces. transitions: record before (None = new) and after; failures: bundle → its
    broker's reason, of failed acks. is_catching_up: what the batch has read is old, and newer
    reports wait; see `brokers.watch_clocks`. guard: leaves out what raises. wall_ms: the driver's
    clock; now_ms: the time by which the batch decides, see `clock.advance_clock`. before: the state
    that was opened. updates: the batch's input, in the order of groups; messages: those of all
    updates, in the order of the log.
    """

    before: BalancerState
    cluster: str
    config: Config
    config_version: str
    now_ms: int
    wall_ms: int
    ledger: Ledger
    liveness: Liveness
    plan: PlanState
    brokers: dict[str, BrokerEntry]
    namespaces: dict[str, NamespaceEntry]
    commands: dict[str, str]
    settings: Mapping[str, Any]
    rules: ClusterRules
    catalog: OpenCatalog
    times: Times
    waiting: dict[str, Waiting]
    topics: TopicBook
    unmeasured_moves: dict[str, UnmeasuredMove]
    base_config: Config
    told: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    transitions: list[tuple[OwnershipRecord | None, OwnershipRecord]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    forgotten: list[OwnershipRecord] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    changed_by: dict[Key, Command] = field(default_factory=dict)
    outcomes: dict[str, Row] = field(default_factory=dict)
    deregistered: set[str] = field(default_factory=set)
    alarms: set[str] = field(default_factory=set)
    without_candidate: Counter[str] = field(default_factory=Counter)
    faults: list[Mapping[str, Any]] = field(default_factory=list)
    created_topics: dict[str, tuple[NDArray[np.int64], int]] = field(default_factory=dict)
    unplaced: dict[str, tuple[Command, int]] = field(default_factory=dict)
    unplaced_bundles: dict[str, None] = field(default_factory=dict)
    unplaced_splits: dict[str, None] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    tenant_counts: dict[str, Counter[str]] = field(default_factory=dict)
    decided: int = 0
    made: int = 0
    unloaded: int = 0
    is_catching_up: bool = False
    updates: Sequence[GroupUpdate] = ()
    messages: Sequence[PositionedMessage] = ()
    guard: Guard = field(default_factory=Guard)

    @classmethod
    def on(
        cls, state: BalancerState, config: Config, config_version: str, now_ms: int
    ) -> "BatchContext":
        """Open a state; the state itself stays as it is. O(bundles)."""
        work = cls(
            before=state,
            cluster=state.ledger.cluster,
            config=config,
            base_config=config,
            config_version=config_version,
            now_ms=now_ms,
            wall_ms=now_ms,
            ledger=state.ledger.copy(),
            liveness=state.liveness,
            plan=state.plan,
            brokers=dict(state.brokers),
            namespaces=dict(state.namespaces),
            commands=dict(state.commands),
            settings={},
            rules=state.rules,
            catalog=OpenCatalog(state.catalog),
            times=state.times,
            waiting=dict(state.waiting),
            topics=state.topics,
            unmeasured_moves=dict(state.unmeasured_moves),
            told=state.told,
        )
        if state.settings or state.rules.set_aside:
            work.follow_files(state.settings)
        return work

    def follow_files(self, settings: Mapping[str, Any]) -> None:
        """Use the configuration files, with the commands' settings that suit them.

        The others are set aside, and reported, until the files suit them or somebody resets them.
        """
        memo, of = self.before.packed, (self.base_config, settings, sorted(self.rules.set_aside))
        config, aside = remembered(memo, "settings", of, lambda: in_force(*of))
        self.config, self.settings = config, settings
        self.config_version = remembered(memo, "version", config, lambda: digest(config))
        if aside != self.rules.set_aside:
            self.change_rules(set_aside=dict(aside))

    def use_settings(self, settings: Mapping[str, Any]) -> None:
        """From now on decide under the files' configuration with these changes.

        settings: by "section.name". Raises ConfigError when they don't suit, but for those that are
        set aside already and are not changed.
        """
        known = self.rules.set_aside.keys()
        unchanged = {key for key in known if settings.get(key, UNSET) == self.settings.get(key)}
        checked = {key: value for key, value in settings.items() if key not in unchanged}
        with_dynamic(self.base_config, checked)  # raises where they don't suit
        self.follow_files(settings)

    def change_rules(self, command: Command | None = None, **rules: Any) -> None:
        """Replace all rules of some kinds. O(rules of these kinds).

        command: the one that asked for it. The mappings become the batch's own: `set_rule` changes
        them in place.
        """
        before, self.rules = self.rules, replace(self.rules, **rules)
        if command is not None:
            self.changed_by |= {key: command for key, _, _ in differing(before, self.rules)}

    def set_rule(self, kind: str, name: str, rule: Any, command: Command | None = None) -> None:
        """Set one rule, or remove it (None).

        kind: a field of `ClusterRules` that holds rules by name. command: who asked for it. O(1),
        but for the first change of a kind in a batch, which copies its rules.
        """
        known = getattr(self.rules, kind)
        if known.get(name) == rule:
            return
        if known is getattr(self.before.rules, kind):
            copied: dict[str, Any] = {kind: dict(known)}
            self.rules = replace(self.rules, **copied)
        set_or_drop(getattr(self.rules, kind), name, rule)
        if command is not None:
            self.changed_by[KIND_OF_FIELD[kind], name] = command

    def write_rules(self) -> None:
        """Write a row of `policies` or `pins` for each rule that the batch changed."""
        for (kind, name), value, is_set in differing(self.before.rules, self.rules):
            command = self.changed_by.get((kind, name))
            by = {
                "principal": command.principal if command else "",
                "command_id": command.command_id if command else "",
            }
            if kind == PIN:
                self.add_row(PINS.name, {"bundle": name, **value, "is_set": is_set, **by})
            else:
                row = {"kind": kind, "name": name, "value": to_json(value), "is_set": is_set, **by}
                self.add_row(POLICIES.name, row)

    def close(self) -> BalancerState:
        """The state after the batch."""
        present = [(name, entry.incarnation) for name, entry in self.brokers.items()]
        self.ledger.prune_instances(present, is_due=bool(self.deregistered))
        return BalancerState(
            ledger=self.ledger,
            liveness=self.liveness,
            plan=self.plan,
            brokers=self.brokers,
            namespaces=self.namespaces,
            commands=self.commands,
            settings=self.settings,
            rules=self.rules.in_order(self.before.rules),
            catalog=self.catalog.close(),
            times=replace(self.times, decided_ms=self.now_ms, stepped_ms=self.wall_ms),
            waiting=self.waiting,
            topics=self.topics,
            unmeasured_moves=self.unmeasured_moves,
            told=self.told,
            packed=self.before.packed,
        )

    def messages_of(self, kind: type) -> list[PositionedMessage]:
        """The batch's messages of one kind, in order."""
        return [item for item in self.messages if isinstance(item.message, kind)]

    def set_times(self, **times: Any) -> None:
        """Replace some of the times; see `Times`."""
        self.times = replace(self.times, **times)

    def bounded_arrival_ms(self, stamp_ms: int) -> int:
        """Return the arrival time of a message, bounded in case Kafka's clock was wrong.

        It came before now, and after `read_ms`: what had come by then was read by then.
        """
        return min(max(stamp_ms, self.before.times.read_ms), self.now_ms)

    @property
    def max_usual(self) -> int:
        """Maximum number of bundles this batch deletes, unloads or expires, each.

        As `max_created`, but never more than the limit.
        """
        return min(self.max_created, self.config.limits.bundles_made_max)

    @property
    def max_created(self) -> int:
        """Maximum number of bundles this batch creates.

        `limits.bundles_made_max`, a multiple of it in a new cluster, less when batches are late.
        """
        return self.times.share or self.config.limits.bundles_made_max

    def origin(self, cause: Cause, decision_id: str = "", command_id: str = "") -> Origin:
        """Return the origin of this batch's records; the sink adds the writer's epoch."""
        return Origin(
            now_ms=self.now_ms, cause=cause, decision_id=decision_id, command_id=command_id
        )

    def apply(self, answer: Transition | Refused) -> str:
        """Apply a transition's records; return the reason of a refusal, "" = none."""
        if isinstance(answer, Refused):
            return answer.reason.value
        self.ledger.add(change.after.bundle for change in answer.changes)
        for change in answer.changes:
            self.ledger.put(change.after, self.times.clock_ms)
            self.transitions.append((change.before, change.after))
            self.counts[f"transition:{change.after.cause.value}"] += 1
        return ""

    def clear_load(self, names: Sequence[str]) -> None:
        """Forget load and topics of deleted bundles.

        A new namespace may have bundles of the same names.
        """
        self.ledger.clear_load(names)
        self.topics = self.topics.without(names)

    def add_row(self, table: str, row: Row) -> None:
        """A row for a table; cluster and time are added."""
        full = {"cluster": self.cluster, "at_ms": self.now_ms, **row}
        self.rows.setdefault(table, []).append(full)

    def keep_namespace(self, name: str, entry: NamespaceEntry) -> None:
        """Make this the namespace's entry, in the table too."""
        self.namespaces[name] = entry
        self.add_row(NAMESPACES.name, namespace_row(name, entry))

    def next_decision(self) -> str:
        """The id of this batch's next decision."""
        self.decided += 1
        return f"{self.cluster}-{self.now_ms}-{self.decided}"

    def write_decision(
        self,
        kind: str,
        reason: str,
        inputs: Mapping[str, Any],
        *,
        decision_id: str = "",
        **names: str,
    ) -> None:
        """Record a decision (or a skip). names: strategy, bundle, source, destination.

        decision_id: "" = the next one.
        """
        self.add_row(
            "decisions",
            {
                "strategy": "",
                "bundle": "",
                "source": "",
                "destination": "",
                **names,
                "decision_id": decision_id or self.next_decision(),
                "cycle": self.times.cycle,
                "kind": kind,
                "reason": reason,
                "inputs": to_json(inputs),
                "config_version": self.config_version,
            },
        )
        self.counts[f"decision:{kind}:{reason}"] += 1

    def instance(self, broker: str) -> Instance:
        """The broker in its present incarnation."""
        return Instance(broker=broker, incarnation=self.brokers[broker].incarnation)

    def effects(self) -> list[Effect]:
        """Rows by table, the transitions' tables included; tables in name order."""
        pairs = list(enumerate(self.transitions))
        newest = {after.bundle: record_row(after, i) for i, (_, after) in pairs}
        gone = [record_row(record, 0) for record in self.forgotten]
        rows = {
            **self.rows,
            COMMANDS.name: list(self.outcomes.values()),
            OWNERSHIP_EVENTS.name: [event_row(b, a, i) for i, (b, a) in pairs],
            BUNDLE_OWNERSHIP.name: [*(newest[name] for name in sorted(newest)), *gone],
            TOMBSTONE: [*self.rows.get(TOMBSTONE, ()), *gone],
        }
        return [Effect(kind=name, rows=rows[name]) for name in sorted(rows) if rows[name]]
