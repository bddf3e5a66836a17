"""The mirror: differences between Pulsar's ownership and our records.

Decides which differences are real. Brokers are asked one after the other, so a bundle on its way
may be seen at two of them or at none: only what two looks in a row agree on is taken over, nothing
of a broker that did not answer, and nothing of a bundle whose unload or split is under way. Pulsar
is right in every case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lbcore.bridge.guardian import ADVISORY, Finding
from lbcore.model.names import format_bundle, tenant_of
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.kinds.mirror_commands import FINDINGS_MAX, ObserveOwnership

NOBODY = ""
ALL = "*"
"""Stands for every namespace of every tenant."""
_EVIDENCE_MAX = 500
_ASKED_AT_ONCE = 1_000
"""Most bundles, and most namespaces, of one command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One round of questions to the brokers.

    owned: active broker → the bundles that it says it owns, None without an answer.
    incarnations: of active brokers, "" = not measured. namespaces: namespace → boundaries.
    unread: namespaces whose boundaries could not be read, and tenants whose namespaces could not,
    ALL when no tenant could: what is known of them is of before, or nothing.
    """

    owned: Mapping[str, frozenset[str] | None]
    incarnations: Mapping[str, str]
    namespaces: Mapping[str, tuple[int, ...]]
    unread: frozenset[str] = frozenset()

    def is_unread(self, namespace: str) -> bool:
        """Return True where a namespace's bundles or existence are unknown."""
        return not self.unread.isdisjoint((ALL, namespace, tenant_of(namespace)))

    def unclaimed(self) -> str | None:
        """The owner of what no broker claims: NOBODY if all have answered, else None."""
        is_whole = all(owned is not None for owned in self.owned.values())
        return NOBODY if is_whole and self.owned else None

    def owners(self) -> Mapping[str, str | None]:
        """Return bundle → owner of all owned bundles; None when two own one. O(bundles)."""
        found: dict[str, str | None] = {}
        for broker, owned in sorted(self.owned.items()):
            for bundle in owned or ():
                found[bundle] = None if bundle in found else broker
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Differences of Pulsar from our records.

    brokers: all active ones, () = those that were reported last. namespaces: namespace → its
    boundaries, () for one that is gone. owners: bundle → (the record's version, the owner, its
    incarnation). findings: what is wrong in Pulsar, whatever we have recorded.
    """

    brokers: tuple[str, ...] = ()
    namespaces: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    owners: Mapping[str, tuple[int, str, str]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def count(self) -> int:
        """Number of bundles and namespaces that differ."""
        return len(self.namespaces) + len(self.owners)


def compare(
    records: Mapping[str, OwnershipRecord],
    before: Look | None,
    now: Look,
    told_brokers: Sequence[str],
    busy: frozenset[str],
) -> Difference:
    """Return the differences that the look before showed, too. O(bundles).

    records: the newest of every bundle. busy: bundles that the actuator is working on, or was when
    the look `now` began.
    """
    brokers = tuple(sorted(now.owned))
    if before is None or not brokers:
        return Difference()
    namespaces = dict(_namespaces(records, before, now, busy))
    owners = dict(_owners(records, before, now, busy))
    return Difference(
        brokers=() if brokers == tuple(told_brokers) else brokers,
        namespaces=namespaces,
        owners={
            bundle: found
            for bundle, found in owners.items()
            if bundle.rpartition("/")[0] not in namespaces
        },
    )


def commands_of(difference: Difference) -> list[ObserveOwnership]:
    """Return the difference as commands of bounded size.

    One at least, which says that we look. Beyond FINDINGS_MAX advisory findings are cut first.
    """
    namespaces = sorted(difference.namespaces.items())
    owners = [(name, *found) for name, found in sorted(difference.owners.items())]
    count = max(len(namespaces), len(owners), 1)
    urgent_first = sorted(difference.findings, key=lambda one: one.trouble in ADVISORY)
    findings = tuple(written_finding(one) for one in urgent_first[:FINDINGS_MAX])
    return [
        ObserveOwnership(
            brokers=difference.brokers if start == 0 else (),
            namespaces={
                name: list(boundaries)
                for name, boundaries in namespaces[start : start + _ASKED_AT_ONCE]
            },
            owners={
                name: [version, broker, incarnation]
                for name, version, broker, incarnation in owners[start : start + _ASKED_AT_ONCE]
            },
            differences=difference.count,
            findings=findings,
        )
        for start in range(0, count, _ASKED_AT_ONCE)
    ]


def written_finding(finding: Finding) -> dict[str, Any]:
    """A finding as JSON values."""
    return {
        "trouble": finding.trouble.value,
        "subject": finding.subject,
        "since_ms": finding.since_ms,
        "evidence": finding.evidence[:_EVIDENCE_MAX],
        "stage": finding.stage.value,
    }


def _namespaces(
    records: Mapping[str, OwnershipRecord], before: Look, now: Look, busy: frozenset[str]
) -> Iterable[tuple[str, tuple[int, ...]]]:
    live: dict[str, list[OwnershipRecord]] = {}
    for record in records.values():
        if record.state not in (State.DELETED, State.INIT):
            live.setdefault(record.bundle.rpartition("/")[0], []).append(record)
    for name in sorted(live.keys() | now.namespaces.keys()):
        boundaries = now.namespaces.get(name, ())
        if before.is_unread(name) or now.is_unread(name):
            continue
        if before.namespaces.get(name, ()) != boundaries:
            continue
        recorded = live.get(name, [])
        if any(record.bundle in busy for record in recorded):
            continue
        if {record.bundle for record in recorded} != {
            format_bundle(name, lower, upper) for lower, upper in pairwise(boundaries)
        }:
            yield name, boundaries


def _owners(
    records: Mapping[str, OwnershipRecord], before: Look, now: Look, busy: frozenset[str]
) -> Iterable[tuple[str, tuple[int, str, str]]]:
    seen_before, seen = before.owners(), now.owners()
    default_before, default = before.unclaimed(), now.unclaimed()
    for name, record in sorted(records.items()):
        if record.state in (State.DELETED, State.INIT) or name in busy:
            continue
        owner = seen.get(name, default)
        if owner is None or owner != seen_before.get(name, default_before):
            continue
        incarnation = now.incarnations.get(owner, "")
        if (owner and not incarnation) or _agrees(record, owner, incarnation):
            continue
        yield name, (record.version_id, owner, incarnation)


def _agrees(record: OwnershipRecord, owner: str, incarnation: str) -> bool:
    """True if a record says what was seen, or is about to.

    One in flight is left to the actuator as long as one of its two brokers has the bundle.
    """
    if record.state is State.FREE:
        return owner == NOBODY
    places = {(record.destination, record.destination_incarnation)}
    if record.state is not State.OWNED:
        places.add((record.source, record.source_incarnation))
    return (owner, incarnation) in places - {(NOBODY, "")}
