"""Differences between two moments: bundles added, removed, or changed.

A change is another owner or another state. Decides what counts: the state, and the brokers that
take part in it (of an owned bundle only its owner). A new version alone is no change.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChange:
    """Difference of one bundle.

    before, after: rows of its record; None = it was not there, or is gone.
    """

    bundle: str
    before: Row | None
    after: Row | None


def find_differences(before: Iterable[Row], after: Iterable[Row]) -> Iterator[OwnershipChange]:
    """Yield the bundles that differ, one after another. O(rows).

    One row of each is kept. before, after: rows as in bundle_ownership, in the order of their
    bundles' names, each once.
    """
    olds, news = iter(before), iter(after)
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        name = min(row["bundle"] for row in (old, new) if row is not None)
        was = old if old is not None and old["bundle"] == name else None
        now = new if new is not None and new["bundle"] == name else None
        if _ownership_of(was) != _ownership_of(now):
            yield OwnershipChange(bundle=name, before=was, after=now)
        old = next(olds, None) if was is not None else old
        new = next(news, None) if now is not None else new


def parties(row: Row) -> tuple[str, ...]:
    """Return the brokers in a record: its owner, or the source and the destination."""
    names = (
        (row["destination"],) if row["state"] == "Owned" else (row["source"], row["destination"])
    )
    return tuple(name for name in names if name)


def _ownership_of(row: Row | None) -> tuple[str, ...]:
    return () if row is None else (row["state"], *parties(row))
