"""Violations among all records of a cluster, the reference for those of changes."""

from collections.abc import Mapping

from lbcore.ownership.invariants import Violation, of_bundles, of_pair, of_record
from lbcore.ownership.records import OwnershipRecord, State


def violations(
    records: Mapping[str, OwnershipRecord],
    previous: Mapping[str, OwnershipRecord] | None = None,
) -> list[Violation]:
    """Every violation among a cluster's records (by bundle name), sorted by place. O(n log n).

    The live (not Deleted) bundles of each namespace that has any cover the hash space and are
    disjoint, so no hash has two owners; state and brokers agree; and, where the records of an
    earlier time are given: no version went back, no version has two contents, no live bundle is
    gone without a trace.
    """
    found: list[Violation] = []
    live: dict[str, list[str]] = {}
    for name, record in sorted(records.items()):
        found += of_record(name, record)
        if record.state is not State.DELETED:
            live.setdefault(name.rpartition("/")[0], []).append(name)
    for namespace, names in live.items():
        found += of_bundles(namespace, names)
    for name, before in sorted((previous or {}).items()):
        found += of_pair(before, records.get(name))
    return sorted(found, key=lambda violation: (violation.where, violation.invariant.value))
