"""Carries the deeds of a rolling restart out: commands to the balancer, and the shell's.

What is to be done is `lbcore.bridge.rolling`'s. A command to the balancer has the id of its turn,
so that it is carried out once however often it is sent.
"""

import os
import shlex
import subprocess
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path

from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.progress import last_lines
from lbcore.balancer.state.book import FAILED, REFUSED
from lbcore.bridge.rollout import (
    ApproveIt,
    CommandSeen,
    Deed,
    DrainIt,
    DropIt,
    FillIt,
    GiveUp,
    ReopenIt,
    RestartIt,
    Rollout,
    Tell,
)
from lbcore.wire.kinds.balancing_commands import ApprovePlan, ProposePlan, RejectPlan
from lbcore.wire.kinds.broker_commands import CancelDrain, DrainBroker
from lbcore.wire.kinds.command_about import CommandArguments

_ANSWER_S = 60.0
_TIMEOUT_MS = 60_000
_DRAIN_MS = 3_600_000


class Deeds:
    """For one rolling restart; used by one thread."""

    def __init__(self, client: CommandClient, cluster: str, log: Path) -> None:
        """log: where the commands of the shell write to."""
        self._client, self._cluster, self._log = client, cluster, log
        self._child: subprocess.Popen[bytes] | None = None
        self._answered: dict[str, str] = {}

    def refused(self, rollout: Rollout) -> str:
        """Return why a command of this turn was refused, "" when none was.

        "" also when none was sent.
        """
        prefix = rollout.command_id("")
        found = (why for one, why in self._answered.items() if one.startswith(prefix))
        return next(filter(None, found), "")

    def command(self, rollout: Rollout) -> CommandSeen | None:
        """The shell's command for the broker in hand, also one that outlived who began it."""
        if self._child is None:
            return CommandSeen(code=None) if is_running(rollout.pid) else None
        code = self._child.poll()
        return CommandSeen(code=code, said="" if code is None else last_lines(self._log, count=2))

    def forget_command(self) -> None:
        """The next broker has a command of its own."""
        self._child = None

    def do(self, rollout: Rollout, deed: Deed, tell: Callable[[str], None]) -> int:
        """Carry one out; the id of the shell that it has begun, 0 without.

        Raises CommandError when Kafka does not take a command.
        """
        if isinstance(deed, Tell):
            tell(deed.text)
        elif isinstance(deed, RestartIt):
            return self._restart(rollout, tell)
        elif not isinstance(deed, GiveUp):
            self._ask(rollout, deed)
        return 0

    def _ask(self, rollout: Rollout, deed: Deed) -> None:
        if isinstance(deed, DrainIt):
            drain = DrainBroker(broker=rollout.broker, max_in_flight=deed.at_once)
            self._send(rollout.command_id("drain"), drain, _DRAIN_MS)
        elif isinstance(deed, ReopenIt):
            self._send(rollout.command_id("open"), CancelDrain(broker=rollout.broker))
        elif isinstance(deed, FillIt):
            why = f"rolling restart: back to {rollout.broker}"
            proposed = ProposePlan(moves=deed.moves, why=why, plan=rollout.plan)
            if self._send(rollout.command_id("fill"), proposed):
                self._send(rollout.command_id("approve"), ApprovePlan(plan=rollout.plan))
        elif isinstance(deed, ApproveIt):
            self._send(f"{deed.plan}-approve-{rollout.turn}", ApprovePlan(plan=deed.plan))
        elif isinstance(deed, DropIt):
            why = "the rolling restart does not go on with it"
            self._send(f"{deed.plan}-drop", RejectPlan(plan=deed.plan, reason=why))

    def _send(
        self, command_id: str, arguments: CommandArguments, timeout_ms: int = _TIMEOUT_MS
    ) -> bool:
        """Send it once and wait for the balancer's first word; whether it was taken."""
        if command_id in self._answered:
            return not self._answered[command_id]
        command = new_command(
            self._cluster, arguments, command_id=command_id, timeout_ms=timeout_ms
        )
        ticket = self._client.send(command)
        try:
            found = ticket.first.result(timeout=_ANSWER_S)
        except NotYetError:
            return False  # asked for again: it has its id
        finally:
            self._client.forget(ticket)
        is_taken = found.status not in (REFUSED, FAILED)
        self._answered[command_id] = "" if is_taken else found.reason or found.status
        return is_taken

    def _restart(self, rollout: Rollout, tell: Callable[[str], None]) -> int:
        broker = rollout.broker
        if not rollout.command:
            tell(f"restart {broker} now; this goes on when it is back")
            return 0
        line = command_line(rollout.command, broker)
        tell(f"{broker}: {line}")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 (the person's own command)
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BALLAST_BROKER": broker},
                start_new_session=True,
            )
        return self._child.pid


def command_line(command: str, broker: str) -> str:
    """The shell's line for a broker: {broker} is host:port, {host} the host, both quoted."""
    host = broker.rpartition(":")[0] or broker
    return command.replace("{broker}", shlex.quote(broker)).replace("{host}", shlex.quote(host))


def is_running(pid: int) -> bool:
    """Return True if the shell of that id still runs.

    It must have a session of its own, as we began it.
    """
    try:
        if pid <= 0 or os.getsid(pid) != pid:
            return False
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # no Linux
        return True
    return state != "Z"
