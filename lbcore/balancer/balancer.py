"""ClusterBalancer: the one place where a cluster's ownership changes.

Start reading here. `PHASES` below lists what is done with a batch, in order: commands, acks,
reports, dead brokers, stuck bundles, bundles without an owner, and, in a cycle, shedding and
splits. The imports say which file has each phase. An item that raises is left out of the batch, and
a `BatchPhase` that raises is skipped as a whole; see `fault_isolation`. The input comes from the
scorers; effects are rows for the tables and records for the brokers. The protocol is Pulsar 4.0.8's
extensible load manager with one writer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, get_type_hints

from lbcore import packing
from lbcore.balancer.approvals import continue_proposals
from lbcore.balancer.batch_context import BalancerState, BatchContext, Times
from lbcore.balancer.book import (
    FAILED,
    Outcome,
    completed,
    pack_brokers,
    remembered,
    unpack_brokers,
)
from lbcore.balancer.brokers import judge_brokers, watch_clocks
from lbcore.balancer.bundle_commands import UNLOAD_NAMESPACE, continue_unloads
from lbcore.balancer.commands import take_commands, take_queued_of
from lbcore.balancer.cycle import place_free, run_cycle
from lbcore.balancer.effects import REPORT, Effect, pack_effect
from lbcore.balancer.intake import (
    count_not_kept,
    follow_starts,
    reject,
    take_bundles,
    take_loads,
    take_topics,
    write_refused,
)
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.merges import continue_merges, merge_cold
from lbcore.balancer.moves import continue_drains, end_pins, follow_pins, observe_moves
from lbcore.balancer.namespaces import (
    CREATING,
    DELETING,
    adapt_creation_rate,
    continue_creations,
    continue_deletions,
    drop_unrecorded,
    expire_deleted,
    expire_state,
    namespaces_with,
    reserve_bundles,
)
from lbcore.balancer.report import (
    bare_report,
    make_report,
    write_brokers,
    write_history,
    write_memory,
    write_settings,
)
from lbcore.balancer.topic_book import TopicBook
from lbcore.balancer.transitions import (
    BrokerAnswer,
    answers_of,
    reconcile,
    repair_ownership,
    take_answers,
    take_audit,
)
from lbcore.balancer.waiting import (
    MERGE,
    fail_waiting,
    idle_commands,
    settle_commands,
    write_outcome,
)
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.fault_isolation import ALARM, Fault, Guard, summarize_faults
from lbcore.machine import Step, UnknownStateSchemaError
from lbcore.ownership.changes import Change
from lbcore.ownership.invariants import violations_of_changes
from lbcore.ownership.liveness import Liveness
from lbcore.packing import Plain, plain_of
from lbcore.plan.decision import PlanState
from lbcore.scorer.group_update import (
    BrokerReport,
    BundleReport,
    GroupUpdate,
    PositionedMessage,
    RejectedMessage,
)
from lbcore.wire.messages import AuditEntry, Command, Position, Topic, TopicLoad

_SHOWN = 3


class BrokenInvariantError(AssertionError):
    """The balancer was about to write records that must never be."""


def check_transitions(work: BatchContext) -> None:
    """Raise BrokenInvariantError if the batch's transitions break an invariant."""
    ledger = work.ledger
    found = violations_of_changes(
        [Change(before=before, after=after) for before, after in work.transitions],
        lambda namespace: (ledger.names[row] for row in ledger.live_rows(namespace)),
    )
    if found:
        sentences = "; ".join(violation.sentence for violation in found[:_SHOWN])
        raise BrokenInvariantError(
            f"{len(found)} violations of ownership in one batch, nothing of it was written: "
            f"{sentences}; this is a bug: keep the state folder and report it"
        )


ROWS_EVERY_MS = 60_000
"""A fault that recurs in each batch is written down once in this time; the metric counts all."""

KIND, REASON = "fault", "InternalError"
"""Kind and reason of a fault's row in `decisions`."""

_ROWS_MAX = 20
"""Maximum causes of faults written down in ROWS_EVERY_MS."""

_WRITTEN = ("number", "phase", "type", "place", "item", "count")


def isolate(work: BatchContext, item: Any, fault: Fault) -> str:
    """Record that an item was left out; return its name.

    A command ends as failed. A message goes to the dead-letter table, of acks only the answer that
    raised, and a report without any change of load. Of other items nothing is written.
    """
    match item:
        case PositionedMessage(message=Command() as command):
            write_outcome(work, command, Outcome(status=FAILED, reason=fault.sentence))
            name = f"{command.kind} {command.command_id}"
        case PositionedMessage():
            name = reject(work, item.position, repr(item.message), fault)
        case RejectedMessage():
            name = reject(work, item.position, "", fault)
        case BrokerAnswer(ack=ack):
            reject(work, item.position, repr(ack), fault)
            name = f"{ack.outcome.value} of {ack.bundle} by {item.sender.broker}"
        case BrokerReport() | BundleReport():
            if isinstance(item, BrokerReport):
                name, topic = item.load.envelope.broker, Topic.BROKER_LOAD
            else:
                name, topic = item.broker, Topic.BUNDLE_LOAD
            position = Position(topic=topic.value, partition=-1, offset=-1, timestamp_ms=0)
            reject(work, position, repr(item), fault)
        case _:
            name = str(item)
    return name


def report_faults(work: BatchContext, faults: Sequence[Mapping[str, Any]]) -> None:
    """Count isolated faults, raise the alarm, and record each cause at intervals.

    faults: as `fault_isolation.summarize_faults` says them.
    """
    if not faults:
        return
    work.alarms.add(ALARM)
    work.faults += faults
    for fault in faults:
        work.counts[f"fault:{fault['phase']}"] += fault["count"]
    since_ms = work.now_ms - ROWS_EVERY_MS
    written = {name: at_ms for name, at_ms in work.times.faults_ms.items() if at_ms > since_ms}
    causes = {fault["number"]: fault for fault in reversed(faults)}  # by the cause's id
    due = sorted(causes.keys() - written)[: max(0, _ROWS_MAX - len(written))]
    work.set_times(faults_ms={**written, **dict.fromkeys(due, work.now_ms)})
    for number in due:
        inputs = {name: causes[number][name] for name in _WRITTEN}
        work.write_decision(KIND, REASON, inputs)


@dataclass(frozen=True, slots=True)
class BatchPhase:
    """A phase that is done, or left out, as a whole.

    is_vital: without it the tables would be wrong, so it is never left out alone. If it raises, the
    Machine's step runs again with `Guard.check` after each part, to leave out the culprit. If none
    is found, the whole batch is left out: its items are rejected, the state stays.
    """

    do: Callable[[BatchContext], None]
    is_vital: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPhase:
    """A phase over items that don't need each other.

    items: those of the batch. do: works on those that it is given, in order. on_fault: records that
    an item was left out and returns its name. otherwise: the fallback when on_fault raises.
    """

    items: Callable[[BatchContext], Sequence[Any]]
    do: Callable[[BatchContext, Sequence[Any]], None]
    on_fault: Callable[[BatchContext, Any, Fault], str] = isolate
    otherwise: Callable[[BatchContext, Any, Fault], str] | None = None


Phase: TypeAlias = BatchPhase | ItemPhase


def run_phases(work: BatchContext) -> None:
    """Run every phase in order, without those that the guard leaves out.

    Single items may be left out, too.
    """
    for name, phase in PHASES.items():
        if isinstance(phase, ItemPhase):
            handlers = (phase.on_fault, phase.otherwise)
            fault_handlers = [partial(handler, work) for handler in handlers if handler]
            work.guard.each(name, phase.items(work), partial(phase.do, work), *fault_handlers)
        elif phase.is_vital and work.guard.refused is None:
            # without the guard: its error repeats the step, or ends it; once the guard has refused
            # the whole batch, it leaves out vital phases, too
            phase.do(work)
        else:
            work.guard.run(name, partial(phase.do, work))


PHASES: dict[str, Phase] = {
    # whose clock is ahead or behind, before any time is believed
    "watch_clocks": BatchPhase(watch_clocks),
    # caps this batch's creations, deletions and unloads by how long recent batches took
    "adapt_creation_rate": BatchPhase(adapt_creation_rate),
    # adds the ledger rows of all namespaces in one go, where a batch creates several
    "reserve_bundles": BatchPhase(reserve_bundles),
    # pins whose time is over hold nothing in this batch
    "end_pins": BatchPhase(end_pins),
    # what operators ask for, in the order of the log
    "take_commands": ItemPhase(
        items=lambda work: work.messages_of(Command),
        do=take_commands,
        otherwise=lambda work, item, fault: reject(work, item.position, repr(item.message), fault),
    ),
    # what brokers did about what they were told: opened, closed, split, merged
    "take_answers": ItemPhase(items=answers_of, do=take_answers),
    # commands that waited for a bundle that is no longer busy
    "take_queued": ItemPhase(
        items=lambda work: [name for name, one in work.waiting.items() if one.is_queued],
        do=take_queued_of,
        on_fault=fail_waiting,
    ),
    # brokers that have started, each in a new incarnation
    "follow_starts": ItemPhase(
        items=lambda work: [
            start
            for one in work.updates
            for start in zip(one.brokers, one.incarnations, strict=True)
        ],
        do=follow_starts,
        on_fault=lambda _, start, __: str(start[0]),
    ),
    # what brokers report of themselves
    "take_loads": ItemPhase(
        items=lambda work: [load for one in work.updates for load in one.loads], do=take_loads
    ),
    # messages that the scorers refused, for the dead-letter table
    "write_refused": ItemPhase(
        items=lambda work: [message for one in work.updates for message in one.rejected],
        do=write_refused,
    ),
    # and how many of them are not kept
    "count_not_kept": BatchPhase(count_not_kept),
    # what brokers report of their bundles
    "take_bundles": ItemPhase(
        items=lambda work: [report for one in work.updates for report in one.bundles],
        do=take_bundles,
    ),
    # topic loads, used to choose split points
    "take_topics": ItemPhase(items=lambda work: work.messages_of(TopicLoad), do=take_topics),
    # actions of other processes, only recorded here
    "take_audit": ItemPhase(items=lambda work: work.messages_of(AuditEntry), do=take_audit),
    # ledger rows that were reserved above and that no command has used
    "drop_unrecorded": BatchPhase(drop_unrecorded),
    # who is alive, silent or dead, now that all reports are in
    "judge_brokers": BatchPhase(judge_brokers),
    # new owners for what the dead had, and an end for what is stuck
    "repair_ownership": BatchPhase(repair_ownership),
    # releases, then deletes, the next bundles of namespaces being deleted
    "drive_deletions": ItemPhase(
        items=lambda work: namespaces_with(work, DELETING),
        do=continue_deletions,
    ),
    # creates the next bundles of namespaces being created
    "drive_creations": ItemPhase(
        items=lambda work: namespaces_with(work, CREATING),
        do=continue_creations,
    ),
    # unloads the next bundles of namespaces being unloaded
    "drive_unloads": ItemPhase(
        items=lambda work: idle_commands(work, UNLOAD_NAMESPACE),
        do=continue_unloads,
        on_fault=fail_waiting,
    ),
    # whether earlier moves have helped
    "observe_moves": BatchPhase(observe_moves),
    # owners for the bundles that have none
    "place_free": BatchPhase(place_free),
    # when it is due: the plan, what to shed and split
    "run_cycle": BatchPhase(run_cycle),
    # merges whose bundles have one owner by now
    "drive_merges": ItemPhase(
        items=lambda work: idle_commands(work, MERGE), do=continue_merges, on_fault=fail_waiting
    ),
    # in cycles that decide splits, merges of cold pairs
    "merge_cold": BatchPhase(merge_cold),
    # continues approved plans, and ends those that are over
    "drive_proposals": ItemPhase(
        items=lambda work: sorted(work.rules.proposals),
        do=continue_proposals,
    ),
    # brokers that are being emptied: how far, and whether it is over
    "drive_drains": ItemPhase(
        items=lambda work: sorted(work.rules.drains),
        do=continue_drains,
    ),
    # pins of bundles that were split, deleted, or moved away by force or a drain
    "follow_pins": BatchPhase(follow_pins),
    # commands that have come to their end with all of the above
    "settle_commands": ItemPhase(
        items=lambda work: list(work.waiting), do=settle_commands, on_fault=fail_waiting
    ),
    # records of bundles that were deleted long ago
    "expire_deleted": BatchPhase(expire_deleted),
    # namespaces and brokers long gone, and planning's state of them
    "expire_state": BatchPhase(expire_state),
    # whether brokers serve what the records say
    "reconcile": BatchPhase(reconcile),
    # whether records keep the invariants of ownership: no later phase changes one
    "check_transitions": BatchPhase(check_transitions, is_vital=True),
    # rows of what operators have set, where it has changed
    "write_rules": BatchPhase(BatchContext.write_rules, is_vital=True),
    # rows of the brokers, where they have changed
    "write_brokers": BatchPhase(write_brokers),
    # rows of what planning remembers, where it has changed
    "write_memory": BatchPhase(write_memory),
    # rows of the job's settings, where they have changed
    "write_settings": BatchPhase(write_settings),
    # rows of load, once an interval of history
    "write_history": BatchPhase(write_history),
}
"""Name → phase. A batch goes through them from the first to the last."""

REBUILD_PHASE = "rebuild_rows"
"""Name under which rows that a rebuild could not read are counted as faults."""

INNER_PHASES = (
    "assign_free",
    "forget_silent",
    "make_report",
    "repair",
    "smooth_loads",
    "take_messages",
)
"""Further names for counting faults: parts of phases, and the scorer's steps."""


OLDEST_SCHEMA = 8
STATE_SCHEMA = 9
"""Rises with the layout. States from OLDEST_SCHEMA on are read; others are refused, and rebuilt."""


class ClusterBalancer:
    """The Machine of one cluster."""

    def __init__(self, *, cluster: str, config: Config) -> None:
        self._cluster = cluster
        self._config = config
        self._config_version = digest(config)

    def step(
        self,
        state: BalancerState | None,
        events: Sequence[GroupUpdate],
        now_ms: int,
        guard: Guard | None = None,
    ) -> Step[BalancerState, Effect]:
        """One micro-batch; the order of `events` doesn't matter."""
        before = state or self.empty()
        work = BatchContext.on(before, self._config, self._config_version, now_ms)
        work.updates = updates = sorted(events, key=attrgetter("group"))
        work.messages = sorted(
            [one for update in updates for one in update.messages],
            key=attrgetter("position.topic", "position.partition", "position.offset"),
        )
        # provisional: the phase `watch_clocks` sets the batch's time
        work.now_ms = before.times.decided_ms + 1 if before.times.decided_ms else now_ms
        for update in updates:
            work.counts.update(update.counts)
            for topic, ends in update.ends.items():  # the offsets up to which the batch has read
                known = work.ends.setdefault(topic, {})
                known |= {at: max(known.get(at, 0), end) for at, end in ends.items()}
        work.guard = guard = guard or Guard()
        guard.check = lambda: self._check(work)
        run_phases(work)
        by_scorers = [fault for update in updates for fault in update.faults]
        report_faults(work, [*before.unread, *by_scorers, *summarize_faults(guard.faults)])
        reports: list[Mapping[str, Any]] = []
        guard.faults.clear()
        guard.run("make_report", lambda: reports.append(make_report(work)))
        report_faults(work, summarize_faults(guard.faults))
        report = Effect(kind=REPORT, rows=[dict(reports[0] if reports else bare_report(work))])
        return Step(state=work.close(), effects=[*work.effects(), report])

    def _check(self, work: BatchContext) -> None:
        """Raise if the batch's result can't be packed, or breaks an invariant."""
        check_transitions(work)
        rows = {table: list(of) for table, of in work.rows.items()}
        trial = replace(work, ledger=work.ledger.copy(), rows=rows)
        trial.write_rules()
        write_brokers(trial)
        for effect in trial.effects():
            pack_effect(effect)
        self.pack(replace(trial.close(), packed={}))

    def empty(self) -> BalancerState:
        """The state of a cluster that nothing is known of."""
        return BalancerState(ledger=Ledger(self._cluster), liveness=Liveness(), plan=PlanState())

    def pack(self, state: BalancerState) -> Mapping[str, bytes]:
        """Return the state in chunks by rate of change; unchanged chunks are reused."""
        plain = {"schema": STATE_SCHEMA, **asdict(state.times)}
        chunks = {"clock": packing.pack(plain, {}), **pack_brokers(state.brokers, state.packed)}
        for name, converter in _PARTS.items():
            value = getattr(state, name)
            # dicts are equal in any order
            compared = list(value.items()) if name in _ORDERED else value
            chunks[name] = remembered(
                state.packed, f"pack {name}", compared, partial(_pack_part, name, converter, value)
            )
        return {**chunks, **state.ledger.pack(), **state.topics.pack()}

    def unpack(self, chunks: Mapping[str, bytes]) -> BalancerState:
        """The inverse of `pack`. Raises UnknownStateSchemaError, MalformedBlobError."""
        times, _ = packing.unpack(chunks["clock"])
        schema = times.pop("schema")
        if not OLDEST_SCHEMA <= schema <= STATE_SCHEMA:
            raise UnknownStateSchemaError.of("ClusterBalancer", schema, STATE_SCHEMA)
        parts: dict[str, Any] = {}
        for name, converter in _PARTS.items():
            plain, _ = packing.unpack(chunks[name])
            parts[name] = converter.back(plain["of"])
            if name in _ORDERED:
                parts[name] = {key: parts[name][key] for key in plain["order"]}
        parts["plan"] = completed(parts["plan"])
        return BalancerState(
            ledger=Ledger.unpack(chunks),
            topics=TopicBook.unpack(chunks),
            brokers=unpack_brokers(chunks),
            times=Times(**times),
            **parts,
        )


_PARTS: Mapping[str, Plain] = {
    name: plain_of(hint)
    for name, hint in get_type_hints(BalancerState).items()
    if name not in {"ledger", "topics", "brokers", "times", "packed"}
}
"""Fields of the state that are packed as plain values, each a chunk."""
_ORDERED = ("commands", "waiting")
"""Those whose order is part of the state."""


def _pack_part(name: str, converter: Plain, value: Any) -> bytes:
    order = list(value) if name in _ORDERED else []
    return packing.pack({"of": converter.to(value), "order": order}, {})
