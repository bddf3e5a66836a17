"""Cases of the ownership state machine: resolve, transition, state_data."""

from typing import Any

from lbcore.ownership.records import State
from lbcore.ownership.resolve import MissingOwnerError, ResolverVerdict, StateData, resolve
from lbcore.ownership.states import ACTIVE, IN_FLIGHT, RULES
from tests.conformance.runner import Case, Handler, JavaError


def _state_data(data: Case | None) -> StateData | None:
    """The record, which ServiceUnitStateData refuses to be without a state or any broker."""
    if data is None:
        return None
    if data.get("state") is None:
        raise JavaError("NullPointerException")
    state = State(data["state"])
    destination, source = data.get("dstBroker"), data.get("sourceBroker")
    if state is not State.FREE and not (destination or "").strip() and not (source or "").strip():
        raise JavaError("IllegalArgumentException")
    return StateData(
        state=state,
        version_id=data.get("versionId", 0),
        destination=destination,
        source=source,
        is_forced=data.get("force", False),
    )


def _resolve(case: Case) -> dict[str, Any]:
    before, after = _state_data(case["from"]), _state_data(case["to"])
    rules = RULES[case["storageType"]]
    checks_brokers = case.get("checkBrokers", True)
    try:
        verdict = resolve(before, after, rules, checks_brokers=checks_brokers)
    except MissingOwnerError as error:
        raise JavaError("NullPointerException") from error
    return {"shouldKeepLeft": verdict is not ResolverVerdict.ACCEPTED}


def _transition(case: Case) -> dict[str, Any]:
    if "state" in case:
        state = State(case["state"])
        return {"inFlight": state in IN_FLIGHT, "active": state in ACTIVE}
    rules = RULES[case["storageType"]]
    return {"valid": rules.allows(State(case["from"]), State(case["to"]))}


def _state_data_case(case: Case) -> dict[str, Any]:
    _state_data(case["data"])
    return {"valid": True}


HANDLERS: dict[str, Handler] = {
    "resolve": _resolve,
    "transition": _transition,
    "state_data": _state_data_case,
}
