"""Repairs: who is dead, who has restarted, what is stuck, and new owners for what they had.

Decides that a bundle needs another owner and, with the placement rule, which one. Runs in each
batch after the reports are in. Where a batch would be too long for everybody else's commands and
answers, the next ones go on. Source: design of ours; see `ownership.liveness` and
`ownership.repair`.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.decisions.placing import place, write_places
from lbcore.balancer.intake.brake import is_confirming
from lbcore.balancer.intake.eligible_brokers import (
    is_external,
    is_open,
    many_silent,
    overdue,
    unsteady,
)
from lbcore.balancer.state.ledger import NOBODY, STATE_CODE
from lbcore.balancer.state.work import Work
from lbcore.model.names import bundle_order
from lbcore.ownership.changes import NOBODY as NO_INSTANCE
from lbcore.ownership.changes import Action, Intent, IntentReason, Transition
from lbcore.ownership.protocol import carry_out
from lbcore.ownership.records import Cause, State
from lbcore.ownership.repair import FlightWatch, Presence, repair
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.decision import Places

_REPAIRED_MAX = 32_768
"""Bundles that a batch repairs: some eight seconds of two slow cores, of 500,000 in all."""
_DESTINATIONS_NAMED = 10
"""Brokers that a decision names beside how many bundles each gets."""
_OF_THE_DEAD = frozenset(
    {IntentReason.OWNER_DEAD, IntentReason.DESTINATION_DEAD, IntentReason.SOURCE_DEAD}
)
_CAUSES = {
    IntentReason.OWNER_DEAD: Cause.FAILOVER,
    IntentReason.DESTINATION_DEAD: Cause.FAILOVER,
    IntentReason.SOURCE_DEAD: Cause.FAILOVER,
    IntentReason.RESTARTED: Cause.RESTART,
}


def repair_ownership(work: Work) -> None:
    """Give what is broken or stuck to whom it belongs now; not while the log is old. O(bundles).

    Not where another authority does it: its bridge asks again, and takes over what it finds.
    """
    if work.is_catching_up or is_external(work):
        return
    presence = presences(work)
    is_braked, is_silence = is_confirming(work), bool(many_silent(work))
    intents: list[tuple[int, Intent]] = []
    for row in _suspects(work, presence).tolist():
        intent = repair(
            work.ledger.record_at(row), _watch(work, row, presence), work.config.ownership
        )
        if intent is None or intent.action is Action.WAIT:
            continue
        if (is_braked or is_silence) and intent.reason in _OF_THE_DEAD:
            work.counts["held_by_brake" if is_braked else "held_by_silence"] += 1
        else:
            intents.append((row, intent))
    work.guard.each(
        "repair",
        _turn(work, intents),
        lambda some: carry_out_all(work, some),
        lambda intent, _: work.ledger.names[intent[0]],
    )


def _turn(work: Work, intents: Sequence[tuple[int, Intent]]) -> Sequence[tuple[int, Intent]]:
    """Those that are repaired in this batch: of too many as many as it may.

    They begin where the last batch ended, and go around: bundles that no broker can have stay
    broken, and must not keep the others waiting.
    """
    if len(intents) <= _REPAIRED_MAX:
        if work.times.repaired_up_to:
            work.note(repaired_up_to="")
        return intents
    names, up_to = work.ledger.names, bundle_order(work.times.repaired_up_to)
    first = bisect_right(intents, up_to, key=lambda intent: bundle_order(names[intent[0]]))
    chosen = [*intents[first:], *intents[:first]][:_REPAIRED_MAX]
    work.note(repaired_up_to=names[chosen[-1][0]])
    return chosen


def presences(work: Work) -> list[Presence]:
    """Return the presence of each instance of the ledger, by its id."""
    found = []
    for instance in work.ledger.instances.rows:
        entry = work.brokers.get(instance.broker)
        if entry is None or entry.is_silent:
            found.append(Presence.DEAD)
        elif entry.incarnation != instance.incarnation:
            found.append(Presence.RESTARTED)
        else:
            found.append(Presence.ALIVE)
    return found


def carry_out_all(work: Work, intents: Sequence[tuple[int, Intent]]) -> None:
    """Carry out intents by row, choosing destinations for those that need one."""
    if not intents:
        return
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
        answer = carry_out(record, intent, target, origin)
        if isinstance(answer, Transition):
            work.apply(answer)
            work.counts[f"repair:{intent.reason.value}"] += 1
    _write_decisions(work, by_cause)
    write_places(work, places)


def _suspects(work: Work, presence: list[Presence]) -> NDArray[np.int64]:
    """Rows in flight, and rows whose owner is not alive."""
    ledger = work.ledger
    is_gone = np.array([p is not Presence.ALIVE for p in presence], dtype=np.bool_)
    owned = ledger.rows_in(State.OWNED)
    owners = ledger.destination[owned]
    lost = owned[(owners != NOBODY) & is_gone[owners]] if len(is_gone) else owned[:0]
    return np.union1d(ledger.rows_in(*IN_FLIGHT), lost)


def _watch(work: Work, row: int, presence: list[Presence]) -> FlightWatch:
    ledger = work.ledger
    source, destination = int(ledger.source[row]), int(ledger.destination[row])
    return FlightWatch(
        source=Presence.ALIVE if source == NOBODY else presence[source],
        destination=Presence.ALIVE if destination == NOBODY else presence[destination],
        waiting_ms=work.clock_ms - int(ledger.clock_ms[row]),
        silent_ms=work.clock_ms - int(ledger.closing_clock_ms[row]),
    )


def _destinations(
    work: Work, intents: Sequence[tuple[int, Intent]]
) -> tuple[dict[int, str], Places]:
    """Row → broker: the one that suggests itself and can take it, else the placement's choice."""
    silent = overdue(work)
    closed = unsteady(work) | silent
    chosen: dict[int, str] = {}
    open_rows: list[int] = []
    avoided: dict[int, str] = {}
    for row, intent in intents:
        if intent.action is Action.CANCEL:
            continue
        if intent.destination not in closed and is_open(work, intent.destination):
            chosen[row] = intent.destination
        else:
            open_rows.append(row)
            avoided[row] = _lost_by(work, row)
    places = place(work, open_rows, avoided, silent)
    placed = {row: places.found.get(work.ledger.names[row], "") for row in open_rows}
    chosen |= {row: broker for row, broker in placed.items() if broker}
    for row, intent in intents:
        is_left = row in avoided and row not in chosen and avoided[row] not in silent
        if is_left and _may_ask_again(work, row, intent):
            chosen[row] = avoided[row]
    return chosen, places


def _may_ask_again(work: Work, row: int, intent: Intent) -> bool:
    """True if the broker that lost the bundle is asked again, for want of another.

    A broker that has just failed to open it is not asked until the wait for it is over.
    """
    is_assigning = work.ledger.state[row] == STATE_CODE[State.ASSIGNING]
    has_just_failed = is_assigning and intent.reason is IntentReason.CANNOT_SERVE
    return not has_just_failed and is_open(work, _lost_by(work, row))


def _lost_by(work: Work, row: int) -> str:
    """The broker that must not get the bundle again: the one that was to open it."""
    ledger = work.ledger
    is_releasing = ledger.state[row] == STATE_CODE[State.RELEASING]
    return ledger.instances.of(int((ledger.source if is_releasing else ledger.destination)[row]))[0]


def _write_decisions(work: Work, by_cause: dict[tuple[str, str], str]) -> None:
    moved: dict[str, list[str]] = defaultdict(list)
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for _, after in work.transitions:
        moved[after.decision_id].append(after.bundle)
        taken[after.decision_id][after.destination] += 1
    for (reason, broker), decision_id in by_cause.items():
        names = moved[decision_id]
        work.write_decision(
            decision_id,
            kind="failover" if reason.endswith("dead") else "repair",
            reason=reason,
            inputs={
                "bundles": len(names),
                "destinations": dict(taken[decision_id].most_common(_DESTINATIONS_NAMED)),
            },
            source=broker,
            bundle=names[0] if len(names) == 1 else "",
        )
