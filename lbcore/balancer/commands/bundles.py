"""Commands about the owners of single bundles.

Decides whether each is possible now; one that names a bundle in the middle of a split has waited
for its end before it comes here. Part of `commands`. Names follow Pulsar's admin interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.intake.eligible_brokers import reason_not_to_take
from lbcore.balancer.state.outcome import ACCEPTED, DONE, Outcome, refuse
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.creations import is_rest
from lbcore.balancer.tasks.deletions import is_deleting
from lbcore.ownership.changes import NOBODY, Origin, Refused, Transition
from lbcore.ownership.protocol import assign, reassign, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.kinds.bundle_commands import AssignBundle, OverrideBundle, UnloadBundle
from lbcore.wire.messages import Command


def find_record(work: Work, bundle: str) -> OwnershipRecord | Outcome:
    """The record of a live bundle, or the refusal of a command that names no such bundle."""
    record = work.ledger.record(bundle)
    if record is None:
        return refuse(f"there is no bundle {bundle}; table bundle_ownership lists them")
    if record.state is State.DELETED:
        return refuse(f"bundle {bundle} is gone: its range was split, or its namespace deleted; "
                      "look at the namespace's present bundles")  # fmt: skip
    if is_deleting(work, bundle.rpartition("/")[0]):
        return refuse(
            f"the namespace of {bundle} is being deleted; create it anew when that is done"
        )
    if is_rest(work, bundle):
        return refuse(f"bundle {bundle} stands for those that are still being made; ask again when "
                      "the create_namespace of its namespace is done")  # fmt: skip
    return record


def release(work: Work, record: OwnershipRecord, origin: Origin, destination: str) -> str:
    """Take an owned bundle from its owner; why that can't be, or ""."""
    problem = _pinned_elsewhere(work, record.bundle, destination)
    if problem:
        return problem
    answer = unload(record, origin, work.instance(destination) if destination else NOBODY)
    if isinstance(answer, Refused):
        return f"{answer.reason.value} ({_shown(record)}): wait, and look at its ownership"
    work.apply(answer)
    return ""


def _find_movable(work: Work, bundle: str, destination: str) -> OwnershipRecord | Outcome:
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    problem = reason_not_to_take(work, destination)
    return refuse(problem) if problem else record


def _pinned_elsewhere(work: Work, bundle: str, destination: str) -> str:
    pin = work.rules.pins.get(bundle)
    if not destination or pin is None or pin.broker == destination:
        return ""
    return f"it is pinned to {pin.broker}: unpin it first"


def _shown(record: OwnershipRecord) -> str:
    broker = record.destination or record.source
    return f"{record.state.value} {broker}".strip()


def _unload_bundle(work: Work, command: Command, arguments: UnloadBundle) -> Outcome:
    bundle, destination = arguments.bundle, arguments.destination
    record = _find_movable(work, bundle, destination)
    if isinstance(record, Outcome):
        return record
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    problem = release(work, record, origin, destination)
    if problem:
        return refuse(f"bundle {bundle} can't be unloaded now: {problem}")
    kind = "transfer" if destination else "unload"
    _note(work, origin, kind, record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination})


def _assign_bundle(work: Work, command: Command, arguments: AssignBundle) -> Outcome:
    """Also what lookups ask for; many may ask for the same bundle, and one assigns it.

    Without a destination it goes where `commands.carry_out_placed` has found a place for it.
    """
    bundle, wanted = arguments.bundle, arguments.destination
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    owner = record.destination
    if record.state is not State.FREE and owner and wanted in ("", owner):
        return Outcome(status=DONE, result={"owner": owner, "state": record.state.value})
    if record.state is not State.FREE:
        return refuse(f"bundle {bundle} is not free ({_shown(record)}); unload it to {wanted}")
    problem = reason_not_to_take(work, wanted)
    if _pinned_elsewhere(work, bundle, wanted):
        problem = f"bundle {bundle} can't go to {wanted}: {_pinned_elsewhere(work, bundle, wanted)}"
    destination = wanted or work.places.get(bundle, "")
    if not destination:
        problem = f"no broker may take {bundle} now; start one, or look at the policies"
    if problem:
        return refuse(problem)
    origin = work.origin(Cause.ASSIGN, work.next_decision(), command.command_id)
    answer = assign(record, work.instance(destination), origin)
    if isinstance(answer, Refused):
        return refuse(f"bundle {bundle} can't be assigned now: {answer.reason.value}; ask again")
    work.apply(answer)
    _note(work, origin, "assign", record, destination)
    return Outcome(status=ACCEPTED, result={"owner": destination}, moving={bundle: ""})


def _override_bundle(work: Work, command: Command, arguments: OverrideBundle) -> Outcome:
    """By force, also under a live owner's feet: for when nothing else helps."""
    bundle, destination = arguments.bundle, arguments.destination
    record = _find_movable(work, bundle, destination)
    if isinstance(record, Outcome):
        return record
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    change = assign if record.state is State.FREE else reassign
    answer = change(record, work.instance(destination), origin)
    if not isinstance(answer, Transition):
        return refuse(f"bundle {bundle} can't be overridden: {answer.reason.value}; ask again")
    work.apply(answer)
    _note(work, origin, "override", record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination or record.source})


def _note(work: Work, origin: Origin, kind: str, record: OwnershipRecord, destination: str) -> None:
    work.write_decision(
        origin.decision_id,
        kind=kind,
        reason="Admin",
        inputs={"command_id": origin.command_id},
        bundle=record.bundle,
        source="" if record.state is State.FREE else record.destination or record.source,
        destination=destination,
    )


BUNDLE_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "unload_bundle": _unload_bundle,
    "assign_bundle": _assign_bundle,
    "override_bundle": _override_bundle,
}
