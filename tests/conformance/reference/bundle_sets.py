"""A namespace's set of bundles, searched by hash as NamespaceBundles does.

Lookups search an index of all namespaces instead (`lbcore.route`). Source: Pulsar 4.0.8,
NamespaceBundles.
"""

from bisect import bisect_right
from dataclasses import dataclass

from lbcore.model.bundles import (
    BundleRange,
    HashFunction,
    InvalidRangeError,
    NamespaceBundles,
    hash_topic,
)
from lbcore.model.names import FULL_LOWER, FULL_UPPER, namespace_of_topic

FULL_RANGE = BundleRange(FULL_LOWER, FULL_UPPER)


class UncoveredHashError(LookupError):
    """A hash that no bundle of the set holds."""


@dataclass(frozen=True, slots=True)
class BundleSet(NamespaceBundles):
    """Bundles with a hash function. version: of the stored policies, -1 = none."""

    hash_function: HashFunction = HashFunction.CRC32
    version: int = -1

    def find(self, topic_hash: int) -> int:
        """The index of the bundle that holds the hash; O(log n).

        0xffffffff is in the last bundle (Pulsar 4.0.8 fails there: see `find_as_pulsar`). Raises
        UncoveredHashError for a hash below the first boundary or outside of the hash space.
        """
        if topic_hash == FULL_UPPER:
            return len(self) - 1
        return self.find_as_pulsar(topic_hash)

    def find_as_pulsar(self, topic_hash: int) -> int:
        """Find as `find`, but raise UncoveredHashError for 0xffffffff."""
        index = bisect_right(self.boundaries, topic_hash) - 1
        if not 0 <= index < len(self):
            message = f"no bundle of {self.namespace} holds the hash {topic_hash:#010x}"
            raise UncoveredHashError(message)
        return index

    def hash_of(self, topic: str) -> int:
        """The hash of a topic (full name) of this namespace.

        Raises InvalidRangeError for a topic of another namespace.
        """
        if namespace_of_topic(topic) != self.namespace:
            message = f"topic {topic} must be of the namespace {self.namespace}"
            raise InvalidRangeError(message)
        return hash_topic(self.hash_function, topic)
