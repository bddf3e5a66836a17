"""New ownership records, checked, and the differences between two moments.

`protocol`, `acknowledge` and `repair` choose the record; `next_record` makes it by the table in
`states`, and `transition` passes it through the conflict resolver (`resolve`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, TypeAlias

from lbcore.model.names import InvalidNameError, format_bundle, parse_bundle
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.resolve import FIRST_VERSION, ResolverVerdict, is_newer, next_version, resolve
from lbcore.ownership.states import LEAVING, TRANSITIONS, TransitionKind, may_start


class RefusalReason(str, Enum):
    """Reason for a refusal; the value is the label of the refusals metric."""

    UNKNOWN_BUNDLE = "unknown_bundle"
    LATE = "late"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out_of_order"
    FORGED = "forged"
    OTHER_INCARNATION = "other_incarnation"
    WRONG_OUTCOME = "wrong_outcome"
    EXISTS = "exists"
    NOT_FREE = "not_free"
    NOT_OWNED = "not_owned"
    NOT_IN_FLIGHT = "not_in_flight"
    NO_DESTINATION = "no_destination"
    SAME_BROKER = "same_broker"
    BAD_CHILDREN = "bad_children"
    DIFFERENT_OWNERS = "different_owners"
    DELETED = "deleted"


class Action(str, Enum):
    """Action that a record needs; `protocol.apply_intent` executes all except WAIT."""

    REASSIGN = "reassign"
    REDIRECT = "redirect"
    CANCEL = "cancel"
    WAIT = "wait"


class IntentReason(str, Enum):
    """Reason for an intent; the value is the label of the repairs metric."""

    OWNER_DEAD = "owner_dead"
    DESTINATION_DEAD = "destination_dead"
    SOURCE_DEAD = "source_dead"
    RESTARTED = "restarted"
    NEVER_OPENED = "never_opened"
    NEVER_CLOSED = "never_closed"
    NEVER_SPLIT = "never_split"
    NEVER_MERGED = "never_merged"
    CANNOT_SERVE = "cannot_serve"
    STILL_CLOSING = "still_closing"


class ProtocolError(AssertionError):
    """A bug: the balancer made a record that the resolver refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One start of a broker's process."""

    broker: str
    incarnation: str


NOBODY = Instance(broker="", incarnation="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a new record: the batch's time, the writer, and the cause."""

    now_ms: int
    cause: Cause
    decision_id: str = ""
    command_id: str = ""
    writer_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AckContext:
    """Context of an answer besides the record.

    incarnations: each live broker's present one. kept: Deleted records of earlier bundles with the
    names of a split's or merge's children. version_floor: the highest version of the namespace's
    forgotten records. partner: the other bundle of a merge.
    """

    incarnations: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, OwnershipRecord] = field(default_factory=dict)
    version_floor: int = 0
    partner: OwnershipRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One bundle's record before (None: there was none) and after."""

    before: OwnershipRecord | None
    after: OwnershipRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Changes in one commit; that of the bundle itself is the last."""

    changes: tuple[Change, ...]

    @property
    def record(self) -> OwnershipRecord:
        """The new record of the bundle itself."""
        return self.changes[-1].after


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No change, with the reason."""

    reason: RefusalReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Next action that a record requires. destination: "" = placement chooses one."""

    action: Action
    reason: IntentReason
    destination: str = ""


Consequence: TypeAlias = Transition | Intent | Refused


def source_of(record: OwnershipRecord) -> Instance:
    """Return the source that the record names; broker "" = none."""
    return Instance(broker=record.source, incarnation=record.source_incarnation)


def destination_of(record: OwnershipRecord) -> Instance:
    """Return the destination that the record names; broker "" = none."""
    return Instance(broker=record.destination, incarnation=record.destination_incarnation)


def holder_of(record: OwnershipRecord) -> Instance:
    """Return the broker that has or opens the bundle; NOBODY in Free, Init, Deleted.

    In Assigning it is the destination, which has not opened it yet: if that dies, the bundle is
    reassigned.
    """
    if record.state in (State.OWNED, State.ASSIGNING):
        return destination_of(record)
    if record.state in LEAVING:
        return source_of(record)
    return NOBODY


def serving_broker(row: Mapping[str, Any]) -> str:
    """Return the broker that has a row's bundle open now; "" = none."""
    if row["state"] == State.OWNED.value:
        return str(row["destination"])
    return str(row["source"]) if row["state"] in _LEAVING else ""


_LEAVING = frozenset(state.value for state in LEAVING)


def tiles(parent: str, children: Sequence[str]) -> bool:
    """Return True if two or more bundles fill the parent's range without overlap."""
    try:
        namespace, lower, upper = parse_bundle(parent)
        parsed = sorted(parse_bundle(child) for child in children)
    except InvalidNameError:
        return False
    return (
        len(parsed) > 1
        and all(child[0] == namespace for child in parsed)
        and (parsed[0][1], parsed[-1][2]) == (lower, upper)
        and all(low[2] == high[1] for low, high in pairwise(parsed))
    )


def joined(one: str, other: str) -> str:
    """Return the bundle that two neighbours make; "" if they are not neighbours."""
    try:
        low, high = sorted((parse_bundle(one), parse_bundle(other)))
    except InvalidNameError:
        return ""
    is_adjacent = low[0] == high[0] and low[2] == high[1]
    return format_bundle(low[0], low[1], high[2]) if is_adjacent else ""


def partner_of(bundle: str, merged: str) -> str:
    """Return the other bundle of a merge; "" if this one is not at an end of `merged`."""
    try:
        (namespace, lower, upper), (within, first, last) = map(parse_bundle, (bundle, merged))
    except InvalidNameError:
        return ""
    if namespace == within and lower == first and upper < last:
        return format_bundle(namespace, upper, last)
    if namespace == within and upper == last and lower > first:
        return format_bundle(namespace, first, lower)
    return ""


def record_fault(record: OwnershipRecord) -> str | None:
    """Return the fault of a record as a sentence; None if it is complete.

    Owned and Assigning have a destination; Releasing, Splitting and Merging a source; Splitting two
    or more children; Merging one, the bundle that it becomes with its neighbour. Versions start at
    1. The ownership tables have most of this as constraints. Pulsar requires a broker in Deleted;
    here a bundle may be deleted before it ever had one.
    """
    if record.version_id < FIRST_VERSION:
        return f"version_id must be at least 1, got {record.version_id}"
    if record.state in (State.OWNED, State.ASSIGNING) and not record.destination:
        return f"destination must be given in {record.state.value}, got none"
    if record.state in LEAVING and not record.source:
        return f"source must be given in {record.state.value}, got none"
    if record.state is State.SPLITTING and not tiles(record.bundle, list(record.children)):
        return f"children must tile the range of the bundle, got {sorted(record.children)}"
    if record.state is State.MERGING and not (
        len(record.children) == 1 and partner_of(record.bundle, *record.children)
    ):
        return f"one child must be the bundle and its neighbour, got {sorted(record.children)}"
    return None


def unborn(
    cluster: str, bundle: str, previous: OwnershipRecord | None, version_floor: int
) -> OwnershipRecord:
    """Return the record in Init before a bundle's first transition; it is not stored.

    Its version is the floor, or that of the kept record of an earlier bundle of this name, if
    higher.
    """
    return OwnershipRecord(
        cluster=cluster,
        bundle=bundle,
        state=State.INIT,
        version_id=version_floor if previous is None else max(version_floor, previous.version_id),
    )


def next_record(
    record: OwnershipRecord,
    kind: TransitionKind,
    origin: Origin,
    source: Instance = NOBODY,
    destination: Instance = NOBODY,
) -> OwnershipRecord:
    """Return the next version of a record, in the state of `TRANSITIONS[kind]`.

    Raises ProtocolError (a bug) when the transition does not start from the record's state.
    """
    if not may_start(kind, record.state):
        starts = ", ".join(sorted(state.value for state in TRANSITIONS[kind].sources))
        raise ProtocolError(
            f"{kind.name} must start from {starts}, got {record.state.value}: {record}"
        )
    return OwnershipRecord(
        cluster=record.cluster,
        bundle=record.bundle,
        state=TRANSITIONS[kind].target,
        is_forced=TRANSITIONS[kind].is_forced,
        version_id=next_version(record.version_id),
        source=source.broker,
        source_incarnation=source.incarnation,
        destination=destination.broker,
        destination_incarnation=destination.incarnation,
        timestamp_ms=origin.now_ms,
        cause=origin.cause,
        decision_id=origin.decision_id,
        command_id=origin.command_id,
        writer_epoch=origin.writer_epoch,
    )


def transition(*pairs: tuple[OwnershipRecord | None, OwnershipRecord]) -> Transition:
    """Return the transition of (before, after) pairs, the bundle itself last.

    A record after Deleted is checked like a bundle's first one, and must have a higher version.
    Raises ProtocolError (a bug) when a record is not complete or the resolver refuses it.
    """
    return Transition(changes=tuple(_checked(before, after) for before, after in pairs))


def advance(
    record: OwnershipRecord,
    kind: TransitionKind,
    origin: Origin,
    source: Instance = NOBODY,
    destination: Instance = NOBODY,
) -> Transition:
    """Return the transition of one record to its `next_record`, which is checked."""
    return transition((record, next_record(record, kind, origin, source, destination)))


def _checked(before: OwnershipRecord | None, after: OwnershipRecord) -> Change:
    known = None if before is None or before.state is State.DELETED else before
    verdict = resolve(known, after)
    if before is not None and not is_newer(after.version_id, before.version_id):
        verdict = ResolverVerdict.OLD_VERSION
    judged = record_fault(after) or verdict.value
    if judged != ResolverVerdict.ACCEPTED.value:
        raise ProtocolError(f"record must be accepted, got {judged}: {before} -> {after}")
    return Change(before=before, after=after)


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipDifference:
    """Difference of one bundle. before, after: rows of its record; None = no row."""

    bundle: str
    before: Row | None
    after: Row | None


def find_differences(before: Iterable[Row], after: Iterable[Row]) -> Iterator[OwnershipDifference]:
    """Yield the bundles that differ, in the order of names. O(rows), constant memory.

    before, after: rows as in bundle_ownership, sorted by bundle, each once.
    """
    olds, news = iter(before), iter(after)
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        name = min(row["bundle"] for row in (old, new) if row is not None)
        was = old if old is not None and old["bundle"] == name else None
        now = new if new is not None and new["bundle"] == name else None
        if _ownership_of(was) != _ownership_of(now):
            yield OwnershipDifference(bundle=name, before=was, after=now)
        old = next(olds, None) if was is not None else old
        new = next(news, None) if now is not None else new


def parties(row: Row) -> tuple[str, ...]:
    """Return the brokers in a record: the owner, or the source and the destination."""
    names = (
        (row["destination"],) if row["state"] == "Owned" else (row["source"], row["destination"])
    )
    return tuple(name for name in names if name)


def _ownership_of(row: Row | None) -> tuple[str, ...]:
    return () if row is None else (row["state"], *parties(row))
