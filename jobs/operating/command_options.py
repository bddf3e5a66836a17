"""The command line of a command, made from the dataclass that declares it.

Decides which argument is a position and which an option: what must be given is a position, in the
order of its declaration; what has a default is an option of the same name with dashes; a time in
`_ms` is written as a duration, without the `_ms`. Values are read by `lbcore.wire.commands` alone.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any, get_origin, get_type_hints

from jobs.console import MisuseError, add_json_option
from jobs.operating.connection_options import add_stack_arguments
from jobs.operating.text_format import parse_duration_ms
from lbcore.model.times import duration
from lbcore.wire.arguments import VERB_TIMEOUT_MS, CommandArguments, CommandVerb
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments

EXIT_CODES = (
    "exit codes: 0 done (with --no-wait: sent), 1 refused or failed, 2 misuse, 3 nobody knows: no"
    " outcome within --timeout"
)
_PREFIX = "argument_"


def commands_of(verb: str) -> Mapping[str, CommandVerb]:
    """Kind → its words, of all that the verb sends."""
    spoken = {kind: declaring.about.verb for kind, declaring in KINDS.items()}
    return {kind: one for kind, one in spoken.items() if one and one.words.split()[0] == verb}


def phrases_with(action: str) -> Sequence[str]:
    """Return the sorted phrases whose second word is the action.

    Example: "drain" gives ["broker drain"].
    """
    spoken = (declaring.about.verb for declaring in KINDS.values())
    return sorted(one.words for one in spoken if one and one.words.split()[1:] == [action])


def add_verb(parser: argparse.ArgumentParser) -> Any:
    """Add what the verb of a parser takes; return where actions of its own are added.

    A verb has an action for each command, or one command with options for others.
    """
    commands = commands_of(parser.prog.split()[1])
    actions = [kind for kind, verb in commands.items() if len(verb.words.split()) > 1]
    if len(actions) == len(commands):
        found = command_actions(parser)
        add_commands(found, commands)
        return found
    (plain,) = commands.keys() - actions
    _add_command(parser, plain, commands[plain])
    for kind in actions:
        flag = commands[kind].words.split()[1]
        parser.add_argument(
            flag, dest="command_kind", action="store_const", const=kind, help=_summary(kind)
        )
        parser.epilog = f"example: {parser.prog} {flag}\n{parser.epilog}"
    return None


def add_commands(actions: Any, commands: Mapping[str, CommandVerb]) -> None:
    """A parser for each command. actions: from `command_actions`."""
    for kind, spoken in commands.items():
        name = spoken.words.split()[1]
        parser = actions.add_parser(name, help=_summary(kind), description=_summary(kind))
        add_json_option(parser, default=argparse.SUPPRESS)
        _add_command(parser, kind, spoken)


def _summary(kind: str) -> str:
    return (KINDS[kind].__doc__ or "").strip().splitlines()[0]


def command_actions(parser: argparse.ArgumentParser) -> Any:
    """Add the subparsers of a verb's actions."""
    return parser.add_subparsers(title="what to do", metavar="ACTION", dest="action", required=True)


def _add_command(parser: argparse.ArgumentParser, kind: str, verb: CommandVerb) -> None:
    """The arguments of one command, how to send it, and where."""
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
        add = _add_position if is_position else _add_option
        add(parser, declared, hints[declared.name])
    if kind == "reset_config":
        parser.add_argument("--all", action="store_true", help="all that commands have changed")
    add_sending(parser, verb.timeout_ms)
    add_stack_arguments(parser)


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


def _add_position(parser: argparse.ArgumentParser, declared: "Field[Any]", hint: Any) -> None:
    about = declared.metadata["argument"].doc
    name = declared.name
    options: dict[str, Any] = {"help": about, "metavar": name.upper()}
    if get_origin(hint) is not None and not _is_list(hint):
        options |= {"nargs": "+", "metavar": "KEY=VALUE"}
    elif _is_list(hint):
        options |= {"nargs": "*", "metavar": _singular(name).upper()}
    elif declared.default is not MISSING:
        options |= {"nargs": "?"}
    if hint is int:
        options["type"] = int
    parser.add_argument(f"{_PREFIX}{name}", **options)


def _singular(name: str) -> str:
    return re.sub("ies$|s$", lambda end: "y" if end.group() == "ies" else "", name)


def _add_option(parser: argparse.ArgumentParser, declared: "Field[Any]", hint: Any) -> None:
    name, is_time = declared.name, declared.name.endswith("_ms")
    flag = "--" + name.removesuffix("_ms").replace("_", "-")
    options: dict[str, Any] = {"help": declared.metadata["argument"].doc, "dest": _PREFIX + name}
    if hint is bool:
        options["action"] = "store_const"
        options["const"] = True
    elif _is_list(hint):
        options |= {"nargs": "+", "metavar": _singular(name).upper()}
        options["required"] = declared.default is MISSING
    elif is_time:
        options |= {"type": parse_duration_ms, "metavar": "DURATION"}
    elif hint in (int, float):
        options |= {"type": hint, "metavar": "N"}
    elif isinstance(hint, type) and issubclass(hint, Enum):
        options["choices"] = [member.value for member in hint]
    else:
        options["metavar"] = name.upper()
    parser.add_argument(flag, **options)


def add_sending(parser: argparse.ArgumentParser, timeout_ms: int = VERB_TIMEOUT_MS) -> None:
    """Add the options for sending a command and the timeout of the wait."""
    group = parser.add_argument_group("sending")
    group.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait until the command has ended (default), or only until Kafka has it",
    )
    group.add_argument(
        "--timeout",
        type=parse_duration_ms,
        default=timeout_ms,
        metavar="DURATION",
        dest="timeout_ms",
        help=f"how long at most, such as 30s or 5m (default {duration(timeout_ms)})",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="send nothing, say what would be done"
    )
    group.add_argument(
        "--command-id",
        default="",
        metavar="ID",
        help="an id of your own; the same id is never carried out twice",
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
