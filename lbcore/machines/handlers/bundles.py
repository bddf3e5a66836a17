"""Commands about single bundles.

Decides whether each is possible now. Part of `commands`. Source: ours; names follow Pulsar's
admin interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.machines.outcome import ACCEPTED, Outcome, refuse
from lbcore.machines.work import Work
from lbcore.ownership.changes import NOBODY, Transition
from lbcore.ownership.protocol import unload
from lbcore.ownership.records import Cause
from lbcore.wire import commands as asked
from lbcore.wire.messages import Command


def _unload_bundle(work: Work, command: Command, arguments: asked.UnloadBundle) -> Outcome:
    bundle, destination = arguments.bundle, arguments.destination
    record = work.ledger.record(bundle)
    if record is None:
        return refuse(f"there is no bundle {bundle}; table bundle_ownership lists them")
    entry = work.brokers.get(destination)
    if destination and (entry is None or entry.is_silent or not entry.reported_ms):
        return refuse(f"broker {destination} is not active; choose one that is")
    target = work.instance(destination) if destination else NOBODY
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    answer = unload(record, origin, target)
    if not isinstance(answer, Transition):
        return refuse(f"bundle {bundle} can't be unloaded now: {answer.reason.value}")
    work.apply(answer)
    work.write_decision(
        origin.decision_id,
        kind="transfer" if destination else "unload",
        reason="Admin",
        inputs={"command_id": command.command_id},
        bundle=bundle,
        source=record.destination,
        destination=destination,
    )
    return Outcome(status=ACCEPTED)


BUNDLE_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "unload_bundle": _unload_bundle,
}
