"""Transitions of ownership: repairs, splits, merges, acks, audit entries.

Repairs give bundles of dead brokers new owners, and end stuck transitions. Brokers' answers (acks)
advance records, as `ownership.acknowledge` defines. Reconciliation compares brokers' reports with
the records. Part of `balancer`; the protocol is Pulsar 4.0.8's.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.brokers import (
    is_external,
    is_open,
    many_silent,
    overdue,
    unsteady,
    usable_brokers,
)
from lbcore.balancer.effects import RESEND, TOMBSTONE, record_row
from lbcore.balancer.intake import created_topics
from lbcore.balancer.ledger import NOBODY, STATE_CODE
from lbcore.balancer.moves import reason_to_stand_still, reason_to_stay
from lbcore.balancer.namespaces import is_deleting
from lbcore.balancer.placement import place, write_places
from lbcore.model.names import bundle_order, parse_bundle, range_end
from lbcore.model.tables import AUDIT
from lbcore.ownership.acknowledge import acknowledge, are_partners
from lbcore.ownership.changes import NOBODY as NO_INSTANCE
from lbcore.ownership.changes import (
    AckContext,
    Action,
    Instance,
    Intent,
    IntentReason,
    Refused,
    Transition,
    partner_of,
)
from lbcore.ownership.protocol import apply_intent, transfer
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.repair import FlightWatch, Presence, repair
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.decision import Places
from lbcore.plan.phases.assign import topic_shares
from lbcore.plan.snapshot import Ints
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.scorer.group_update import BundleReport, PositionedMessage
from lbcore.signals.averages import (
    BundleAverages,
    inherited_averages,
    joined_averages,
    with_rows,
)
from lbcore.wire.messages import Ack, AckOutcome, Acks, Position

_REPAIRED_MAX = 32_768
"""Maximum bundles repaired in a batch: in a cluster of 500,000 this takes 8 s on two slow cores."""
_DESTINATIONS_NAMED = 10
"""Maximum destinations that a decision lists, each with its number of bundles."""
_CAUSES = {
    IntentReason.OWNER_DEAD: Cause.FAILOVER,
    IntentReason.DESTINATION_DEAD: Cause.FAILOVER,
    IntentReason.SOURCE_DEAD: Cause.FAILOVER,
    IntentReason.RESTARTED: Cause.RESTART,
    IntentReason.NEVER_MERGED: Cause.MERGE,
}


def repair_ownership(work: BatchContext) -> None:
    """Repair broken or stuck records. O(bundles).

    Does nothing while the job reads a backlog, or under an external authority: its bridge records
    the ownership that it observes.
    """
    if work.is_catching_up or is_external(work):
        return
    ledger, config = work.ledger, work.config.ownership
    live = {name: entry.incarnation for name, entry in work.brokers.items() if not entry.is_dead}
    # of each instance by its id; the last is for NOBODY
    presence = [
        Presence.DEAD
        if one.broker not in live
        else Presence.ALIVE
        if live[one.broker] == one.incarnation
        else Presence.RESTARTED
        for one in ledger.instances.rows
    ] + [Presence.ALIVE]
    is_gone = np.array([one is not Presence.ALIVE for one in presence], dtype=np.bool_)
    owned = ledger.rows_in(State.OWNED)
    lost = owned[is_gone[ledger.destination[owned]]]
    is_silence = bool(many_silent(work))
    # the lost brokers may come back at once
    braked_ms = work.times.clock_ms - work.times.brake_clock_ms
    is_on_hold = work.rules.brake is not None and braked_ms < config.brake_confirm_ms
    intents: list[tuple[int, Intent]] = []
    for row in np.union1d(ledger.rows_in(*IN_FLIGHT), lost).tolist():
        record = ledger.record_at(row)
        partner = _partner(work, record) if record.state is State.MERGING else record
        watch = FlightWatch(
            source=presence[ledger.source[row]],
            destination=presence[ledger.destination[row]],
            waiting_ms=work.times.clock_ms - int(ledger.clock_ms[row]),
            silent_ms=work.times.clock_ms - int(ledger.closing_clock_ms[row]),
            is_partner_gone=partner is None
            or (partner is not record and not are_partners(record, partner)),
        )
        intent = repair(record, watch, config)
        if intent is None or intent.action is Action.WAIT:
            continue
        cause = _CAUSES.get(intent.reason)
        is_lost = cause in (Cause.FAILOVER, Cause.RESTART)
        if is_lost and is_deleting(work, record.bundle.rpartition("/")[0]):
            continue  # it is deleted once nobody has it open, and needs no other broker
        if (is_on_hold or is_silence) and cause is Cause.FAILOVER:
            work.counts["held_by_brake" if is_on_hold else "held_by_silence"] += 1
        else:
            intents.append((row, intent))
    work.guard.each(
        "repair",
        _repairs_of_batch(work, intents),
        lambda some: carry_out_all(work, some),
        lambda intent, _: ledger.names[intent[0]],
    )


def _repairs_of_batch(
    work: BatchContext, intents: Sequence[tuple[int, Intent]]
) -> Sequence[tuple[int, Intent]]:
    """Return the repairs of this batch, at most `_REPAIRED_MAX`.

    They begin where the last batch ended, and wrap around: bundles that no broker can take stay
    broken, and must not delay the others.
    """
    if len(intents) <= _REPAIRED_MAX:
        if work.times.repaired_up_to:
            work.set_times(repaired_up_to="")
        return intents
    names, up_to = work.ledger.names, bundle_order(work.times.repaired_up_to)
    first = bisect_right(intents, up_to, key=lambda intent: bundle_order(names[intent[0]]))
    chosen = [*intents[first:], *intents[:first]][:_REPAIRED_MAX]
    work.set_times(repaired_up_to=names[chosen[-1][0]])
    return chosen


def carry_out_all(work: BatchContext, intents: Sequence[tuple[int, Intent]]) -> None:
    """Carry out intents by row, choosing destinations for those that need one.

    Writes one decision for each reason and lost broker, with the bundles that it moved.
    """
    chosen, places = _destinations(work, intents)
    by_cause: dict[tuple[str, str], str] = {}
    for row, intent in intents:
        destination = chosen.get(row, "")
        if intent.action is not Action.CANCEL and not destination:
            work.counts["no_destination"] += 1
            continue
        record = work.ledger.record_at(row)
        lost_by = record.source if intent.reason is IntentReason.SOURCE_DEAD else record.destination
        decision_id = by_cause.get((intent.reason.value, lost_by))
        if decision_id is None:
            decision_id = work.next_decision()
            by_cause[intent.reason.value, lost_by] = decision_id
        asked = record.command_id if record.state in IN_FLIGHT else ""
        origin = work.origin(_CAUSES.get(intent.reason, Cause.REPAIR), decision_id, asked)
        target = work.instance(destination) if destination else NO_INSTANCE
        if not work.apply(apply_intent(record, intent, target, origin)):
            work.counts[f"repair:{intent.reason.value}"] += 1
    moved: dict[str, list[str]] = defaultdict(list)
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for _, after in work.transitions:
        moved[after.decision_id].append(after.bundle)
        taken[after.decision_id][after.destination] += 1
    for (reason, broker), decision_id in by_cause.items():
        names, most = moved[decision_id], taken[decision_id].most_common(_DESTINATIONS_NAMED)
        work.write_decision(
            decision_id=decision_id,
            kind="failover" if reason.endswith("dead") else "repair",
            reason=reason,
            inputs={"bundles": len(names), "destinations": dict(most)},
            source=broker,
            bundle=names[0] if len(names) == 1 else "",
        )
    write_places(work, places)


def _partner(work: BatchContext, record: OwnershipRecord) -> OwnershipRecord | None:
    """Return the record of the bundle that this one is to be merged with, if any."""
    return work.ledger.record(partner_of(record.bundle, *record.children))


def _destinations(
    work: BatchContext, intents: Sequence[tuple[int, Intent]]
) -> tuple[dict[int, str], Places]:
    """Return row → broker, and the placements made for it.

    The intent's broker if it is open and steady; else one that placement finds; else the avoided
    broker. Rows for which none of these can be used are missing.
    """
    ledger, overdue_brokers = work.ledger, overdue(work)
    avoided_brokers = unsteady(work) | overdue_brokers
    chosen: dict[int, str] = {}
    avoided: dict[int, str] = {}
    for row, intent in intents:
        if intent.action is Action.CANCEL:
            continue
        if intent.destination not in avoided_brokers and is_open(work, intent.destination):
            chosen[row] = intent.destination
        else:
            is_releasing = ledger.state[row] == STATE_CODE[State.RELEASING]
            held_by = ledger.source if is_releasing else ledger.destination
            avoided[row] = ledger.instances.of(int(held_by[row]))[0]
    places = place(work, [*avoided], avoided, overdue_brokers)
    placed = {row: places.found.get(ledger.names[row], "") for row in avoided}
    chosen |= {row: broker for row, broker in placed.items() if broker}
    left = {row for row in avoided.keys() - chosen if avoided[row] not in overdue_brokers}
    for row, intent in intents:
        if row not in left:
            continue
        # a broker that has just failed to open it is asked again only after the timeout
        is_assigning = ledger.state[row] == STATE_CODE[State.ASSIGNING]
        has_just_failed = is_assigning and intent.reason is IntentReason.CANNOT_SERVE
        is_closing = intent.action is Action.REDIRECT  # its source, which can't be its destination
        if not (has_just_failed or is_closing) and is_open(work, avoided[row]):
            chosen[row] = avoided[row]
    return chosen, places


def cuts_of(children: Sequence[str]) -> tuple[int, ...]:
    """Return the boundaries between children, ascending."""
    return tuple(parse_bundle(child)[1] for child in sorted(children))[1:]


def without_topics(topics: TopicLoads | None, children: Sequence[str]) -> tuple[str, ...]:
    """Return the children in whose range no topic is known, in name order."""
    counts = _counts(topics, children)
    return tuple(name for name, n in zip(sorted(children), counts, strict=True) if not n)


def finish_split(work: BatchContext, before: OwnershipRecord) -> None:
    """Finish a split that its owner has acknowledged. before: the Splitting record."""
    parent, children = before.bundle, sorted(before.children)
    topics = work.topics.loads_of(parent)
    shares = topic_shares(topics, cuts_of(children))
    parents = np.full(len(children), work.ledger.index[parent], dtype=np.int64)
    new = inherited_averages(work.ledger.averages(), parents, shares)
    if topics is not None:
        new = replace(new, topics=np.array(_counts(topics, children), dtype=np.int64))
    sessions = np.floor(work.ledger.sessions[parents] * shares).astype(np.int64)
    _inherit(work, [parent], children, new, sessions)
    work.topics = work.topics.divided(parent, children)
    _transfer_children(work, before)


def finish_merge(work: BatchContext, before: OwnershipRecord) -> None:
    """Finish a merge that its owner has acknowledged.

    before: the Merging record of one parent.
    """
    [child] = before.children
    parents = sorted([before.bundle, partner_of(before.bundle, child)])
    rows = np.array([work.ledger.index[parent] for parent in parents], dtype=np.int64)
    new = joined_averages(work.ledger.averages(), rows)
    sessions = work.ledger.sessions[rows].sum(keepdims=True)
    _inherit(work, parents, [child], new, sessions)
    work.topics = work.topics.joined(parents, child)


def known_topics(work: BatchContext, bundle: str) -> TopicLoads | None:
    """Return the known topics of a bundle; None = nothing known.

    They are known from its owner's reports, or because they were created here. Created topics that
    no broker has reported have no load. Of more than `HASHED_MAX` topics created in a namespace,
    only a sample is known.
    """
    reported = work.topics.loads_of(bundle)
    namespace, lower, upper = parse_bundle(bundle)
    created, _ = created_topics(work, namespace)
    created = created[(created >= lower) & (created < range_end(upper))]
    if reported is None:
        reported = TopicLoads(hashes=created[:0], msg_rate=np.zeros(0), throughput=np.zeros(0))
        if not len(created):
            return None
    more = np.setdiff1d(created, reported.hashes)
    return TopicLoads(
        hashes=np.concatenate([reported.hashes, more]),
        msg_rate=np.concatenate([reported.msg_rate, np.zeros(len(more))]),
        throughput=np.concatenate([reported.throughput, np.zeros(len(more))]),
    )


def _counts(topics: TopicLoads | None, children: Sequence[str]) -> list[int]:
    """Return the number of known topics of each child, in name order."""
    if topics is None:
        return [0] * len(children)
    child = np.searchsorted(np.array(cuts_of(children)), topics.hashes, side="right")
    counts: list[int] = np.bincount(child, minlength=len(children)).tolist()
    return counts


def _inherit(
    work: BatchContext,
    parents: Sequence[str],
    children: Sequence[str],
    new: BundleAverages,
    sessions: Ints,
) -> None:
    """Give children their load averages and the time of their parents' last move.

    new: one row for each child.
    """
    ledger = work.ledger
    rows = np.array([ledger.index[child] for child in children], dtype=np.int64)
    averages = BundleAverages(
        short=with_rows(ledger.short, rows, new.short),
        short_count=with_rows(ledger.short_count, rows, new.short_count),
        long=with_rows(ledger.long, rows, new.long),
        long_count=with_rows(ledger.long_count, rows, new.long_count),
        topics=with_rows(ledger.topics, rows, new.topics),
    )
    ledger.keep_load(averages, with_rows(ledger.sessions, rows, sessions), rows)
    moved_ms = max(int(ledger.moved_ms[ledger.index[parent]]) for parent in parents)
    ledger.stamp("moved_ms", rows.tolist(), moved_ms)
    unloaded = dict(work.plan.unloaded_ms)
    since_ms = [unloaded.pop(parent) for parent in parents if parent in unloaded]
    if since_ms:
        unloaded |= dict.fromkeys(children, max(since_ms))
        work.plan = replace(work.plan, unloaded_ms=unloaded)


def _transfer_children(work: BatchContext, before: OwnershipRecord) -> None:
    """Transfer children to their chosen brokers, if these can take them.

    While balancing stands still or the namespace is paused, only children of a split that a command
    asked for move. That command's result names the children that stayed.
    """
    is_gone = is_deleting(work, before.bundle.rpartition("/")[0])
    if is_gone or before.bundle in work.rules.pins:
        return
    if not before.command_id and (
        reason_to_stand_still(work)[0] or reason_to_stay(work, before.bundle, is_split=True)
    ):
        return
    unsteady_brokers = unsteady(work)
    usable = {n for n in usable_brokers(work) if is_open(work, n) and n not in unsteady_brokers}
    origin = work.origin(Cause.SPLIT, before.decision_id, before.command_id)
    moving: dict[str, str] = {}
    stayed: dict[str, str] = {}
    for child, broker in sorted(before.children.items()):
        record = work.ledger.record(child)
        if record is None or broker in ("", record.destination):
            continue
        if broker in usable and not work.apply(transfer(record, work.instance(broker), origin)):
            moving[child] = record.destination
        else:
            stayed[child] = broker
    waiting = work.waiting.get(before.command_id)
    if waiting is not None:  # until the children are at rest under its id, too
        work.waiting[before.command_id] = replace(
            waiting,
            moving={**waiting.moving, **moving},
            result={**waiting.result, **({"stayed": stayed} if stayed else {})},
        )


_AUDITED = ("cluster", "principal", "address", "action", "is_allowed", "reason", "command_id")


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """One row of a message of acks, with the message's place in Kafka."""

    sender: Instance
    ack: Ack
    position: Position


def answers_of(work: BatchContext) -> list[BrokerAnswer]:
    """Return the rows of the batch's messages of acks, in the order of the messages."""
    answers: list[BrokerAnswer] = []
    for item in work.messages:
        if isinstance(item.message, Acks):
            by = item.message.envelope
            sender = Instance(broker=by.broker, incarnation=by.incarnation)
            answers += [BrokerAnswer(sender, ack, item.position) for ack in item.message.acks]
    return answers


def take_answers(work: BatchContext, answers: Sequence[BrokerAnswer]) -> None:
    """Apply brokers' acknowledgements in log order; count refusals by reason."""
    incarnations = {
        name: entry.incarnation for name, entry in work.brokers.items() if not entry.is_dead
    }
    intents: dict[str, tuple[int, Intent]] = {}
    # rows for all acknowledged children in one call: each call copies the whole ledger
    answered = {one.ack.bundle for one in answers if one.ack.outcome in _FINISHERS}
    children = (work.ledger.children.get(bundle, {}) for bundle in sorted(answered))
    work.ledger.add(child for names in children for child in names)
    for answer in answers:
        ack = answer.ack
        intent = _take(work, ack, answer.sender, incarnations)
        if intent is not None:
            intents[ack.bundle] = (ack.version_id, intent)
    rows = [(work.ledger.index[name], *intents[name]) for name in sorted(intents)]
    wanted = [(row, intent) for row, version, intent in rows if version == work.ledger.version[row]]
    if wanted and not is_external(work):
        carry_out_all(work, wanted)


def take_audit(work: BatchContext, items: Sequence[PositionedMessage]) -> None:
    """Count and record the audit entries of services."""
    for item in items:
        entry: Any = item.message
        work.counts[f"audit:{'allowed' if entry.is_allowed else 'refused'}"] += 1
        work.add_row(AUDIT.name, {name: getattr(entry, name) for name in _AUDITED})


def _take(
    work: BatchContext, ack: Ack, sender: Instance, incarnations: dict[str, str]
) -> Intent | None:
    """Apply one acknowledgement; return the intent that it calls for, if any.

    incarnations: of the brokers that are not dead.
    """
    record = work.ledger.record(ack.bundle)
    is_merge = record is not None and record.state is State.MERGING
    is_refused_merge = is_merge and ack.outcome is AckOutcome.FAILED
    origin = work.origin(Cause.MERGE if is_refused_merge else Cause.ACK)
    context = AckContext(incarnations=incarnations)
    if record is not None and record.children:
        children = {name: work.ledger.record(name) for name in record.children}
        context = AckContext(
            incarnations=incarnations,
            kept={name: kept for name, kept in children.items() if kept is not None},
            version_floor=work.namespaces[record.bundle.rpartition("/")[0]].highest_version,
            partner=_partner(work, record) if is_merge else None,
        )
    answer = acknowledge(record, ack, sender, origin, context)
    if ack.outcome is AckOutcome.FAILED and ack.reason and not isinstance(answer, Refused):
        work.failures[ack.bundle] = ack.reason
    if isinstance(answer, Transition):
        work.apply(answer)
        if record is not None and answer.record.state is State.DELETED:
            _FINISHERS[ack.outcome](work, record)
        work.counts[f"ack:{ack.outcome.value}"] += 1
    elif isinstance(answer, Refused):
        work.counts[f"ack_refused:{answer.reason.value}"] += 1
    elif answer.action is Action.WAIT:
        work.ledger.stamp("closing_clock_ms", [work.ledger.index[ack.bundle]], work.times.clock_ms)
        work.counts[f"ack:{ack.outcome.value}"] += 1
    elif record is not None and (record.state, record.cause) == (State.ASSIGNING, Cause.REPAIR):
        # wait for the timeout: otherwise a bundle that no broker can open would be given to
        # another one in each batch
        work.counts["failed_again"] += 1
    else:
        return answer
    return None


_FINISHERS = {AckOutcome.SPLIT: finish_split, AckOutcome.MERGED: finish_merge}
"""Outcome of an acknowledgement → function that passes load and topics on to the children."""


_ROWS_MAX = 1_000
"""Maximum records that one batch resends."""


def reconcile(work: BatchContext) -> None:
    """Resend records that a broker's newest report of this batch contradicts.

    A report counts if it is newer than the record by `agent.ack_repeat_ms`: by then the broker has
    read and obeyed the record. Nothing is sent while the job reads a backlog, or under an external
    authority. O(bundles) in a batch with reports.
    """
    bundles = [report for update in work.updates for report in update.bundles]
    # the newest of each broker
    newest = {report.broker: report for report in sorted(bundles, key=attrgetter("reported_ms"))}
    present = {name: entry.incarnation for name, entry in work.brokers.items()}
    reports = [
        (work.ledger.instances.find(report.broker, report.incarnation), report)
        for _, report in sorted(newest.items())
        if present.get(report.broker) == report.incarnation
    ]
    if not reports or work.is_catching_up or is_external(work):
        return
    foreign, missing, unknown = _disagreeing(work, reports)
    work.counts["reported_not_owned"] += len(foreign)
    work.counts["owned_not_reported"] += len(missing)
    rows = np.union1d(foreign, missing)
    _close_unknown(work, unknown)
    # a record is resent at most once in in_flight_timeout_ms: the next reports may be older than it
    ledger, timeout_ms = work.ledger, work.config.ownership.in_flight_timeout_ms
    resent_ms = ledger.resent_clock_ms[rows]
    waited_ms = work.times.clock_ms - resent_ms
    answered_ms = timeout_ms + work.config.signals.longest_silence_ms
    is_due = (resent_ms == 0) | (waited_ms >= timeout_ms)
    is_of_this_record = (resent_ms > 0) & (resent_ms >= ledger.clock_ms[rows])
    # this record was resent of late, and the broker still contradicts it
    lasts = is_of_this_record & (waited_ms <= 2 * answered_ms) & is_due
    work.counts["disagreement_lasts"] += int(lasts.sum())
    due = rows[is_due][:_ROWS_MAX].tolist()
    if not due:
        return
    work.counts["resent"] += len(due)
    work.ledger.stamp("resent_clock_ms", due, work.times.clock_ms)
    for number, row in enumerate(due):
        work.add_row(RESEND, record_row(work.ledger.record_at(row), number))


def _disagreeing(
    work: BatchContext, reports: Sequence[tuple[int, BundleReport]]
) -> tuple[Ints, Ints, dict[str, int]]:
    """Return rows reported but not owned, owned but not reported, and unknown bundles.

    The last: reported bundle without a record → time of the report, ms.
    """
    ledger = work.ledger
    holders = ledger.holders()
    contradicted_from_ms = ledger.at_ms + work.config.agent.ack_repeat_ms
    # an agent serves the children of a split before it reads their records: an old Deleted record
    # of the same name must not close such a child
    names = {after.bundle for _, after in work.transitions}
    names.update(child for children in ledger.children.values() for child in children)
    changing = sorted(ledger.index[name] for name in names if name in ledger.index)
    contradicted_from_ms[changing] = np.iinfo(np.int64).max
    reported_ms = np.zeros(len(ledger.instances.rows) + 1, dtype=np.int64)
    is_reported = np.zeros(len(ledger), dtype=np.bool_)
    foreign: list[Ints] = [np.empty(0, dtype=np.int64)]
    unknown: dict[str, int] = {}
    for sender, report in reports:
        arrived_ms = work.bounded_arrival_ms(report.reported_ms)  # by the clock of the records
        found = np.array([ledger.index.get(name, NOBODY) for name in report.names], dtype=np.int64)
        unknown.update((report.names[at], arrived_ms) for at in np.where(found == NOBODY)[0])
        found = found[found != NOBODY]
        is_own = holders[found] == sender if sender != NOBODY else np.zeros(len(found), np.bool_)
        is_reported[found[is_own]] = True
        others = found[~is_own]
        foreign.append(others[contradicted_from_ms[others] < arrived_ms])
        if sender != NOBODY:
            reported_ms[sender] = arrived_ms
    owned = ledger.rows_in(State.OWNED)
    is_missing = ~is_reported[owned] & (
        contradicted_from_ms[owned] < reported_ms[ledger.destination[owned]]
    )
    return np.unique(np.concatenate(foreign)), owned[is_missing], unknown


def _close_unknown(work: BatchContext, unknown: Mapping[str, int]) -> None:
    """Send tombstones for bundles that a broker serves and that have no record.

    unknown: name → time of the report. None for a namespace that has just changed: an agent reports
    children before they have records, and for a while after a split that was cancelled.
    """
    changed_ms: dict[str, int] = {}
    children = {child for names in work.ledger.children.values() for child in names}
    for name in sorted(unknown.keys() - children)[:_ROWS_MAX]:
        namespace = name.rpartition("/")[0]
        if namespace not in changed_ms:
            rows = work.ledger.live_rows(namespace)
            changed_ms[namespace] = int(work.ledger.at_ms[rows].max()) if rows else 0
        if changed_ms[namespace] + work.config.agent.ack_repeat_ms < unknown[name]:
            work.add_row(TOMBSTONE, {"bundle": name})
            work.counts["reported_unknown"] += 1
