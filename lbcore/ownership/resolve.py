"""The conflict resolver: whether a record may replace the one before it.

Applies the tables of `states` and the checks of brokers below. `protocol`, and all code that reads
records of another writer, calls it. Source: Pulsar 4.0.8, ServiceUnitStateDataConflictResolver and
ServiceUnitStateData.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import BALLAST, ReplacementRules

VERSION_MIN = -(2**63)
VERSION_MAX = 2**63 - 1
FIRST_VERSION = 1


@dataclass(frozen=True, slots=True)
class StateData:
    """Fields that the resolver compares. A broker None differs from "" (none)."""

    state: State
    version_id: int
    destination: str | None = None
    source: str | None = None
    is_forced: bool = False


Compared: TypeAlias = StateData | OwnershipRecord


class ResolverVerdict(Enum):
    """Verdict of the resolver on a record, with the reason."""

    ACCEPTED = "accepted"
    OLD_VERSION = "old_version"
    VERSION_GAP = "version_gap"
    NOT_FIRST_VERSION = "not_first_version"
    ILLEGAL_TRANSITION = "illegal_transition"
    WRONG_BROKERS = "wrong_brokers"


class BrokerCheck(Enum):
    """Condition of a transition on its two records, besides being in the table."""

    DESTINATION_BLANK = "destination_blank"
    DESTINATION_GIVEN = "destination_given"
    SOURCE_BLANK = "source_blank"
    SOURCE_GIVEN = "source_given"
    SOURCE_IS_THE_OWNER = "source_is_the_owner"
    DESTINATION_IS_NOT_THE_OWNER = "destination_is_not_the_owner"
    BROKERS_KEPT = "brokers_kept"


BROKER_CHECKS: dict[tuple[State, State], tuple[BrokerCheck, ...]] = {
    (State.FREE, State.ASSIGNING): (BrokerCheck.SOURCE_BLANK, BrokerCheck.DESTINATION_GIVEN),
    (State.OWNED, State.SPLITTING): (
        BrokerCheck.DESTINATION_BLANK,
        BrokerCheck.SOURCE_IS_THE_OWNER,
    ),
    (State.OWNED, State.MERGING): (BrokerCheck.DESTINATION_BLANK, BrokerCheck.SOURCE_IS_THE_OWNER),
    (State.OWNED, State.RELEASING): (
        BrokerCheck.SOURCE_GIVEN,
        BrokerCheck.SOURCE_IS_THE_OWNER,
        BrokerCheck.DESTINATION_IS_NOT_THE_OWNER,
    ),
    (State.ASSIGNING, State.OWNED): (BrokerCheck.BROKERS_KEPT,),
    (State.RELEASING, State.ASSIGNING): (BrokerCheck.DESTINATION_GIVEN, BrokerCheck.BROKERS_KEPT),
    (State.RELEASING, State.FREE): (BrokerCheck.BROKERS_KEPT,),
    (State.SPLITTING, State.DELETED): (BrokerCheck.BROKERS_KEPT,),
    (State.MERGING, State.DELETED): (BrokerCheck.BROKERS_KEPT,),
}

_PREDICATES: dict[BrokerCheck, Callable[[Compared, Compared], bool]] = {
    BrokerCheck.DESTINATION_BLANK: lambda _, after: _is_blank(after.destination),
    BrokerCheck.DESTINATION_GIVEN: lambda _, after: not _is_blank(after.destination),
    BrokerCheck.SOURCE_BLANK: lambda _, after: _is_blank(after.source),
    BrokerCheck.SOURCE_GIVEN: lambda _, after: not _is_blank(after.source),
    BrokerCheck.SOURCE_IS_THE_OWNER: lambda before, after: _owner(before) == after.source,
    BrokerCheck.DESTINATION_IS_NOT_THE_OWNER: lambda before, after: (
        _owner(before) != after.destination
    ),
    BrokerCheck.BROKERS_KEPT: lambda before, after: (
        (before.destination, before.source) == (after.destination, after.source)
    ),
}


class MissingOwnerError(ValueError):
    """A record in Owned without owner; Pulsar's resolver fails on it as well."""


def next_version(version_id: int | None) -> int:
    """Return the next version; None = no record yet. Wraps as signed 64-bit."""
    if version_id is None:
        return FIRST_VERSION
    return VERSION_MIN if version_id == VERSION_MAX else version_id + 1


def is_newer(version_id: int, than: int) -> bool:
    """Return True if a version is greater than another, or the first after the wrap."""
    return version_id > than or (version_id == VERSION_MIN and than == VERSION_MAX)


def resolve(
    before: Compared | None,
    after: Compared | None,
    rules: ReplacementRules = BALLAST,
    *,
    checks_brokers: bool = True,
) -> ResolverVerdict:
    """Return the verdict on replacing `before` by `after`.

    before: None = no record. after: None = a tombstone. The checks, in order: a tombstone is
    accepted; the version may refuse or accept it; force is accepted; the table of transitions; the
    brokers. Force does not override the version. Raises MissingOwnerError if a check needs an owner
    that is missing.
    """
    if after is None:
        return ResolverVerdict.ACCEPTED
    by_version = _resolve_version(before, after, rules)
    if by_version is not None:
        return by_version
    if after.is_forced:
        return ResolverVerdict.ACCEPTED
    state_before = State.INIT if before is None else before.state
    if not rules.allows(state_before, after.state):
        return ResolverVerdict.ILLEGAL_TRANSITION
    checks = BROKER_CHECKS.get((state_before, after.state), ()) if checks_brokers else ()
    if before is not None and not all(_PREDICATES[check](before, after) for check in checks):
        return ResolverVerdict.WRONG_BROKERS
    return ResolverVerdict.ACCEPTED


def _resolve_version(
    before: Compared | None, after: Compared, rules: ReplacementRules
) -> ResolverVerdict | None:
    if before is None:
        if rules.accepts_any_first:
            return None
        is_first = after.version_id == FIRST_VERSION
        return ResolverVerdict.ACCEPTED if is_first else ResolverVerdict.NOT_FIRST_VERSION
    if not is_newer(after.version_id, before.version_id):
        return ResolverVerdict.OLD_VERSION
    if after.version_id != next_version(before.version_id):
        return ResolverVerdict.ACCEPTED if rules.accepts_gaps else ResolverVerdict.VERSION_GAP
    return None


def _is_blank(broker: str | None) -> bool:
    return broker is None or not broker.strip()


def _owner(before: Compared) -> str:
    if before.destination is None:
        raise MissingOwnerError(
            f"destination of a record in {before.state.value} must be its owner, got None"
        )
    return before.destination
