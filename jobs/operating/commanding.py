"""Commands at the command line: arguments, sending, report of the outcome.

Arguments come from the dataclass that declares a command: a required field is a positional
argument, one with a default an option, one in `_ms` a duration. `lbcore.wire.commands` checks the
values. Exit codes: 0 done or sent, 1 refused or failed, 3 nobody knows. With --dry-run nothing is
sent: the balancer's own code carries the command out on what the tables say.
"""

import argparse
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, replace
from enum import Enum
from functools import partial
from typing import Any, get_origin, get_type_hints

from jobs.adapters.kafka.command_client import CommandOutcome, NoOutcome, new_command
from jobs.console import (
    CommandError,
    Exit,
    MisuseError,
    UnknownError,
    answer,
    format_instant,
    note,
    three_parts,
)
from jobs.operating.answers import Answers, answers_of
from jobs.operating.connection_options import STACK_OPTIONS, connection_options
from jobs.operating.plans import Outlook, RehearsedCommand, dry_run_line
from jobs.parser import Argument, action, argument, group, parse_duration_ms
from lbcore.balancer.book import DONE
from lbcore.config.pipeline import Pipeline
from lbcore.explain.job_state import JobStatus, judge_job
from lbcore.foresight.rehearse import Rehearsal
from lbcore.model.times import duration, time_ago
from lbcore.wire.arguments import VERB_TIMEOUT_MS, CommandArguments, CommandVerb
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.messages import Command

EXIT_CODES = (
    "exit codes: 0 done (with --no-wait: sent), 1 refused or failed, 2 misuse, 3 nobody knows: no"
    " outcome within --timeout"
)
_PREFIX = "argument_"


def commands_of(verb: str) -> Mapping[str, CommandVerb]:
    """Return the commands that a verb sends, by kind."""
    spoken = {kind: declaring.spec.verb for kind, declaring in KINDS.items()}
    return {kind: one for kind, one in spoken.items() if one and one.words.split()[0] == verb}


def phrases_with(action: str) -> Sequence[str]:
    """Return the sorted phrases whose second word is the action.

    Example: "drain" gives ["broker drain"].
    """
    spoken = (declaring.spec.verb for declaring in KINDS.values())
    return sorted(one.words for one in spoken if one and one.words.split()[1:] == [action])


def command_actions(verb: str) -> list[Argument]:
    """An action for each command that the verb sends."""
    return [
        action(
            spoken.words.split()[1],
            _summary(kind),
            run_command,
            partial(_add_command, kind=kind, verb=spoken),
        )
        for kind, spoken in commands_of(verb).items()
    ]


def add_plain_command(parser: argparse.ArgumentParser) -> None:
    """Add the command of a verb without actions; its other commands are flags."""
    commands = commands_of(parser.prog.split()[1])
    for kind, spoken in sorted(commands.items(), key=lambda item: len(item[1].words.split())):
        _, *flags = spoken.words.split()
        if not flags:
            parser.set_defaults(carry_out=run_command)
            _add_command(parser, kind, spoken)
        for flag in flags:
            parser.add_argument(
                flag, dest="command_kind", action="store_const", const=kind, help=_summary(kind)
            )
            parser.epilog = f"example: {parser.prog} {flag}\n{parser.epilog}"


def _summary(kind: str) -> str:
    return (KINDS[kind].__doc__ or "").strip().splitlines()[0]


def _add_command(parser: argparse.ArgumentParser, kind: str, verb: CommandVerb) -> None:
    parser.set_defaults(command_kind=kind)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"example: {parser.prog} {verb.example}".rstrip() + f"\n{EXIT_CODES}"
    declaring = KINDS[kind]
    hints = get_type_hints(declaring)
    tuples = [f for f in fields(declaring) if _is_list(hints[f.name]) and f.default is MISSING]
    for declared in fields(declaring):
        is_position = declared.name in verb.optional or (
            declared.default is MISSING and not (len(tuples) > 1 and declared in tuples)
        )
        options = (_position if is_position else _option)(declared, hints[declared.name])
        about = declared.metadata["argument"].doc
        parser.add_argument(options.pop("name"), help=about, **options)
    if kind == "reset_config":
        parser.add_argument("--all", action="store_true", help="all that commands have changed")
    sending_options(verb.timeout_ms)(parser)
    STACK_OPTIONS(parser)


def read_command(args: argparse.Namespace) -> CommandArguments:
    """Return the given command. Raises MisuseError for unsuitable arguments."""
    kind: str = args.command_kind
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in vars(args).items()
        if name.startswith(_PREFIX) and value is not None
    }
    if kind == "set_config":
        given["values"] = _pairs(given["values"])
    if kind == "propose_plan":
        given["moves"] = _moves(given["moves"])
    if kind == "reset_config" and bool(given["keys"]) == args.all:
        raise MisuseError(
            "it is not clear what to reset",
            why="either keys must be named, or --all given",
            next_step="name the keys (`ballast config show` lists them), or give --all",
        )
    return arguments_of(kind, given)


def arguments_of(kind: str, given: Mapping[str, Any]) -> CommandArguments:
    """Return a command's arguments by kind. Raises MisuseError for unsuitable ones."""
    arguments = parse_arguments(kind, given)
    if isinstance(arguments, RefusedArguments):
        raise MisuseError(
            f"{kind} can't be sent like this",
            why=arguments.detail,
            next_step="correct the argument; --help shows them all with an example",
        )
    return arguments


def _position(declared: "Field[Any]", hint: Any) -> dict[str, Any]:
    name = declared.name
    options: dict[str, Any] = {"name": f"{_PREFIX}{name}", "metavar": name.upper()}
    if _is_list(hint):
        options |= {"nargs": "*", "metavar": _singular(name)}
    elif get_origin(hint) is not None:
        options |= {"nargs": "+", "metavar": "KEY=VALUE"}
    elif declared.default is not MISSING:
        options["nargs"] = "?"
    return options | ({"type": int} if hint is int else {})


def _singular(name: str) -> str:
    return re.sub("ies$|s$", lambda end: "y" if end.group() == "ies" else "", name).upper()


def _option(declared: "Field[Any]", hint: Any) -> dict[str, Any]:
    name, named = declared.name, declared.name.removesuffix("_ms").replace("_", "-")
    options: dict[str, Any] = {"name": f"--{named}", "dest": f"{_PREFIX}{name}"}
    if hint is bool:
        return {**options, "action": "store_const", "const": True}
    if _is_list(hint):
        is_required = declared.default is MISSING
        return {**options, "nargs": "+", "metavar": _singular(name), "required": is_required}
    if name.endswith("_ms"):
        return {**options, "type": parse_duration_ms, "metavar": "DURATION"}
    if hint in (int, float):
        return {**options, "type": hint, "metavar": "N"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {**options, "choices": [member.value for member in hint]}
    return {**options, "metavar": name.upper()}


def sending_options(timeout_ms: int = VERB_TIMEOUT_MS) -> Argument:
    """The options for sending a command. timeout_ms: default of the wait."""
    return group(
        "sending",
        argument(
            "--wait",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="wait until the command has ended (default), or only until Kafka has it",
        ),
        argument(
            "--timeout",
            type=parse_duration_ms,
            default=timeout_ms,
            metavar="DURATION",
            dest="timeout_ms",
            help=f"how long at most, such as 30s or 5m (default {duration(timeout_ms)})",
        ),
        argument("--dry-run", action="store_true", help="send nothing, say what would be done"),
        argument(
            "--command-id",
            default="",
            metavar="ID",
            help="an id of your own; the same id is never carried out twice",
        ),
    )


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is tuple


def _moves(words: Iterable[str]) -> Mapping[str, str]:
    """Bundle → broker, from words like acme/a/0x00000000_0x40000000=broker-2:8080."""
    pairs = [word.rpartition("=") for word in words]
    wrong = [broker for bundle, _, broker in pairs if not (bundle and broker)]
    if wrong:
        raise MisuseError(
            f"{wrong[0]!r} is no move",
            why="a move is written as bundle=broker",
            next_step="for example: acme/a/0x00000000_0x40000000=broker-2:8080",
        )
    return {bundle.strip(): broker.strip() for bundle, _, broker in pairs}


def _pairs(words: Iterable[str]) -> Mapping[str, str]:
    pairs = [word.partition("=") for word in words]
    wrong = [key for key, separator, _ in pairs if not (separator and key)]
    if wrong:
        raise MisuseError(
            f"{wrong[0]!r} is no assignment",
            why="a setting is written as section.name=value",
            next_step="for example: ballast config set shedding.is_shedding=false",
        )
    return {key.strip(): value for key, _, value in pairs}


_LISTED = 20
_FEW = 3
_INSTANTS_FROM_MS = 1_000_000_000_000
_NOT_NEWS = frozenset({"cluster", "command_id", "at_ms", "principal", "config_version"})
"""Columns that all rows written by a command have."""


def run_command(args: argparse.Namespace) -> int:
    """Execute the verb. Raises CommandError if the command was not sent.

    Raises UnknownError if it has no outcome within its timeout.
    """
    return send_command(args, read_command(args))


def send_command(args: argparse.Namespace, arguments: CommandArguments) -> int:
    """Send it as the options of `sending_options` say; raises as `run_command` does."""
    where = connection_options(args)
    answers = answers_of(where)
    command = new_command(
        answers.cluster, arguments, command_id=args.command_id, timeout_ms=args.timeout_ms
    )
    if args.dry_run:
        return _say_rehearsal(args, command, answers.rehearse(command))
    began_s = time.monotonic()
    progress = partial(_note_progress, answers, command)
    outcome = answers.carry_out(command, wait=args.wait, progress=progress)
    if outcome is None:
        value = {"command_id": command.command_id, "kind": command.kind, "status": "sent"}
        where_to_look = "what becomes of it is a row of the table commands"
        answer(args, value, f"sent {command.kind} as {command.command_id}; {where_to_look}")
        return Exit.DONE
    waited_ms = round((time.monotonic() - began_s) * 1_000)
    if isinstance(outcome, NoOutcome):
        config = where.config.for_cluster(answers.cluster)
        with suppress(CommandError):  # without the tables the files' settings count
            config = answers.settings_in_force(config)[0]
        raise _nobody_knows(command, replace(outcome, waited_ms=waited_ms), config.pipeline)
    return _say_outcome(args, command, outcome, waited_ms)


def _note_progress(
    answers: Answers,
    command: Command,
    waited_s: float,
    is_accepted: bool,  # noqa: FBT001 (as Answers has it)
) -> None:
    found = "accepted and under way" if is_accepted else "no answer yet"
    try:
        if is_accepted:
            drains = [
                json.loads(row["value"])
                for row in answers.policies()
                if row["kind"] == "drain" and row["command_id"] == command.command_id
            ]
            found += "".join(f", {one['left']} of {one['total']} bundles left" for one in drains)
        else:
            silent_ms = answers.status().writer_silent_ms
            found += f"; the job's last heartbeat was {time_ago(silent_ms)}"
    except CommandError as error:
        found += "" if is_accepted else f"; {error.what}: {error.why}"
    note(f"{waited_s:.0f} s: {found}")


def _nobody_knows(command: Command, outcome: NoOutcome, pipeline: Pipeline) -> UnknownError:
    silent_ms = outcome.writer_silent_ms
    job = judge_job(silent_ms, silent_ms, pipeline)
    if outcome.unread:
        why = f"the tables can't be read: {outcome.unread}"
        next_step = "make the tables readable"
    elif outcome.is_job_away(pipeline.heartbeat_commit_ms):
        why = f"the streaming job is away: its last heartbeat was {time_ago(silent_ms)}"
        next_step = "start the job; it carries the command out unless its time is over by then"
    elif outcome.accepted is None and job.word is JobStatus.LATE:
        why = job.why()
        next_step = "wait, and look at `ballast status`"
    elif outcome.accepted is not None:
        why = "the balancer has accepted it and it has not ended yet"
        next_step = "look at `ballast status`, or wait longer with --timeout"
    else:
        why = (
            f"the balancer has not answered, although its last heartbeat was {time_ago(silent_ms)}"
        )
        next_step = "read the job's log; rejected_reports has messages that can't be read"
    return UnknownError(
        f"no outcome of {command.kind} within {duration(outcome.waited_ms)}"
        f" (command {command.command_id})",
        why=why,
        next_step=f"{next_step}. Or repeat the verb with --command-id {command.command_id}: it is "
        "carried out at most once",
    )


def _say_outcome(
    args: argparse.Namespace, command: Command, outcome: CommandOutcome, waited_ms: int
) -> int:
    is_done = outcome.status == DONE
    known = {**command.arguments, **outcome.result}
    next_step = _next_step(command, outcome.status)
    if is_done:
        next_step = KINDS[command.kind].spec.afterwards.format_map(known)
    value = {
        "command_id": command.command_id,
        "kind": command.kind,
        "arguments": command.arguments,
        "status": outcome.status,
        "reason": outcome.reason,
        "result": outcome.result,
        "waited_ms": waited_ms,
        **({"next": next_step} if next_step else {}),
    }
    if is_done or args.json:
        head = f"{outcome.status} after {duration(waited_ms)}: {shown_command(command)}"
        next_lines = [f" next: {next_step}"] if next_step else []
        answer(args, value, [head, *_result_lines(outcome.result), *next_lines])
    else:
        what = f"{outcome.status}: {shown_command(command)}"
        note(*three_parts(what, outcome.reason, next_step))
    if is_done:
        return Exit.DONE
    return Exit.UNKNOWN if outcome.status == "timed_out" else Exit.FAILED


def _next_step(command: Command, status: str) -> str:
    """Return the advice for a command not carried out; the reason names the fault."""
    if status == "timed_out":
        more = "--deadline" if command.arguments.get("deadline_ms") else "--timeout"
        return f"`ballast status` says how the job is; ask again with more time: {more}"
    if status == "refused":
        return KINDS[command.kind].spec.when_refused
    named = [name for name in ("bundle", "broker") if command.arguments.get(name)]
    asked = f"`ballast explain {named[0]} {command.arguments[named[0]]}`" if named else ""
    return f"{asked or '`ballast status`'} says how it is now; then ask again"


def shown_command(command: Command) -> str:
    """Kind and arguments in one line."""
    shown = {
        name: f"({len(value)} of them)"
        if isinstance(value, Mapping) and len(value) > _FEW
        else _plain(value)
        for name, value in sorted(command.arguments.items())
    }
    return " ".join([command.kind, *(f"{name}={text}" for name, text in shown.items())])


def _result_lines(result: Mapping[str, Any]) -> Iterable[str]:
    return (f"  {_named(name, value)}" for name, value in sorted(result.items()))


def _named(name: str, value: Any) -> str:
    """A name and its value; instants and durations in words."""
    if not name.endswith("_ms") or not isinstance(value, int):
        return f"{name}: {_plain(value)}"
    text = format_instant(value) if value >= _INSTANTS_FROM_MS else duration(value)
    return f"{name.removesuffix('_ms')}: {text if value else 'none'}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _say_rehearsal(args: argparse.Namespace, command: Command, rehearsed: RehearsedCommand) -> int:
    found, age_ms, foresight = rehearsed.found, rehearsed.tables_age_ms, rehearsed.foresight
    value = {
        "dry_run": True,
        "kind": command.kind,
        "arguments": command.arguments,
        "status": found.status,
        "reason": found.reason,
        "result": found.result,
        "transitions": [dict(one) for one in found.transitions],
        "changes": {name: list(rows) for name, rows in found.rows.items()},
        "tables_age_ms": age_ms,
        **({} if foresight is None else {"foresight": foresight.to_json()}),
    }
    lines = _rehearsal_lines(command, found, age_ms)
    if foresight is not None:
        lines = Outlook(found=foresight, tables_age_ms=age_ms).lines()
    answer(args, value, lines)
    return Exit.DONE if found.is_possible else Exit.FAILED


def _rehearsal_lines(command: Command, found: Rehearsal, age_ms: int) -> Iterable[str]:
    yield dry_run_line(age_ms)
    yield f"{shown_command(command)} would be {found.status}"
    if found.reason:
        yield f"  why: {found.reason}"
    if not found.is_possible:
        yield f" next: {_next_step(command, found.status)}"
    yield from _result_lines(found.result)
    shown = found.transitions[:_LISTED]
    yield from (f"  {one['bundle']}: {one['from']} → {one['to']}" for one in shown)
    if len(found.transitions) > len(shown):
        yield f"  and {len(found.transitions) - len(shown)} bundles more"
    for name, rows in found.rows.items():
        for row in rows[:_LISTED]:
            words = (_named(key, row[key]) for key in sorted(row) if key not in _NOT_NEWS)
            yield f"  a row of {name}: {'; '.join(words)}"
