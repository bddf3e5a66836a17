"""Many lookups at once: one sorted array over the bundles of all namespaces.

The search of `LookupSnapshot.lookup` on whole arrays, made once per snapshot.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.model.bundles import DIGESTS, Digest, HashFunction
from lbcore.model.names import Domain, InvalidNameError, locate_topic
from lbcore.route.bundles import BundleRoute, placeholder_route
from lbcore.route.snapshot import LookupSnapshot

_HASH_BITS = 32
_UNKNOWN = -1
_STEPS_MAX = 8


class BatchIndex:
    """The bundles of a snapshot's namespaces, for whole arrays of topics.

    routes: every bundle that can be found, by namespace and range. Making one is O(bundles).
    """

    def __init__(self, snapshot: LookupSnapshot) -> None:
        existing = [
            found for _, found in sorted(snapshot.namespaces.items()) if found.hash_function
        ]
        bundles = [found.live or (placeholder_route(found.namespace),) for found in existing]
        self.routes: tuple[BundleRoute, ...] = tuple(route for part in bundles for route in part)
        self._numbers = {
            f"{domain.value}://{found.namespace}": number
            for number, found in enumerate(existing)
            for domain in Domain
        }
        self._grid = _Grid(bundles)
        # One more than there are routes, so that the index -1, unknown, gives nobody.
        self._brokers = np.array([*(route.broker for route in self.routes), ""], dtype=np.object_)
        uses = Counter(found.hash_function for found in existing)
        crc, murmur = HashFunction.CRC32, HashFunction.MURMUR3_32
        common, other = (crc, murmur) if uses[crc] >= uses[murmur] else (murmur, crc)
        self._digest, self._other_digest = DIGESTS[common], DIGESTS[other]
        self._uses_other = np.array(
            [
                DIGESTS[found.hash_function or HashFunction.CRC32] is not self._digest
                for found in existing
            ]
            + [False]
        )

    def find(self, topics: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices into `routes` of many topics, int64[topics]; -1 = none.

        topics: as `LookupSnapshot.lookup` takes them; -1 for an unknown namespace or an invalid
        name. O(topics × log bundles).
        """
        number_of = self._numbers.get
        numbers = np.array(
            [number_of(topic[: topic.rfind("/")], _UNKNOWN) for topic in topics], dtype=np.int64
        )
        found = self._grid.find((numbers << _HASH_BITS) | self._hashes(topics, numbers))
        for position in np.flatnonzero(numbers == _UNKNOWN).tolist():
            found[position] = self._find_slowly(topics[position])
        return found

    def find_brokers(self, topics: Sequence[str]) -> NDArray[Any]:
        """Return the brokers of many topics, object[topics], "" = none."""
        return self._brokers[self.find(topics)]

    def _hashes(self, topics: Sequence[str], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        hashes = _digest_all(self._digest, topics)
        if self._uses_other.any():
            others = np.flatnonzero(self._uses_other[numbers]).tolist()
            hashes[others] = _digest_all(self._other_digest, [topics[at] for at in others])
        return hashes

    def _find_slowly(self, topic: str) -> int:
        try:
            namespace, full = locate_topic(topic)
        except InvalidNameError:
            return _UNKNOWN
        number = self._numbers.get(f"{Domain.PERSISTENT.value}://{namespace}")
        if number is None:
            return _UNKNOWN
        digest = self._other_digest if self._uses_other[number] else self._digest
        key = number << _HASH_BITS | digest(full.encode("utf-8", "replace"))
        return int(self._grid.find(np.array([key]))[0])


class _Grid:
    """Search of sorted keys by a table of evenly spaced guesses.

    A key is (namespace's number, lower hash). A cell of the table holds the bundle at the cell's
    lower end; from there at most `_steps` bundles follow within the cell. Five times as fast as
    bisection while bundles are spread evenly; where one cell holds many, plain bisection.
    """

    def __init__(self, bundles: Sequence[Sequence[BundleRoute]]) -> None:
        keys = [
            number << _HASH_BITS | route.lower
            for number, part in enumerate(bundles)
            for route in part
        ]
        self._keys = np.array([*keys, np.iinfo(np.int64).max], dtype=np.int64)
        # 1 << cell_bits cells for each namespace
        cell_bits = max(1, 4 * len(keys) // max(1, len(bundles))).bit_length()
        self._shift = _HASH_BITS - cell_bits
        ends = np.arange((max(1, len(bundles)) << cell_bits) + 1, dtype=np.int64) << self._shift
        at_ends = np.searchsorted(self._keys, ends, side="right") - 1
        self._guesses: NDArray[np.int64] = at_ends[:-1]
        self._steps = int(np.diff(at_ends).max(initial=0))

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The index of the last known key <= each key; -1 for negative keys."""
        if self._steps > _STEPS_MAX:
            return np.searchsorted(self._keys, keys, side="right") - 1
        found: NDArray[np.int64] = self._guesses[keys >> self._shift]
        for _ in range(self._steps):
            found += self._keys[found + 1] <= keys
        found[keys < 0] = _UNKNOWN
        return found


def _digest_all(digest: Digest, topics: Sequence[str]) -> NDArray[np.int64]:
    try:
        return np.fromiter(map(digest, map(str.encode, topics)), np.int64, len(topics))
    except UnicodeEncodeError:
        names = [topic.encode("utf-8", "replace") for topic in topics]
        return np.fromiter(map(digest, names), np.int64, len(names))
