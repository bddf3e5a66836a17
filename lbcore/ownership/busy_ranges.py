"""Hash ranges with a running callback of a service: no two overlap.

Decides whether a callback may start now. A bundle overlaps others only around splits and where a
namespace was made again; then a parent that is still closing must not take with it what a child has
just opened.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lbcore.model.names import FULL_UPPER, parse_bundle

Range: TypeAlias = tuple[int, int]
"""First and last hash, both included."""

Busy: TypeAlias = Mapping[str, tuple[Range, ...]]
"""Namespace → its busy ranges, ascending."""


class BusyRanges:
    """Busy ranges within one step; a namespace is copied when it is changed."""

    def __init__(self, busy: Busy) -> None:
        self._before = busy
        self._changed: dict[str, list[Range]] = {}

    def freeze(self) -> Busy:
        """The ranges as they are now; the same object when nothing has changed."""
        if not self._changed:
            return self._before
        merged = {**self._before, **{n: tuple(ranges) for n, ranges in self._changed.items()}}
        return {namespace: ranges for namespace, ranges in merged.items() if ranges}

    def take(self, bundle: str) -> bool:
        """Make a bundle's range busy; False if it overlaps a busy one. O(log n)."""
        if not self.is_free(bundle):
            return False
        namespace, taken = _parse(bundle)
        insort(self._ranges(namespace), taken)
        return True

    def is_free(self, bundle: str) -> bool:
        """True if a bundle's range overlaps no busy one. O(log n)."""
        namespace, wanted = _parse(bundle)
        ranges = self._changed.get(namespace, self._before.get(namespace, ()))
        at = bisect_left(ranges, wanted)
        is_hit_below = at > 0 and ranges[at - 1][1] >= wanted[0]
        is_hit_above = at < len(ranges) and ranges[at][0] <= wanted[1]
        return not (is_hit_below or is_hit_above)

    def release(self, bundle: str) -> None:
        """Make a bundle's range free again; raises ValueError when it was not busy."""
        namespace, taken = _parse(bundle)
        self._ranges(namespace).remove(taken)

    def _ranges(self, namespace: str) -> list[Range]:
        if namespace not in self._changed:
            self._changed[namespace] = list(self._before.get(namespace, ()))
        return self._changed[namespace]


def _parse(bundle: str) -> tuple[str, Range]:
    namespace, lower, upper = parse_bundle(bundle)
    return namespace, (lower, upper if upper == FULL_UPPER else upper - 1)


class OpenRanges:
    """Open bundles while one step changes them."""

    def __init__(self, bundles: Iterable[str]) -> None:
        self._ranges = BusyRanges({})
        self._names: set[str] = set()
        for bundle in bundles:
            self.add(bundle)

    def add(self, bundle: str) -> None:
        """Note that the bundle is open. O(log n).

        One that overlaps another, by mistake, is not noted.
        """
        if bundle not in self._names and self._ranges.take(bundle):
            self._names.add(bundle)

    def discard(self, bundle: str) -> None:
        """The bundle is open no more, if it was. O(log n)."""
        if bundle in self._names:
            self._names.remove(bundle)
            self._ranges.release(bundle)

    def overlaps(self, bundle: str) -> bool:
        """True if an open bundle, perhaps this one, shares a hash with this one. O(log n)."""
        return not self._ranges.is_free(bundle)
