"""What changed between two moments: bundles that came, went, or have another owner or state.

Decides what counts as a change: the state, and who has part in it (of an owned bundle: its owner
alone); a version that went on by itself is none. Source: ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChange:
    """One bundle. before, after: rows of its record; None = it was not there, or is gone."""

    bundle: str
    before: Row | None
    after: Row | None


def find_differences(before: Iterable[Row], after: Iterable[Row]) -> list[OwnershipChange]:
    """The bundles that are not the same, in name order. Rows as in bundle_ownership. O(rows)."""
    old = {row["bundle"]: row for row in before}
    new = {row["bundle"]: row for row in after}
    return [
        OwnershipChange(bundle=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if _seen(old.get(name)) != _seen(new.get(name))
    ]


def parties(row: Row) -> tuple[str, ...]:
    """Who has part in a record: its owner, or the brokers between which the bundle is."""
    names = (
        (row["destination"],) if row["state"] == "Owned" else (row["source"], row["destination"])
    )
    return tuple(name for name in names if name)


def _seen(row: Row | None) -> tuple[str, ...]:
    return () if row is None else (row["state"], *parties(row))
