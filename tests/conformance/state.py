"""Cases of the ownership state machine: resolve, transition, state_data."""

from typing import Any

from lbcore.ownership.records import State
from lbcore.ownership.resolve import (
    MissingOwnerError,
    StateData,
)
from lbcore.ownership.states import ACTIVE, IN_FLIGHT, RULES
from tests.conformance.reference.conflict_resolver import (
    StateDataFault,
    should_keep_left,
    state_data_fault,
)
from tests.conformance.runner import Case, Handler, JavaError

JAVA_NAMES = {
    StateDataFault.NO_STATE: "NullPointerException",
    StateDataFault.NO_BROKER: "IllegalArgumentException",
}


def _state_data(data: Case | None) -> StateData | None:
    if data is None:
        return None
    state = None if data.get("state") is None else State(data["state"])
    destination, source = data.get("dstBroker"), data.get("sourceBroker")
    fault = state_data_fault(state, destination, source)
    if fault is not None or state is None:
        raise JavaError(JAVA_NAMES[fault or StateDataFault.NO_STATE])
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
        keeps = should_keep_left(before, after, rules, checks_brokers=checks_brokers)
    except MissingOwnerError as error:
        raise JavaError("NullPointerException") from error
    return {"shouldKeepLeft": keeps}


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
