"""Carrying out: a decision becomes a transition of ownership and a row that says why.

A decision that the state machine or `observe_only` refuses is written down as refused. Used by the
cycle and, for what a person has approved, by `approvals`. Part of `balancer`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lbcore.balancer.decisions.move_effects import watch_move
from lbcore.balancer.decisions.restraint import OBSERVE_ONLY, is_only_observed
from lbcore.balancer.state.work import Work
from lbcore.ownership.changes import Refused
from lbcore.ownership.protocol import split, transfer, unload
from lbcore.ownership.records import Cause
from lbcore.plan.decision import Decision, Kind

_CAUSES = {Kind.DRAIN: Cause.DRAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """What came of a decision. refused: why nothing was begun, "" = its transition has begun."""

    decision_id: str
    refused: str = ""


def carry_out(work: Work, decision: Decision) -> CarriedOut:
    """Make the decision's transition and its row."""
    decision_id = work.next_decision()
    inputs: dict[str, Any] = {**decision.inputs, **_wish(work, decision)}
    refused = _transit(work, decision, decision_id)
    if refused:
        inputs["refused"] = refused
    else:
        watch_move(work, decision, decision_id)
    names: Mapping[str, str] = {
        "strategy": decision.strategy,
        "bundle": decision.bundle,
        "source": decision.source,
        "destination": decision.destination,
    }
    work.write_decision(decision_id, decision.kind.value, decision.reason, inputs, **names)
    return CarriedOut(decision_id=decision_id, refused=refused)


def _wish(work: Work, decision: Decision) -> dict[str, Any]:
    """What an operator wanted that led to the decision."""
    if decision.kind is Kind.DRAIN and decision.source in work.rules.drains:
        return asdict(work.rules.drains[decision.source])
    if decision.reason == "Pinned" and decision.bundle in work.rules.pins:
        return asdict(work.rules.pins[decision.bundle])
    return {}


def _children(work: Work, decision: Decision) -> Mapping[str, str]:
    """Where the children of a split go; those of a pinned bundle stay with it."""
    if decision.bundle in work.rules.pins:
        return dict.fromkeys(decision.children, "")
    return decision.children


def _transit(work: Work, decision: Decision, decision_id: str) -> str:
    """Make the decision's transition; why not, or ""."""
    record = work.ledger.record(decision.bundle)
    if record is None:
        return "unknown_bundle"
    if is_only_observed(work, decision):
        return OBSERVE_ONLY
    origin = work.origin(_CAUSES.get(decision.kind, Cause.SHED), decision_id)
    if decision.kind is Kind.SPLIT:
        children = _children(work, decision)
        answer = split(record, children, work.origin(Cause.SPLIT, decision_id))
    elif decision.destination:
        answer = transfer(record, work.instance(decision.destination), origin)
    else:
        answer = unload(record, origin)
    if isinstance(answer, Refused):
        return answer.reason.value
    work.apply(answer)
    return ""
