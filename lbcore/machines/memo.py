"""What a Machine packed last, so that parts of a state that are the same are not packed again.

Decides nothing; no part of the state. Source: ours.
"""

from collections.abc import Callable
from typing import Any

Memo = dict[str, tuple[Any, Any]]
"""Part of a state → what it was made of, and what was made."""


def remembered(memo: Memo, name: str, parts: object, make: Callable[[], Any]) -> Any:
    """What the memo has of the part if its parts are equal, else what `make` makes, kept there.

    parts: never changed in place.
    """
    known, made = memo.get(name, (None, None))
    if known != parts:
        made = make()
        memo[name] = (parts, made)
    return made
