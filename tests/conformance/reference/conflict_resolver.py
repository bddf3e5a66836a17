"""What Pulsar asks of a record under names of its own; the job asks `resolve`, which they stand on.

Source: Pulsar 4.0.8, ServiceUnitStateDataConflictResolver, ServiceUnitStateData.
"""

from enum import Enum

from lbcore.ownership.records import State
from lbcore.ownership.resolve import ResolverVerdict, StateData, resolve
from lbcore.ownership.states import BALLAST, ReplacementRules


class StateDataFault(Enum):
    """Why Pulsar's ServiceUnitStateData can't be made."""

    NO_STATE = "state must be given, got none"
    NO_BROKER = "destination or source must be given in every state but Free, got neither"


def state_data_fault(
    state: State | None, destination: str | None, source: str | None
) -> StateDataFault | None:
    """Why a record with these fields can't be made; None when it can."""
    if state is None:
        return StateDataFault.NO_STATE
    if state is not State.FREE and not (destination or "").strip() and not (source or "").strip():
        return StateDataFault.NO_BROKER
    return None


def should_keep_left(
    before: StateData | None,
    after: StateData | None,
    rules: ReplacementRules = BALLAST,
    *,
    checks_brokers: bool = True,
) -> bool:
    """Whether `after` is rejected, under Pulsar's name for the question."""
    return (
        resolve(before, after, rules, checks_brokers=checks_brokers) is not ResolverVerdict.ACCEPTED
    )
