"""Numbers that look random and are a pure function of (seed, stream, index).

Used by the load model, the fleet's delays and the simulator: unlike a generator, a value does not
depend on how many were drawn before it, nor on numpy's version. Source: the splitmix64 finalizer
(Steele, Lea, Flood 2014), integer arithmetic only. RandomStream is splitmix64 itself, for the
simulator's chances and delays.
"""

from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Words: TypeAlias = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed


def uniforms(seed: int, stream: str, count: int) -> Floats:
    """`count` numbers in [0, 1), all different streams independent of each other."""
    start = (seed * _GOLDEN + (crc32(stream.encode()) << 17)) & _MASK
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    words = _mixed(_mixed(np.uint64(start) + steps))
    drawn: Floats = (words >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return drawn


def uniform(seed: int, stream: str) -> float:
    """One number in [0, 1)."""
    return float(uniforms(seed, stream, 1)[0])


def _mixed_word(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


class RandomStream:
    """A stream of numbers; those of other seeds have nothing to do with it."""

    def __init__(self, seed: int) -> None:
        self._state = _mixed_word((seed * _GOLDEN + 1) & _MASK)

    def next_number(self) -> float:
        """The next number in [0, 1)."""
        self._state = (self._state + _GOLDEN) & _MASK
        return (_mixed_word(self._state) >> 11) / (1 << 53)

    def happens(self, chance: float) -> bool:
        """True if an event of this chance happens.

        Draws a number only if the chance is neither 0 nor 1.
        """
        return chance > 0.0 and (chance >= 1.0 or self.next_number() < chance)

    def between(self, shortest: int, longest: int) -> int:
        """A whole number from the shortest to the longest."""
        return shortest + int(self.next_number() * (longest - shortest + 1))
