"""Clocks of those who send: what a message says of when it was made, against when it came.

Decides whose clock is wrong beyond doubt; nothing else looks at these times. A message was made
before it was read, and no producer of ours hands one over later than LATE_MS: until then it may
have waited for Kafka. Part of `telling_time`. Source: ours.
"""

import calendar
import re
from collections.abc import Iterator, Sequence

from lbcore.balancer.state.work import Work
from lbcore.scorer.group_update import GroupUpdate
from lbcore.wire.messages import Command

PRODUCER = "producer"
"""The clock of whoever sent a command; the batch's decision says in its inputs who that was."""
LATE_MS = 30_000
"""The delivery timeout of agents' producers; that of command clients is shorter."""

_SECOND_MS = 1_000
_TIMED_ID = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[0-9a-f]{12}", re.ASCII)


def agent_clock(broker: str) -> str:
    """What the clock is called that a broker's agent reports by."""
    return f"agent {broker}"


def is_sender(clock: str) -> bool:
    """Whether a clock is one of those who send: seen to be wrong only when they do."""
    return clock == PRODUCER or clock.startswith(agent_clock(""))


def made_ms(command_id: str) -> int:
    """When a command was made by its sender's clock, 0 when its id does not say so.

    Ids of our clients begin with the second: 20261123T045254Z-0123456789ab.
    """
    found = _TIMED_ID.fullmatch(command_id)
    if found is None:
        return 0
    return calendar.timegm((*map(int, found.groups()), 0, 0, 0)) * _SECOND_MS


def wrong_senders(work: Work, updates: Sequence[GroupUpdate]) -> dict[str, int]:
    """Clock → by how much it is ahead, of the senders of a batch's reports and new commands."""
    made: dict[str, int] = {}
    for update in updates:
        for report in update.loads:
            envelope = report.load.envelope
            name = agent_clock(envelope.broker)
            made[name] = max(made.get(name, 0), envelope.reported_at_ms)
    of_commands = [(made_ms(command.command_id), command) for command in _new(work, updates)]
    wrong = {name: ahead_ms for name, at_ms in made.items() if (ahead_ms := _ahead_ms(work, at_ms))}
    producers = [(ahead_ms, c) for at_ms, c in of_commands if (ahead_ms := _ahead_ms(work, at_ms))]
    if producers:
        wrong[PRODUCER] = max((ahead_ms for ahead_ms, _ in producers), key=abs)
    return wrong


def principals(work: Work, updates: Sequence[GroupUpdate]) -> list[str]:
    """Who sent the new commands of a batch that were made by a clock that is wrong."""
    found = _new(work, updates)
    return sorted({c.principal for c in found if _ahead_ms(work, made_ms(c.command_id))})


def _new(work: Work, updates: Sequence[GroupUpdate]) -> Iterator[Command]:
    """Commands under ids that are not known: who repeats one does not make it anew."""
    for update in updates:
        for placed in update.placed:
            command = placed.message
            if isinstance(command, Command) and not (
                command.command_id in work.commands or command.command_id in work.waiting
            ):
                yield command


def _ahead_ms(work: Work, at_ms: int) -> int:
    """By how much the clock that showed at_ms is ahead beyond doubt; 0 = it may be right."""
    step_ms = work.config.ownership.clock_step_max_ms
    if not at_ms or not work.read_ms:
        return 0
    is_ahead = at_ms > work.now_ms + step_ms
    is_behind = at_ms < work.read_ms - LATE_MS - step_ms
    return at_ms - work.now_ms if is_ahead or is_behind else 0
