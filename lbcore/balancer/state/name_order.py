"""The order of the ledger's rows: namespace after namespace, each by lower boundary.

Decides where new bundles stand among those that are known, so that each namespace is one stretch
of rows whatever its name looks like beside others'. Part of the ledger. Source: ours.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lbcore.model.names import bundle_order

_FEW = 16
"""Names that are fewer than the known ones by this factor are looked for one by one."""

_SLASHES = 2
"""In the name of a bundle of tenant/namespace."""


def places_of(known: Sequence[str], fresh: Sequence[str]) -> list[int]:
    """Before which of the known names each new one stands; both in order, none in both.

    O(new × log known) for few new names, else O(known + new × log known) with a smaller constant.
    """
    if len(fresh) * _FEW < len(known):
        return [bisect_left(known, bundle_order(name), key=bundle_order) for name in fresh]
    keys = list(map(bundle_order, known))
    return [bisect_left(keys, bundle_order(name)) for name in fresh]


def merged(known: Sequence[str], fresh: Sequence[str], places: Sequence[int]) -> list[str]:
    """The known and the new names in order. places: as `places_of` gives them. O(known + new)."""
    names: list[str] = []
    last = 0
    for name, place in zip(fresh, places, strict=True):
        names += known[last:place]
        names.append(name)
        last = place
    names += known[last:]
    return names


def stretch_of(names: Sequence[str], namespace: str) -> range:
    """The rows of a namespace's bundles among names in order. O(log names)."""
    first = bisect_left(names, f"{namespace}/\0", key=bundle_order)
    return range(first, bisect_left(names, f"{namespace}/\1", lo=first, key=bundle_order))


def rows_in_order(names: Sequence[str]) -> NDArray[np.int64]:
    """The rows of names that were packed, in order. O(n), O(n log n) where names have three parts.

    States used to be sorted by the text of the names, which mixes the bundles of "a/b" with those
    of "a/b/c"; where all namespaces have two parts, that is the order, too.
    """
    if all(name.count("/") == _SLASHES for name in names):
        return np.arange(len(names))
    keys = list(map(bundle_order, names))
    return np.array(sorted(range(len(names)), key=keys.__getitem__), dtype=np.int64)
