"""Commands: what people and services ask of the balancer, each carried out or refused once.

Decides whether a command is possible now; the outcome is a row of the `commands` table. First
phase of `balancer`. Source: ours; the names of the commands follow Pulsar's admin interface.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.values import ConfigError
from lbcore.machines.book import NamespaceEntry
from lbcore.machines.effects import to_json
from lbcore.machines.work import Work
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.tables import COMMANDS, NAMESPACES
from lbcore.ownership.changes import NOBODY, Refused, Transition
from lbcore.ownership.protocol import create, unload
from lbcore.ownership.records import Cause
from lbcore.wire import commands as asked
from lbcore.wire.messages import Command

DONE = "done"
ACCEPTED = "accepted"
REFUSED = "refused"

REMEMBERED_COMMANDS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a command. reason: a sentence when it was refused."""

    status: str
    reason: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


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


def namespace_row(name: str, entry: NamespaceEntry) -> dict[str, Any]:
    """A namespace as a row of the `namespaces` table."""
    return {
        "namespace": name,
        "hash": entry.hash,
        "is_deleted": entry.is_deleted,
        "highest_version": entry.highest_version,
        "properties": to_json(entry.properties),
    }


def _outcome(work: Work, command: Command) -> Outcome:
    arguments = asked.parse_arguments(command.kind, command.arguments)
    if isinstance(arguments, asked.Refused):
        return _refuse(arguments.detail)
    handler = HANDLERS.get(command.kind)
    if handler is None:
        known = ", ".join(sorted(HANDLERS))
        return _refuse(f"this version can't carry out {command.kind} yet, only {known}")
    return handler(work, command, arguments)


def _create_namespace(work: Work, command: Command, arguments: asked.CreateNamespace) -> Outcome:
    name = arguments.namespace
    known = work.namespaces.get(name)
    if known is not None and not known.is_deleted:
        return _refuse(f"namespace {name} exists already; delete it first, or choose another name")
    floor = known.highest_version if known else 0
    entry = NamespaceEntry(hash=arguments.hash.value, highest_version=floor)
    work.namespaces[name] = entry
    work.add_row(NAMESPACES.name, namespace_row(name, entry))
    origin = work.origin(Cause.CREATE, command_id=command.command_id)
    boundaries = arguments.boundaries or even_boundaries(arguments.bundles)
    bundles = NamespaceBundles(namespace=name, boundaries=boundaries)
    work.ledger.add(bundles.names())
    for bundle in bundles.names():
        previous = work.ledger.record(bundle)
        made = create(work.cluster, bundle, origin, previous=previous, version_floor=floor)
        if isinstance(made, Refused):
            return _refuse(f"bundle {bundle} can't be created: {made.reason.value}")
        work.apply(made)
    return Outcome(status=DONE, result={"bundles": len(bundles)})


def _unload_bundle(work: Work, command: Command, arguments: asked.UnloadBundle) -> Outcome:
    bundle, destination = arguments.bundle, arguments.destination
    record = work.ledger.record(bundle)
    if record is None:
        return _refuse(f"there is no bundle {bundle}; table bundle_ownership lists them")
    entry = work.brokers.get(destination)
    if destination and (entry is None or entry.is_silent or not entry.reported_ms):
        return _refuse(f"broker {destination} is not active; choose one that is")
    target = work.instance(destination) if destination else NOBODY
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    answer = unload(record, origin, target)
    if not isinstance(answer, Transition):
        return _refuse(f"bundle {bundle} can't be unloaded now: {answer.reason.value}")
    work.apply(answer)
    work.write_decision(
        origin.decision_id,
        kind="transfer" if destination else "unload",
        reason="Admin",
        inputs={"command_id": command.command_id},
        bundle=bundle,
        source=record.destination,
        destination=destination,
    )
    return Outcome(status=ACCEPTED)


def _change_config(
    work: Work, command: Command, arguments: asked.SetConfig | asked.ResetConfig
) -> Outcome:
    del command
    try:
        work.use_settings(settings_after(work.settings, arguments))
    except ConfigError as error:
        return _refuse(str(error))
    return Outcome(status=DONE, result={"config_version": work.config_version})


def settings_after(
    settings: Mapping[str, Any], arguments: asked.SetConfig | asked.ResetConfig
) -> Mapping[str, Any]:
    """The settings that commands have changed, by "section.name", after one command more.

    Raises ConfigError for values that can't be read.
    """
    if isinstance(arguments, asked.SetConfig):
        return {**settings, **resolve_changes(arguments.values)}
    if not arguments.keys:
        return {}
    gone = {name for key in arguments.keys for name in named_by(key)}
    return {name: value for name, value in settings.items() if name not in gone}


def _refuse(reason: str) -> Outcome:
    return Outcome(status=REFUSED, reason=reason)


HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "create_namespace": _create_namespace,
    "unload_bundle": _unload_bundle,
    "set_config": _change_config,
    "reset_config": _change_config,
}
