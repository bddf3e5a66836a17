"""The hash ranges that an agent has open, for finding those that overlap a bundle.

Decides nothing. Open ranges overlap each other only by mistake, so few are ever found. Source:
ours.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate

from lbcore.model.names import FULL_UPPER, parse_bundle
from lbcore.ownership.holding import Holding


class OpenRanges:
    """What was open among some holdings when this was made. O(n log n)."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for holding in holdings:
            if holding.is_open:
                namespace, first, last = _parse(holding.bundle)
                found[namespace].append((first, last, holding.bundle))
        self._ranges = {namespace: sorted(ranges) for namespace, ranges in found.items()}
        self._reach = {
            namespace: list(accumulate((last for _, last, _ in ranges), max))
            for namespace, ranges in self._ranges.items()
        }

    def overlapping(self, bundle: str) -> list[str]:
        """The open bundles that share a hash with this one, itself included. O(log n + found)."""
        namespace, first, last = _parse(bundle)
        ranges, reach = self._ranges.get(namespace, []), self._reach.get(namespace, [])
        at = bisect_right(ranges, last, key=lambda each: each[0]) - 1
        found = []
        while at >= 0 and reach[at] >= first:
            if ranges[at][1] >= first:
                found.append(ranges[at][2])
            at -= 1
        return sorted(found)


def _parse(bundle: str) -> tuple[str, int, int]:
    """Namespace, first and last hash, both included."""
    namespace, lower, upper = parse_bundle(bundle)
    return namespace, lower, upper if upper == FULL_UPPER else upper - 1
