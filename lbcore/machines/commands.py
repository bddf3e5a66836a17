"""Commands: what people and services ask of the balancer, each carried out or refused once.

Decides that a command is new and well formed; whether it is possible now is its handler's to say.
The outcome is a row of the `commands` table. First phase of `balancer`. Source: ours; the names of
the commands follow Pulsar's admin interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.machines.effects import to_json
from lbcore.machines.handlers.bundles import BUNDLE_HANDLERS
from lbcore.machines.handlers.catalogue import CATALOGUE_HANDLERS
from lbcore.machines.handlers.namespaces import NAMESPACE_HANDLERS
from lbcore.machines.handlers.settings import SETTINGS_HANDLERS
from lbcore.machines.outcome import Outcome, refuse
from lbcore.machines.work import Work
from lbcore.model.tables import COMMANDS
from lbcore.wire import commands as asked
from lbcore.wire.messages import Command

REMEMBERED_COMMANDS = 2_000

HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    **NAMESPACE_HANDLERS,
    **BUNDLE_HANDLERS,
    **SETTINGS_HANDLERS,
    **CATALOGUE_HANDLERS,
}


def take_command(work: Work, command: Command) -> None:
    """Carry out a command, or refuse it; one that was seen before changes nothing."""
    if command.command_id in work.commands:
        work.counts["repeated_command"] += 1
        return
    outcome = _outcome(work, command)
    work.commands[command.command_id] = outcome.status
    while len(work.commands) > REMEMBERED_COMMANDS:
        del work.commands[next(iter(work.commands))]
    kind = command.kind if command.kind in asked.KINDS else "unknown"
    work.counts[f"command:{kind}:{outcome.status}"] += 1
    work.add_row(
        COMMANDS.name,
        {
            "command_id": command.command_id,
            "kind": command.kind,
            "arguments": to_json(command.arguments),
            "principal": command.principal,
            "address": command.address,
            "status": outcome.status,
            "reason": outcome.reason,
            "result": to_json(outcome.result),
        },
    )


def _outcome(work: Work, command: Command) -> Outcome:
    arguments = asked.parse_arguments(command.kind, command.arguments)
    if isinstance(arguments, asked.Refused):
        return refuse(arguments.detail)
    handler = HANDLERS.get(command.kind)
    if handler is None:
        known = ", ".join(sorted(HANDLERS))
        return refuse(f"this version can't carry out {command.kind} yet, only {known}")
    return handler(work, command, arguments)
