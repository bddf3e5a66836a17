"""Dice: a seeded stream of numbers for the simulator's chances and delays.

Pure integer arithmetic, so the same seed throws the same everywhere; `load_noise` is for numbers
that must not depend on how many were drawn before. Source: splitmix64 (Steele, Lea, Flood 2014).
"""

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


class RandomStream:
    """A stream of numbers; those of other seeds have nothing to do with it."""

    def __init__(self, seed: int) -> None:
        self._state = _mixed((seed * _GOLDEN + 1) & _MASK)

    def next_number(self) -> float:
        """The next number in [0, 1)."""
        self._state = (self._state + _GOLDEN) & _MASK
        return (_mixed(self._state) >> 11) / (1 << 53)

    def happens(self, chance: float) -> bool:
        """True if an event of this chance happens.

        Draws a number only if the chance is neither 0 nor 1.
        """
        return chance > 0.0 and (chance >= 1.0 or self.next_number() < chance)

    def between(self, shortest: int, longest: int) -> int:
        """A whole number from the shortest to the longest."""
        return shortest + int(self.next_number() * (longest - shortest + 1))
