"""The conflict resolver beside the conformance cases: its own rules, order of checks, versions."""

import pytest

from lbcore.ownership.records import State
from lbcore.ownership.resolve import (
    VERSION_MAX,
    VERSION_MIN,
    MissingOwnerError,
    ResolverVerdict,
    StateData,
    is_newer,
    next_version,
    resolve,
)
from lbcore.ownership.states import BALLAST, METADATA_STORE, SYSTEM_TOPIC, ReplacementRules
from tests.conformance.reference.conflict_resolver import (
    StateDataFault,
    should_keep_left,
    state_data_fault,
)

OWNED = StateData(State.OWNED, 5, "a", "")


@pytest.mark.parametrize(
    ("after", "rules", "verdict"),
    [
        (None, BALLAST, ResolverVerdict.ACCEPTED),
        (StateData(State.RELEASING, 6, "b", "a"), BALLAST, ResolverVerdict.ACCEPTED),
        (StateData(State.RELEASING, 5, "b", "a"), BALLAST, ResolverVerdict.OLD_VERSION),
        (
            StateData(State.RELEASING, 4, "b", "a", is_forced=True),
            BALLAST,
            ResolverVerdict.OLD_VERSION,
        ),
        (StateData(State.RELEASING, 7, "b", "a"), SYSTEM_TOPIC, ResolverVerdict.ACCEPTED),
        (StateData(State.RELEASING, 7, "b", "a"), METADATA_STORE, ResolverVerdict.VERSION_GAP),
        (
            StateData(State.RELEASING, 7, "b", "a", is_forced=True),
            BALLAST,
            ResolverVerdict.VERSION_GAP,
        ),
        (StateData(State.FREE, 6, "", "a"), BALLAST, ResolverVerdict.ILLEGAL_TRANSITION),
        (StateData(State.FREE, 6, "", "a", is_forced=True), BALLAST, ResolverVerdict.ACCEPTED),
        (StateData(State.RELEASING, 6, "b", "c"), BALLAST, ResolverVerdict.WRONG_BROKERS),
        (StateData(State.RELEASING, 6, "a", "a"), BALLAST, ResolverVerdict.WRONG_BROKERS),
        (StateData(State.RELEASING, 6, "b", " "), BALLAST, ResolverVerdict.WRONG_BROKERS),
        (StateData(State.SPLITTING, 6, "", "a"), BALLAST, ResolverVerdict.ACCEPTED),
        (StateData(State.SPLITTING, 6, "b", "a"), BALLAST, ResolverVerdict.WRONG_BROKERS),
    ],
)
def test_record_after_owned_is_judged_by_version_force_table_brokers(
    after: StateData | None, rules: ReplacementRules, verdict: ResolverVerdict
) -> None:
    assert resolve(OWNED, after, rules) is verdict
    assert should_keep_left(OWNED, after, rules) == (verdict is not ResolverVerdict.ACCEPTED)


def test_first_record_may_have_any_version_but_not_in_a_metadata_store() -> None:
    first = StateData(State.OWNED, 40, "a", "")
    assert resolve(None, first, BALLAST) is ResolverVerdict.ACCEPTED
    assert resolve(None, first, METADATA_STORE) is ResolverVerdict.NOT_FIRST_VERSION


def test_brokers_unchecked_lets_other_brokers_pass() -> None:
    after = StateData(State.RELEASING, 6, "b", "c")
    assert resolve(OWNED, after, checks_brokers=False) is ResolverVerdict.ACCEPTED


def test_no_broker_and_an_empty_one_differ() -> None:
    before = StateData(State.ASSIGNING, 1, "a", None)
    assert resolve(before, StateData(State.OWNED, 2, "a", "")) is ResolverVerdict.WRONG_BROKERS
    assert resolve(before, StateData(State.OWNED, 2, "a", None)) is ResolverVerdict.ACCEPTED


def test_owned_without_owner_raises_where_the_owner_matters() -> None:
    before = StateData(State.OWNED, 1, None, "a")
    with pytest.raises(MissingOwnerError, match="must be its owner, got None"):
        resolve(before, StateData(State.RELEASING, 2, "b", "a"))
    assert resolve(before, StateData(State.SPLITTING, 2, "b", "a")) is ResolverVerdict.WRONG_BROKERS


@pytest.mark.parametrize(
    ("version", "following"),
    [(None, 1), (1, 2), (VERSION_MAX - 1, VERSION_MAX), (VERSION_MAX, VERSION_MIN)],
)
def test_next_version_counts_on_and_wraps(version: int | None, following: int) -> None:
    assert next_version(version) == following


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        (2, 1, True),
        (1, 1, False),
        (1, 2, False),
        (VERSION_MIN, VERSION_MAX, True),
        (VERSION_MIN + 1, VERSION_MAX, False),
        (VERSION_MAX, VERSION_MIN, True),
    ],
)
def test_newer_version_is_the_greater_or_the_one_after_the_wrap(
    version: int,
    than: int,
    newer: bool,  # noqa: FBT001 a column of the case table
) -> None:
    assert is_newer(version, than) is newer


@pytest.mark.parametrize(
    ("state", "destination", "source", "fault"),
    [
        (None, "a", "", StateDataFault.NO_STATE),
        (State.FREE, None, "", None),
        (State.OWNED, " ", None, StateDataFault.NO_BROKER),
        (State.DELETED, "", "a", None),
    ],
)
def test_state_data_needs_a_state_and_a_broker_but_in_free(
    state: State | None, destination: str | None, source: str | None, fault: StateDataFault | None
) -> None:
    assert state_data_fault(state, destination, source) is fault
