"""Commands of people and services to the balancer, each executed or refused once.

Decides that a command is new and well formed; whether it is possible now is its handler's to say.
Each has an outcome in the `commands` table; one whose effect takes time is `accepted` there, and
`waiting` writes its end. First phase of `balancer`. The names of the commands follow Pulsar's admin
interface.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lbcore.balancer.commands.brokers import BROKER_HANDLERS, EXTERNAL_HANDLERS
from lbcore.balancer.commands.bundles import (
    BUNDLE_HANDLERS,
    SPLIT_HANDLERS,
    place_splits,
    split_target,
)
from lbcore.balancer.commands.merges import MERGE_HANDLERS
from lbcore.balancer.commands.namespaces import (
    NAMESPACE_HANDLERS,
    RECORD_HANDLERS,
    has_split_under_way,
)
from lbcore.balancer.commands.policies import (
    BALANCING_HANDLERS,
    PLAN_HANDLERS,
    POLICY_HANDLERS,
    SETTINGS_HANDLERS,
)
from lbcore.balancer.decisions.placement import place, write_places
from lbcore.balancer.intake.brokers import is_external
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import ACCEPTED, AFTER, Outcome, refuse
from lbcore.balancer.tasks.waiting import (
    MAX_WAITING,
    begin_wait,
    identity,
    is_same,
    timed_out_unread,
    write_outcome,
)
from lbcore.ownership.records import State
from lbcore.ownership.states import IN_FLIGHT, RESHAPING
from lbcore.plan.decision import Places
from lbcore.wire.commands import RefusedArguments, parse_arguments
from lbcore.wire.kinds.bundle_commands import AssignBundle, OverrideBundle, SplitBundle
from lbcore.wire.kinds.command_about import CommandArguments
from lbcore.wire.kinds.namespace_commands import UnloadNamespace
from lbcore.wire.messages import Command

REMEMBERED_COMMANDS = 2_000

_ELSEWHERE = (
    "{kind} is not ours to do: another authority owns this cluster's bundles and policies; do it"
    " there, and the bridge takes over what comes of it"
)

HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    **NAMESPACE_HANDLERS,
    **BUNDLE_HANDLERS,
    **SPLIT_HANDLERS,
    **MERGE_HANDLERS,
    **BROKER_HANDLERS,
    **BALANCING_HANDLERS,
    **PLAN_HANDLERS,
    **POLICY_HANDLERS,
    **SETTINGS_HANDLERS,
    **RECORD_HANDLERS,
    **EXTERNAL_HANDLERS,
}


def take_command(work: BatchContext, command: Command, sent_ms: int) -> None:
    """Carry out a command, or refuse it; one whose id was seen before changes nothing.

    sent_ms: when Kafka got it. One that names a bundle in the middle of a split or merge waits for
    its end.
    """
    if any(command.command_id in ids for ids in (work.commands, work.waiting, work.unplaced)):
        is_repeated = _is_repeated(work, command)
        work.counts["repeated_command" if is_repeated else "reused_command_id"] += 1
        return
    deadline_ms = sent_ms + command.timeout_ms if command.timeout_ms else 0
    if 0 < deadline_ms < work.now_ms:
        write_outcome(work, command, timed_out_unread(command))
    else:
        _take(work, command, deadline_ms)
    while len(work.commands) > REMEMBERED_COMMANDS:
        del work.commands[next(iter(work.commands))]


def _is_repeated(work: BatchContext, command: Command) -> bool:
    """True if a command with a known id repeats it: same kind, arguments, principal."""
    waiting = work.waiting.get(command.command_id)
    if waiting is not None:
        return identity(waiting.command) == identity(command)
    if command.command_id in work.unplaced:
        return identity(work.unplaced[command.command_id][0]) == identity(command)
    return is_same(work.commands[command.command_id], command)


def take_queued_of(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Begin those of these commands whose bundle is no longer busy, in their order."""
    for command_id in command_ids:
        waiting = work.waiting[command_id]
        arguments = parse_arguments(waiting.command.kind, waiting.command.arguments)
        if not _is_busy(work, arguments):
            del work.waiting[command_id]
            _take(work, waiting.command, waiting.deadline_ms)
    carry_out_placed(work)


def carry_out_placed(work: BatchContext) -> None:
    """Execute what waits for a place: assignments, then splits.

    O(bundles), once for each. All assignments that name no broker are placed together, and so are
    all children of splits that are to leave their parent's owner. What else was asked about their
    bundles meanwhile has waited.
    """
    assigned: list[tuple[Command, AssignBundle, int]] = []
    splits: list[tuple[Command, SplitBundle, int]] = []
    for command, deadline_ms in work.unplaced.values():
        arguments = parse_arguments(command.kind, command.arguments)
        if isinstance(arguments, SplitBundle):
            splits.append((command, arguments, deadline_ms))
        elif isinstance(arguments, AssignBundle):
            assigned.append((command, arguments, deadline_ms))
    work.unplaced, work.unplaced_bundles, work.unplaced_splits = {}, {}, {}
    names = dict.fromkeys(arguments.bundle for _, arguments, _ in assigned)
    rows = {name: work.ledger.index[name] for name in names if _is_free(work, name)}
    _carry_out_at(work, place(work, [] if is_external(work) else list(rows.values()), {}), assigned)
    _carry_out_at(work, place_splits(work, [arguments for _, arguments, _ in splits]), splits)


def _carry_out_at(
    work: BatchContext,
    places: Places,
    commands: Sequence[tuple[Command, AssignBundle | SplitBundle, int]],
) -> None:
    work.places = places.found
    for command, arguments, deadline_ms in commands:
        _carry_out(work, command, arguments, deadline_ms)
    write_places(work, places)


def _is_free(work: BatchContext, bundle: str) -> bool:
    record = work.ledger.record(bundle)
    return record is not None and record.state is State.FREE


def _take(work: BatchContext, command: Command, deadline_ms: int) -> None:
    arguments = parse_arguments(command.kind, command.arguments)
    if len(work.waiting) < MAX_WAITING and _is_busy(work, arguments):
        queued = Outcome(status=ACCEPTED)
        begin_wait(work, command, queued, deadline_ms, is_queued=True)
        return
    if isinstance(arguments, SplitBundle) and arguments.unload:
        bundle = split_target(work, arguments)
        work.unplaced_splits[arguments.namespace or bundle.rpartition("/")[0]] = None
    elif _is_to_be_assigned(arguments):
        bundle = getattr(arguments, "bundle", "")
    else:
        _carry_out(work, command, arguments, deadline_ms)
        return
    work.unplaced[command.command_id] = command, deadline_ms
    work.unplaced_bundles[bundle] = None


def _is_to_be_assigned(arguments: CommandArguments | RefusedArguments) -> bool:
    return isinstance(arguments, AssignBundle) and not arguments.destination


def _carry_out(
    work: BatchContext,
    command: Command,
    arguments: CommandArguments | RefusedArguments,
    deadline_ms: int,
) -> None:
    outcome = _outcome(work, command, arguments)
    if outcome.status == ACCEPTED:
        # it goes on to its end, however long that is
        is_sure = command.kind == "create_namespace" or AFTER in outcome.result
        begin_wait(work, command, outcome, 0 if is_sure else deadline_ms)
    else:
        write_outcome(work, command, outcome)


def _is_busy(work: BatchContext, arguments: CommandArguments | RefusedArguments) -> bool:
    """True if the command must wait for the operation in progress on its bundle.

    All commands but an override wait for a split or merge. An assignment also waits for an unload
    without a destination, and a split for any transition. A command that follows an unplaced
    assignment or split of its bundle waits for the end of the batch's commands.
    """
    if isinstance(arguments, UnloadNamespace | SplitBundle) and arguments.namespace:
        is_wanted = arguments.namespace in work.unplaced_splits
        return is_wanted or has_split_under_way(work, arguments.namespace)
    bundle = getattr(arguments, "bundle", "")
    if bundle and bundle in work.unplaced_bundles and not _is_to_be_assigned(arguments):
        return True
    record = work.ledger.record(bundle) if bundle else None
    if record is None or isinstance(arguments, OverrideBundle):
        return False
    is_freed = record.state is State.RELEASING and not record.destination
    wants_it_free = isinstance(arguments, AssignBundle)
    wants_it_split = isinstance(arguments, SplitBundle) and record.state in IN_FLIGHT
    return record.state in RESHAPING or (is_freed and wants_it_free) or wants_it_split


def _outcome(
    work: BatchContext, command: Command, arguments: CommandArguments | RefusedArguments
) -> Outcome:
    if isinstance(arguments, RefusedArguments):
        return refuse(arguments.detail)
    if len(work.waiting) >= MAX_WAITING:
        return refuse(f"{MAX_WAITING} commands are under way; send it again when some have ended")
    if is_external(work) and arguments.about.is_of_authority:
        return refuse(_ELSEWHERE.format(kind=command.kind))
    return HANDLERS[command.kind](work, command, arguments)
