"""What becomes of a command: carried out, taken on, or refused with a sentence.

Decides nothing. Handlers make these; `commands` writes them down. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DONE = "done"
ACCEPTED = "accepted"
REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a command. reason: a sentence when it was refused."""

    status: str
    reason: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


def refuse(reason: str) -> Outcome:
    """The outcome of a command that is not possible: what is wrong, and what to do next."""
    return Outcome(status=REFUSED, reason=reason)
