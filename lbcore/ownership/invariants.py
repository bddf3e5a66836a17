"""Invariants of a cluster's ownership records.

The job checks a batch's changes before it writes them, the tests after each step; lookup services
have checks of their own (`lbcore.route`). Nothing is repaired. Bundles must divide the hash space
as in Pulsar's NamespaceBundles.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from lbcore.model.names import FULL_LOWER, FULL_UPPER, InvalidNameError, parse_bundle
from lbcore.ownership.changes import Change, record_fault
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.resolve import is_newer


class Invariant(str, Enum):
    """Violated invariant; the value is the label of the violations metric."""

    NAME = "name"
    COVER = "cover"
    DISJOINT = "disjoint"
    STATE_AND_BROKERS = "state_and_brokers"
    VERSION = "version"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation, with a sentence for people. where: a bundle or a namespace."""

    invariant: Invariant
    where: str
    sentence: str


def violations_of_changes(
    changes: Sequence[Change], live_bundles: Callable[[str], Iterable[str]]
) -> list[Violation]:
    """Return the violations by these changes, by place.

    Only touched bundles are checked. live_bundles: namespace → names of its live bundles after the
    changes, called only for namespaces in which a bundle came or went. A move costs O(1), a split
    O(bundles of the namespace).
    """
    found: list[Violation] = []
    reshaped = set()
    for change in changes:
        after, before = change.after, change.before
        found += of_record(after.bundle, after)
        if before is not None:
            found += of_pair(before, after)
        was_live = before is not None and before.state is not State.DELETED
        if was_live != (after.state is not State.DELETED):
            reshaped.add(after.bundle.rpartition("/")[0])
    for namespace in sorted(reshaped):
        found += of_bundles(namespace, live_bundles(namespace))
    return sorted(found, key=lambda violation: (violation.where, violation.invariant.value))


def of_bundles(namespace: str, names: Iterable[str]) -> list[Violation]:
    """Return gaps and overlaps of a namespace's live bundles in the hash space.

    A namespace without bundles has no violation.
    """
    parsed: list[tuple[int, int, str]] = []
    malformed: list[Violation] = []
    for name in names:
        try:
            parsed.append((*parse_bundle(name)[1:], name))
        except InvalidNameError as error:  # noqa: PERF203 each has its violation
            malformed.append(Violation(Invariant.NAME, name, str(error)))
    if malformed or not parsed:
        return malformed
    parsed.sort()
    first, last = parsed[0][0], max(upper for _, upper, _ in parsed)
    gaps = [f"below {first:#010x}"] if first != FULL_LOWER else []
    gaps += [f"from {last:#010x} on"] if last != FULL_UPPER else []
    overlaps = []
    for (_, end, one), (begin, upper, other) in pairwise(parsed):
        if begin > end:
            gaps.append(f"from {end:#010x} to {begin:#010x}")
        elif begin < end or begin == upper:
            sentence = f"{one} and {other} are both live and overlap: a hash has two owners"
            overlaps.append(Violation(Invariant.DISJOINT, other, sentence))
    sentences = [f"no live bundle of {namespace} covers the hashes {gap}" for gap in gaps]
    return [*(Violation(Invariant.COVER, namespace, one) for one in sentences), *overlaps]


def of_record(name: str, record: OwnershipRecord) -> Iterable[Violation]:
    """Return violations of one record; name: the bundle that it is stored under."""
    if name != record.bundle:
        yield Violation(Invariant.NAME, name, f"the record under {name} is of {record.bundle}")
    fault = record_fault(record) or _broker_fault(record)
    if fault is not None:
        yield Violation(Invariant.STATE_AND_BROKERS, name, f"{name}: {fault}")


def _broker_fault(record: OwnershipRecord) -> str | None:
    for role, broker, incarnation in (
        ("source", record.source, record.source_incarnation),
        ("destination", record.destination, record.destination_incarnation),
    ):
        if bool(broker) != bool(incarnation):
            return f"{role} must have an incarnation or be none, got {broker!r} {incarnation!r}"
    if record.source and record.source == record.destination:
        return f"source and destination must differ, got {record.source} twice"
    if record.state is State.FREE and record.destination:
        return f"destination must be none in Free, got {record.destination}"
    return None


def of_pair(before: OwnershipRecord, after: OwnershipRecord | None) -> Iterable[Violation]:
    """Return violations between a bundle's record and a later one, None = no record."""
    if after is None:
        if before.state is not State.DELETED:
            yield Violation(
                Invariant.LOST,
                before.bundle,
                f"{before.bundle} was live at version {before.version_id} and has no record",
            )
    elif is_newer(before.version_id, after.version_id):
        yield Violation(
            Invariant.VERSION,
            before.bundle,
            f"{before.bundle} went back from version {before.version_id} to {after.version_id}",
        )
    elif before.version_id == after.version_id and (
        replace(before, writer_epoch=after.writer_epoch) != after  # each writer has its epoch
    ):
        yield Violation(
            Invariant.VERSION,
            before.bundle,
            f"{before.bundle} has two records of version {before.version_id}",
        )
