"""The mirror: differences between Pulsar's ownership and our records.

Decides which differences are real. Brokers answer at different moments, so a bundle that moves
meanwhile may be seen at two of them or at none. So only what two looks in a row agree on is
recorded, nothing about a broker that did not answer, and nothing about a bundle whose unload or
split is under way. Where Pulsar and a record differ, Pulsar is right.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from lbcore.bridge.guardian import ADVISORY, Finding
from lbcore.model.names import format_bundle, tenant_of
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.kinds.mirror_commands import FINDINGS_MAX, ObserveOwnership

NOBODY = ""
ALL = "*"
"""Stands for every namespace of every tenant."""
_EVIDENCE_MAX = 500
_OWNERS_MAX = 1_000
"""Maximum owners of one command."""
_BOUNDARY_CHARS, _PART_CHARS = 11, 500_000
"""Characters of a boundary, and of a command's namespaces: half of wire.max_message_bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Answers of all brokers in one poll.

    owned: active broker → the bundles that it says it owns, None without an answer.
    incarnations: of active brokers, "" = not measured. namespaces: namespace → boundaries.
    unread: namespaces whose boundaries could not be read, and tenants whose namespaces could not be
    read, ALL for all tenants; `namespaces` has them from an earlier poll or not at all.
    """

    owned: Mapping[str, frozenset[str] | None]
    incarnations: Mapping[str, str]
    namespaces: Mapping[str, tuple[int, ...]]
    unread: frozenset[str] = frozenset()

    def is_unread(self, namespace: str) -> bool:
        """Return True if a namespace's bundles or existence could not be read."""
        return not self.unread.isdisjoint((ALL, namespace, tenant_of(namespace)))

    def unclaimed(self) -> str | None:
        """Return the owner of unclaimed bundles: NOBODY if all brokers answered, or None."""
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
    """Differences of Pulsar from Ballast's records.

    brokers: all active ones, () = unchanged since the last report. namespaces: namespace → its
    boundaries, () for one that is gone. owners: bundle → (the record's version, the owner, its
    incarnation). findings: faults in Pulsar itself, which the records have no part in.
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
    reported_brokers: Sequence[str],
    busy: frozenset[str],
) -> Difference:
    """Return the differences on which both looks agree. O(bundles).

    records: the newest of every bundle. reported_brokers: the active brokers reported last, sorted.
    busy: bundles that the actuator is working on, or was when the look `now` began.
    """
    brokers = tuple(sorted(now.owned))
    if before is None or not brokers:
        return Difference()
    namespaces = dict(_namespaces(records, before, now, busy))
    owners = dict(_owners(records, before, now, busy))
    return Difference(
        brokers=() if brokers == tuple(reported_brokers) else brokers,
        namespaces=namespaces,
        owners={
            bundle: found
            for bundle, found in owners.items()
            if bundle.rpartition("/")[0] not in namespaces
        },
    )


def commands_of(difference: Difference) -> list[ObserveOwnership]:
    """Return the difference as commands of bounded size.

    At least one, which shows that the bridge is alive. Of more than FINDINGS_MAX findings the
    advisory ones are left out first.
    """
    parts = _namespace_parts(difference.namespaces)
    owners = [(name, *found) for name, found in sorted(difference.owners.items())]
    count = max(len(parts), -(-len(owners) // _OWNERS_MAX), 1)
    urgent_first = sorted(difference.findings, key=lambda one: one.trouble in ADVISORY)
    findings = tuple(written_finding(one) for one in urgent_first[:FINDINGS_MAX])
    return [
        ObserveOwnership(
            brokers=difference.brokers if number == 0 else (),
            namespaces=parts[number] if number < len(parts) else {},
            owners={
                name: [version, broker, incarnation]
                for name, version, broker, incarnation in owners[
                    number * _OWNERS_MAX : (number + 1) * _OWNERS_MAX
                ]
            },
            differences=difference.count,
            findings=findings,
        )
        for number in range(count)
    ]


def _namespace_parts(namespaces: Mapping[str, tuple[int, ...]]) -> list[dict[str, list[int]]]:
    """Divide the namespaces by the length of their text. O(boundaries)."""
    found = sorted(namespaces.items())
    ends = accumulate(len(name) + _BOUNDARY_CHARS * (len(edges) + 1) for name, edges in found)
    parts: dict[int, dict[str, list[int]]] = {}
    for (name, edges), end in zip(found, ends, strict=True):
        parts.setdefault(end // _PART_CHARS, {})[name] = list(edges)
    return list(parts.values())


def written_finding(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON values."""
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
        recorded = {record.bundle for record in live.get(name, ())}
        is_new = recorded != {format_bundle(name, *ends) for ends in pairwise(boundaries)}
        is_lasting = before.namespaces.get(name, ()) == boundaries
        if is_new and is_lasting and recorded.isdisjoint(busy):
            yield name, boundaries


def _owners(
    records: Mapping[str, OwnershipRecord], before: Look, now: Look, busy: frozenset[str]
) -> Iterable[tuple[str, tuple[int, str, str]]]:
    owners_before, owners_now = before.owners(), now.owners()
    default_before, default_now = before.unclaimed(), now.unclaimed()
    for name, record in sorted(records.items()):
        if record.state in (State.DELETED, State.INIT) or name in busy:
            continue
        owner = owners_now.get(name, default_now)
        if owner is None or owner != owners_before.get(name, default_before):
            continue
        incarnation = now.incarnations.get(owner, "")
        if (owner and not incarnation) or _agrees(record, owner, incarnation):
            continue
        yield name, (record.version_id, owner, incarnation)


def _agrees(record: OwnershipRecord, owner: str, incarnation: str) -> bool:
    """Return True if a record names the owner that was seen, or may soon.

    A record in flight agrees while either of its two brokers has the bundle: the actuator finishes
    it.
    """
    if record.state is State.FREE:
        return owner == NOBODY
    places = {(record.destination, record.destination_incarnation)}
    if record.state is not State.OWNED:
        places.add((record.source, record.source_incarnation))
    return (owner, incarnation) in places - {(NOBODY, "")}
