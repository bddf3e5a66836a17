"""What a Machine packed last, so that parts of a state that are the same are not packed again.

Decides nothing; no part of the state. Source: ours.
"""

from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")

Memo = dict[str, tuple[Any, Any]]
"""Part of a state → what it was made of, and what was made."""


def remembered(memo: Memo, name: str, parts: object, make: Callable[[], Made]) -> Made:
    """What the memo has of the part if its parts are equal, else what `make` makes, kept there.

    parts: never changed in place.
    """
    if name not in memo or memo[name][0] != parts:
        memo[name] = (parts, make())
    made: Made = memo[name][1]
    return made
