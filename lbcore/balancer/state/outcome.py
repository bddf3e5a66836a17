"""Outcome of a command: carried out, accepted, or refused with a sentence.

Handlers make outcomes; `commands` and `waiting` write them down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore import packing
from lbcore.wire.messages import Command

DONE = "done"
ACCEPTED = "accepted"
REFUSED = "refused"
FAILED = "failed"
TIMED_OUT = "timed_out"

DEADLINE, QUEUED, FROM = "deadline_ms", "queued", "from"
"""Keys of an accepted command's result, from which the waiting is rebuilt.

from: bundle → its previous broker, of `moving`; a repair may since have taken it from another.
"""


AFTER = "after"
"""In the result of an accepted command that goes on in slices: the last bundle of those begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a command.

    reason: a sentence when it was not done. moving: with ACCEPTED, bundles whose transitions under
    the command's id must end, each with its previous owner. If there are none, whoever accepted the
    command calls `waiting.finish_command`.
    """

    status: str
    reason: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    moving: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A command that was accepted and has not ended.

    deadline_ms: Kafka's time after which nobody waits for it any more, 0 = never. is_queued: it is
    not begun, because its bundle is busy. moving: as in Outcome, what is left of it. faults: what
    went otherwise, the first few sentences; failed: how many did.
    """

    command: Command
    deadline_ms: int
    is_queued: bool = False
    moving: Mapping[str, str] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    failed: int = 0


def refuse(reason: str) -> Outcome:
    """The outcome of a command that is not possible: what is wrong, and what to do next."""
    return Outcome(status=REFUSED, reason=reason)


def waiting_to_plain(waiting: Waiting) -> dict[str, Any]:
    """The waiting as JSON-able values."""
    command = packing.fields_of(waiting.command)
    return {**packing.fields_of(waiting), "command": command, "moving": dict(waiting.moving)}


def waiting_from_plain(plain: Mapping[str, Any]) -> Waiting:
    """The inverse of `waiting_to_plain`."""
    faults = tuple(plain["faults"])
    return Waiting(**{**plain, "command": Command(**plain["command"]), "faults": faults})
