"""The known word that somebody may have meant by an unknown one.

Decides by pairs of letters, in microseconds: a tenant may send thousands of unknown words, and each
is answered with a sentence. Source: Dice (1945), on the bigrams of both words.
"""

from collections import Counter
from functools import lru_cache

_LONGEST = 64
_LIKE_ENOUGH = 0.5


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Return the known word most like this one; "" when none is.

    The first of equals. Twice the pairs of letters in common, over all pairs: "bundel" and "bundle"
    have 4 of 7 each. O(pairs × known words that have them).
    """
    if len(word) > _LONGEST:
        return ""
    pairs = _pairs(word)
    sizes, having = _index(known)
    common = Counter(at for pair in pairs for at in having.get(pair, ()))
    shares = {at: 2 * count / (len(pairs) + sizes[at]) for at, count in common.items()}
    best = max(shares.values(), default=0.0)
    if best < _LIKE_ENOUGH:
        return ""
    return known[min(at for at, share in shares.items() if share == best)]


@lru_cache(maxsize=64)
def _index(known: tuple[str, ...]) -> tuple[tuple[int, ...], dict[str, list[int]]]:
    """The number of pairs of each word, and pair → the words that have it."""
    having: dict[str, list[int]] = {}
    for at, word in enumerate(known):
        for pair in sorted(_pairs(word)):
            having.setdefault(pair, []).append(at)
    return tuple(len(_pairs(word)) for word in known), having


def _pairs(word: str) -> frozenset[str]:
    framed = f" {word.lower()} "
    return frozenset(framed[at : at + 2] for at in range(len(framed) - 1))
