"""Hashes of topics, ranges of the hash space, and the bundles of one namespace.

A namespace's hash function is chosen when it is created and never changes: every boundary of its
bundles is a value of it. Source: Pulsar 4.0.8, NamespaceBundle, NamespaceBundles,
NamespaceBundleFactory (crc32), PoliciesUtil; murmur3_32 is Ballast's.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

import mmh3
import numpy as np
from numpy.typing import NDArray

from lbcore.model.names import (
    FULL_LOWER,
    FULL_UPPER,
    check_namespace,
    format_bundle,
    format_range,
    namespace_of_topic,
    parse_bundle,
    parse_range,
)

HASH_SPACE = 1 << 32
"""Number of hash values: hashes are 0 .. 0xffffffff."""


class HashFunction(Enum):
    """Hash function of a namespace's topics; the value is its name in tables."""

    CRC32 = "crc32"
    MURMUR3_32 = "murmur3_32"


Digest: TypeAlias = Callable[[bytes], int]

DIGESTS: Mapping[HashFunction, Digest] = {
    HashFunction.CRC32: zlib.crc32,
    HashFunction.MURMUR3_32: mmh3.mmh3_32_uintdigest,
}
"""Hash functions of bytes; lookups call them without a Python call in between."""


def crc32(text: str) -> int:
    """CRC-32 (ISO-HDLC, as in zip) of the text's UTF-8 bytes, 0 .. 0xffffffff.

    "123456789" gives 0xcbf43926. A lone surrogate is hashed as "?", as Java encodes it.
    """
    return hash_topic(HashFunction.CRC32, text)


def murmur3_32(text: str) -> int:
    """Return MurmurHash3 x86 32-bit, seed 0, of the UTF-8 bytes: 0 .. 0xffffffff.

    "123456789" gives 0xb4fef382. A lone surrogate is hashed as "?".
    """
    return hash_topic(HashFunction.MURMUR3_32, text)


def hash_topic(function: HashFunction, topic: str) -> int:
    """Return the hash of a topic's full name.

    For example "persistent://tenant/ns/topic-partition-3". The name is hashed as it stands: the
    domain is part of it, nothing is trimmed or decoded.
    """
    return DIGESTS[function](topic.encode("utf-8", "replace"))


def hash_topics(function: HashFunction, topics: Iterable[str]) -> NDArray[np.int64]:
    """The hashes of many topics' full names, in their order."""
    digest = DIGESTS[function]
    return np.fromiter((digest(t.encode("utf-8", "replace")) for t in topics), dtype=np.int64)


_INTEGER = re.compile(r"([-+]?)(?:(?:0[xX]|#)([0-9a-fA-F]+)|0([0-7]+)|(0|[1-9][0-9]{0,18}))")


class InvalidRangeError(ValueError):
    """A range, a boundary list or a split that no set of bundles can have."""


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """The hashes lower <= h < upper; when upper is 0xffffffff, that value too.

    Raises InvalidRangeError when empty, reversed or outside of the hash space. The range of the
    one value 0xffffffff is legal.
    """

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not FULL_LOWER <= self.lower <= self.upper <= FULL_UPPER or (
            self.lower == self.upper != FULL_UPPER
        ):
            raise InvalidRangeError(
                f"range must satisfy 0 <= lower < upper <= 0x{FULL_UPPER:08x}, "
                f"got lower={self.lower:#x}, upper={self.upper:#x}"
            )

    @classmethod
    def parse(cls, text: str) -> "BundleRange":
        """Parse the range "0x%08x_0x%08x". Raises InvalidNameError for other forms."""
        return cls(*parse_range(text))

    @property
    def text(self) -> str:
        """The text of the range, e.g. "0x00000000_0x40000000"."""
        return format_range(self.lower, self.upper)

    @property
    def can_split(self) -> bool:
        """True if a boundary fits strictly between the two ends."""
        return self.upper - self.lower > 1

    def includes(self, topic_hash: int) -> bool:
        """Return True if the hash falls in the range."""
        return self.lower <= topic_hash < self.upper or topic_hash == self.upper == FULL_UPPER

    def overlaps(self, other: "BundleRange") -> bool:
        """Return True if some hash falls in both ranges."""
        low, high = max(self.lower, other.lower), min(self.upper, other.upper)
        return low < high or low == high == FULL_UPPER


@dataclass(frozen=True, slots=True)
class Bundle:
    """One range of one namespace: the unit that is owned, moved and split."""

    namespace: str
    range: BundleRange

    @classmethod
    def parse(cls, name: str) -> "Bundle":
        """Parse a bundle's full name. Raises InvalidNameError when it is malformed."""
        namespace, lower, upper = parse_bundle(name)
        return cls(namespace, BundleRange(lower, upper))

    @property
    def name(self) -> str:
        """The full name, e.g. "tenant/ns/0x00000000_0x40000000"."""
        return format_bundle(self.namespace, self.range.lower, self.range.upper)

    def includes_topic(self, topic: str, function: HashFunction = HashFunction.CRC32) -> bool:
        """Return True if the topic (full name) belongs to the bundle.

        It does if it is in the bundle's namespace and its hash in the range.
        """
        return namespace_of_topic(topic) == self.namespace and self.range.includes(
            hash_topic(function, topic)
        )

    def compare(self, other: "Bundle") -> int:
        """Return -1, 0 or 1, by namespace, then by range.

        Raises InvalidRangeError for two different ranges that overlap: they have no order.
        """
        if self.namespace != other.namespace:
            return -1 if self.namespace < other.namespace else 1
        if self.range == other.range:
            return 0
        if self.range.overlaps(other.range):
            raise InvalidRangeError(f"{self.name} and {other.name} must not overlap to be ordered")
        return -1 if self.range < other.range else 1


@dataclass(frozen=True, slots=True)
class NamespaceBundles:
    """The bundles of a namespace: boundaries b0 < b1 < ... < bn make n bundles.

    The last boundary is 0xffffffff and belongs to the last bundle; the first is 0 in every set that
    Ballast makes, though Pulsar does not ask for it. Raises InvalidRangeError.
    """

    namespace: str
    boundaries: tuple[int, ...]

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        if len(self.boundaries) < 2:  # noqa: PLR2004 two ends make a bundle
            raise InvalidRangeError(f"boundaries must be at least two, got {len(self.boundaries)}")
        if self.boundaries[-1] != FULL_UPPER or self.boundaries[0] < FULL_LOWER:
            raise InvalidRangeError(
                f"boundaries must lie in the hash space and end in 0x{FULL_UPPER:08x}"
            )
        ascending = all(low < high for low, high in pairwise(self.boundaries))
        if not ascending and self.boundaries != (FULL_UPPER, FULL_UPPER):
            raise InvalidRangeError(f"boundaries of {self.namespace} must ascend strictly")

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def ranges(self) -> tuple[BundleRange, ...]:
        """All ranges, ascending."""
        return tuple(BundleRange(low, high) for low, high in pairwise(self.boundaries))

    def names(self) -> tuple[str, ...]:
        """The full names of all bundles, ascending."""
        return tuple(format_bundle(self.namespace, *ends) for ends in pairwise(self.boundaries))


def even_boundaries(count: int) -> tuple[int, ...]:
    """Return the boundaries of `count` equal bundles, 1 .. 2^32.

    The last bundle takes the remainder. 3 gives 0, 0x55555555, 0xaaaaaaaa, 0xffffffff. Raises
    InvalidRangeError.
    """
    if not 1 <= count <= HASH_SPACE:
        raise InvalidRangeError(
            f"number of bundles must be 1 .. {HASH_SPACE}, got {count}: choose another"
        )
    width = HASH_SPACE // count
    return (*(index * width for index in range(count)), FULL_UPPER)


def explicit_boundaries(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the boundaries that an operator listed: decoded, sorted, each once.

    Raises InvalidRangeError when one is no number of the hash space, or when they do not begin
    with 0x00000000 and end with 0xffffffff.
    """
    boundaries = tuple(sorted({decode_boundary(text) for text in texts}))
    if len(boundaries) < 2 or boundaries[0] != FULL_LOWER or boundaries[-1] != FULL_UPPER:  # noqa: PLR2004 two ends
        ends = f"0x{boundaries[0]:08x} to 0x{boundaries[-1]:08x}" if boundaries else "none"
        raise InvalidRangeError(f"boundaries must include 0x00000000 and 0xffffffff, got {ends}")
    return boundaries


def decode_boundary(text: str) -> int:
    """Decode a boundary as Java's Long.decode: 0x or # hex, 0 octal, decimal.

    Raises InvalidRangeError for any other text and outside of 0 .. 0xffffffff.
    """
    found, value = _INTEGER.fullmatch(text), -1  # out of range
    if found is not None:
        sign, hexadecimal, octal, decimal = found.groups()
        value = int(hexadecimal, 16) if hexadecimal else int(octal or decimal, 8 if octal else 10)
        value = -value if sign == "-" else value
    if not FULL_LOWER <= value <= FULL_UPPER:
        raise InvalidRangeError(
            f"boundary must be a number from 0 to 0x{FULL_UPPER:08x}, got {text[:60]!r}"
        )
    return value


def parse_range_leniently(text: str) -> BundleRange:
    """Parse a range as operators write it.

    Upper case, decimal, and missing leading zeros are accepted. Raises InvalidRangeError without a
    "_" between two boundaries, or when empty or reversed.
    """
    parts = text.split("_")
    if len(parts) != 2:  # noqa: PLR2004 a range has two ends
        raise InvalidRangeError(
            f"bundle range must be LOWER_UPPER, e.g. 0x00000000_0x40000000, got {text!r}"
        )
    return BundleRange(decode_boundary(parts[0]), decode_boundary(parts[1]))


def check_can_split(target: BundleRange, at: Sequence[int] = ()) -> None:
    """Check that the range is wider than 1 and holds each of `at` strictly.

    Raises InvalidRangeError.
    """
    if not target.can_split:
        raise InvalidRangeError(f"{target.text} must be wider than 1 to be split")
    if at and not target.lower < min(at) <= max(at) < target.upper:
        raise InvalidRangeError(
            f"split boundaries must lie strictly inside of {target.text}, got {sorted(at)}"
        )


def children_of(target: BundleRange, at: Sequence[int]) -> tuple[BundleRange, ...]:
    """Return the ranges into which the boundaries `at` cut the target, ascending.

    at: in any order. Raises InvalidRangeError as `check_can_split`, and for a repeated boundary.
    """
    check_can_split(target, at)
    return tuple(BundleRange(*ends) for ends in pairwise((target.lower, *sorted(at), target.upper)))
