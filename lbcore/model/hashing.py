"""Hash of a topic, which places it in a bundle.

Decides the hash of a topic's full name, nothing about bundles. Used by `model.bundles`, the split
algorithms, the lookup and the simulated fleet. A namespace's function is chosen when it is created
and never changes, because every bundle boundary is a value of it.
Source: Pulsar 4.0.8, NamespaceBundleFactory (crc32); murmur3_32 is ours.
"""

from collections.abc import Iterable
from enum import Enum
from zlib import crc32 as _zlib_crc32

import mmh3
import numpy as np
from numpy.typing import NDArray

HASH_SPACE = 1 << 32
"""Number of hash values: hashes are 0 .. 0xffffffff."""


class HashFunction(Enum):
    """Hash function of a namespace's topics; the value is its name in tables."""

    CRC32 = "crc32"
    MURMUR3_32 = "murmur3_32"


def crc32(text: str) -> int:
    """CRC-32 (ISO-HDLC, as in zip) of the text's UTF-8 bytes, 0 .. 0xffffffff.

    "123456789" gives 0xcbf43926. Half of a surrogate pair is hashed as "?", as Java encodes it.
    """
    return _zlib_crc32(text.encode("utf-8", "replace"))


def murmur3_32(text: str) -> int:
    """Return MurmurHash3 x86 32-bit, seed 0, of the UTF-8 bytes: 0 .. 0xffffffff.

    "123456789" gives 0xb4fef382. Half of a surrogate pair is hashed as "?".
    """
    return mmh3.hash(text.encode("utf-8", "replace"), 0, signed=False)


_FUNCTIONS = {HashFunction.CRC32: crc32, HashFunction.MURMUR3_32: murmur3_32}


def hash_topic(function: HashFunction, topic: str) -> int:
    """Return the hash of a topic's full name.

    For example "persistent://tenant/ns/topic-partition-3". The name is hashed as it stands: the
    domain is part of it, nothing is trimmed or decoded.
    """
    return _FUNCTIONS[function](topic)


def hash_topics(function: HashFunction, topics: Iterable[str]) -> NDArray[np.int64]:
    """The hashes of many topics' full names, in their order."""
    return np.fromiter(map(_FUNCTIONS[function], topics), dtype=np.int64)
