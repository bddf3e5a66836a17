"""A namespace's set of bundles after one of them is split, as NamespaceBundleFactory makes it.

The job never makes a set anew: a split is a change of ownership records. Source: Pulsar 4.0.8,
NamespaceBundleFactory.splitBundles.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from lbcore.model.bundles import (
    BundleRange,
    InvalidRangeError,
    check_can_split,
    children_of,
)
from tests.conformance.reference.bundle_sets import BundleSet


class UnknownBundleError(LookupError):
    """A range that is not a bundle of the set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSplit:
    """What a split gives: the namespace's new set, and the children in ascending order."""

    bundles: BundleSet
    children: tuple[BundleRange, ...]


def split_bundles(
    source: BundleSet, target: BundleRange, *, at: Sequence[int] = (), parts: int = 2
) -> RangeSplit:
    """Splits one bundle of the set at the given boundaries, or evenly into `parts` without any.

    The new set keeps the hash function and the version (a store compares and sets with it).
    Raises InvalidRangeError as `children_of`, `split_even`; UnknownBundleError when the target is
    not in the set.
    """
    check_can_split(target, at)
    index = bisect_left(source.boundaries, target.lower)
    if source.boundaries[index : index + 2] != (target.lower, target.upper):
        raise UnknownBundleError(target)
    inner = sorted(at) if at else split_even(target, parts)
    children = children_of(target, inner)
    boundaries = (*source.boundaries[: index + 1], *inner, *source.boundaries[index + 1 :])
    split = BundleSet(source.namespace, boundaries, source.hash_function, source.version)
    return RangeSplit(bundles=split, children=children)


def split_even(target: BundleRange, parts: int) -> tuple[int, ...]:
    """The parts-1 inner boundaries that divide the range evenly; the last part is the widest.

    Raises InvalidRangeError when parts is below 1 or above the range's width.
    """
    width = target.upper - target.lower
    if not 1 <= parts <= width:
        raise InvalidRangeError(parts)
    return tuple(target.lower + index * (width // parts) for index in range(1, parts))
