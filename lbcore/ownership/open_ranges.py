"""The hash ranges that are open at an agent: whether a bundle overlaps one of another name.

Open ranges don't overlap each other, because nothing is opened over another bundle than the
children that it was split into.
"""

from collections.abc import Iterable

from lbcore.ownership.busy_ranges import BusyRanges


class OpenRanges:
    """Open bundles while one step changes them."""

    def __init__(self, bundles: Iterable[str]) -> None:
        self._ranges = BusyRanges({})
        self._names: set[str] = set()
        for bundle in bundles:
            self.add(bundle)

    def add(self, bundle: str) -> None:
        """The bundle is open. One that overlaps another, by mistake, is not noted. O(log n)."""
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
