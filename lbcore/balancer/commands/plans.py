"""Commands about plans that wait for a person: propose, approve, reject.

Each is refused when it is not possible now; `approvals` carries out what is approved. Part of
`commands`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.commands.bundles import find_record
from lbcore.balancer.decisions.approvals import OBSERVED, answer, approve, blocked_steps, offer
from lbcore.balancer.decisions.carrying_out import reason_to_stand_still
from lbcore.balancer.intake.eligible_brokers import reason_not_to_take
from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.proposals import ProposedStep, Station
from lbcore.balancer.state.work import Work
from lbcore.model.times import instant
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.plan.decision import Kind
from lbcore.wire.kinds.balancing_commands import ApprovePlan, ProposePlan, RejectPlan
from lbcore.wire.messages import Command

OPEN_MAX = 10
"""Plans of people that may wait at once."""


def _propose(work: Work, command: Command, arguments: ProposePlan) -> Outcome:
    people = [one for one in work.rules.proposals.values() if one.by and one.station.is_open]
    if len(people) >= OPEN_MAX:
        return refuse(f"{OPEN_MAX} plans wait already; approve or reject some of them first")
    if arguments.plan in work.rules.proposals:
        return refuse(f"there is a plan {arguments.plan} already; choose another name, or none")
    steps = []
    for bundle, broker in sorted(arguments.moves.items()):
        found = _step(work, bundle, broker, arguments.why)
        if isinstance(found, Outcome):
            return found
        steps.append(found)
    name, proposal = offer(work, steps, arguments.why, command, arguments.plan)
    result = {
        "plan": name,
        "steps": len(steps),
        "until_ms": proposal.until_ms,
        "before": proposal.before,
        "after": proposal.after,
        **_told("blocked", blocked_steps(work, steps)),
    }
    return Outcome(status=DONE, result=result)


def _step(work: Work, bundle: str, broker: str, why: str) -> ProposedStep | Outcome:
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    problem = _reason_not_to_move(record, broker) or reason_not_to_take(work, broker)
    if problem:
        return refuse(problem)
    return ProposedStep(
        kind=Kind.TRANSFER.value,
        bundle=bundle,
        source=record.destination,
        destination=broker,
        strategy="",
        reason="Proposed",
        inputs={"why": why},
        version_id=record.version_id,
    )


def _reason_not_to_move(record: OwnershipRecord, broker: str) -> str:
    if record.state is not State.OWNED:
        return f"bundle {record.bundle} is {record.state.value}: propose it when it has an owner"
    if record.destination == broker:
        return f"bundle {record.bundle} is on {broker} already: leave it out"
    return ""


def _approve(work: Work, command: Command, arguments: ApprovePlan) -> Outcome:
    problem = _reason_not_to_answer(work, arguments.plan, (Station.WAITS,))
    if problem:
        return refuse(problem)
    if work.config.cluster.observe_only:
        advice = "`ballast config set cluster.observe_only=false`, then approve it"
        return refuse(
            f"nothing of plan {arguments.plan} would be carried out: {OBSERVED}; {advice}"
        )
    proposal = work.rules.proposals[arguments.plan]
    skipped = approve(work, arguments.plan, command)
    stands_still, _ = reason_to_stand_still(work)
    waits = {"waits": stands_still} if stands_still else {}
    result = {"steps": len(proposal.steps), **_told("skipped", skipped), **waits}
    return Outcome(status=DONE, result=result)


_TOLD_MAX = 20


def _told(name: str, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return how many steps rules hold back, and why the first of them; {} where there are none."""
    if not reasons:
        return {}
    shown = dict(sorted(reasons.items())[:_TOLD_MAX])
    return {name: len(reasons), f"why_{name}": shown}


def _reject(work: Work, command: Command, arguments: RejectPlan) -> Outcome:
    problem = _reason_not_to_answer(work, arguments.plan, (Station.WAITS, Station.APPROVED))
    if problem:
        return refuse(problem)
    proposal = work.rules.proposals[arguments.plan]
    station = Station.REJECTED if proposal.station is Station.WAITS else Station.STOPPED
    answer(work, arguments.plan, station, arguments.reason, command)
    begun = len(proposal.steps) - len(proposal.left) - proposal.done - proposal.skipped
    counts = {"done": proposal.done, "skipped": proposal.skipped, "begun": begun}
    return Outcome(status=DONE, result={**counts, "left": len(proposal.left)})


def _reason_not_to_answer(work: Work, name: str, stations: tuple[Station, ...]) -> str:
    proposal = work.rules.proposals.get(name)
    if proposal is None:
        return f"there is no plan {name}; `ballast plan list` has those that wait"
    if proposal.station is Station.WAITS and work.now_ms >= proposal.until_ms:
        return f"plan {name} has lapsed: its time was over at {instant(proposal.until_ms)}"
    if proposal.station in stations:
        return ""
    by = f" by {proposal.answered_by}" if proposal.answered_by else f": {proposal.why}"
    return f"plan {name} is {proposal.station.value} already{by}; the next one has another name"


PLAN_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "propose_plan": _propose,
    "approve_plan": _approve,
    "reject_plan": _reject,
}
