"""The command `ballast`: finds and runs the verb, turns errors into exit codes.

The verbs are in `jobs.verbs.VERBS`. Exit codes: 0 done, 1 failed, 2 misuse, 3 unknown (no answer
in time).
"""

import argparse
import importlib
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from jobs import VERSION
from jobs.console import (
    CommandError,
    Exit,
    MisuseError,
    OutputError,
    add_json_option,
    cause_message,
    complain,
    first_line,
    json_line,
    note,
    say,
)
from jobs.extras import missing_extra
from jobs.parser import Parser
from jobs.verbs import VERBS, Verb

_JSON, _HELP = "--json", "help"
_TABLE_MODULES = ("_internal", "deltalake", "pyarrow", "pyo3_runtime")
"""Modules of errors that delta-rs and Arrow raise; importing them takes longer than many verbs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    sys.excepthook = _write_traceback
    arguments = list(sys.argv[1:] if argv is None else argv)
    before = next((at for at, one in enumerate(arguments) if one != _JSON), 0)
    arguments = [*arguments[before:], *arguments[:before]]  # --json may precede the verb
    if arguments[:1] in ([_HELP], ["-h"]) and len(arguments) > 1:
        arguments = [*arguments[1:], "--help"]
    verb = VERBS.get(arguments[0]) if arguments else None
    try:
        if verb is None:
            return _without_verb(arguments)
        return _run_verb(arguments[0], verb, arguments[1:])
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):  # the reader (head, less) has seen enough
            sys.stderr.close()
            return Exit.DONE
        unwritten = CommandError(
            "the output can't be written",
            why=cause_message(error),
            next_step="make room where it goes, or send it elsewhere",
        )
        complain(unwritten, as_json=_JSON in arguments)
        return Exit.FAILED


def _run_verb(name: str, verb: Verb, arguments: Sequence[str]) -> int:
    try:
        args = verb_parser(name, verb).parse_args(arguments)
    except SystemExit as end:
        return int(end.code or Exit.DONE)
    except CommandError as error:
        complain(error, as_json=_JSON in arguments)
        return error.exit_code
    args.words = arguments
    return _carry_out(verb, args)


def _without_verb(arguments: Sequence[str]) -> int:
    if arguments in ([], [_HELP]):
        arguments = ["--help"]
    if arguments[0] in ("--version", "-V"):
        say(json_line({"ballast": VERSION}) if _JSON in arguments else f"ballast {VERSION}")
        return Exit.DONE
    # imported only here, so that no valid verb waits for it
    if phrases := importlib.import_module("jobs.operating.commanding").phrases_with(arguments[0]):
        error = MisuseError(
            f"there is no verb {arguments[0]!r}",
            why="an action follows its subject",
            next_step=f"did you mean {' or '.join(f'`ballast {phrase}`' for phrase in phrases)}?",
        )
        complain(error, as_json=_JSON in arguments)
        return error.exit_code
    parser = Parser(
        prog="ballast",
        description="Balance the load of a cluster of brokers: who owns which bundle, and why.",
        epilog="ballast help VERB says more about one verb, ballast --version which Ballast it is.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, verb in sorted(VERBS.items()):
        verbs.add_parser(name, help=verb.summary, add_help=False)
    try:
        parser.parse_args(arguments)
    except SystemExit as end:  # --help ends with 0 and everything else with 2
        return int(end.code or Exit.DONE)
    return Exit.MISUSE


def _write_traceback(*error: Any) -> None:
    """Write a traceback with terminal control characters escaped."""
    note(*"".join(traceback.format_exception(*error)).rstrip().split("\n"))


def verb_parser(name: str, verb: Verb) -> Parser:
    """Build the parser of a verb's arguments. Raises CommandError without its extra."""
    try:
        module = importlib.import_module(verb.module)
    except ModuleNotFoundError as error:
        raise missing_extra(name, error.name or "") or error from None
    parser = Parser(prog=f"ballast {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    add_json_option(parser)
    return parser


def _carry_out(verb: Verb, args: argparse.Namespace) -> int:
    try:
        return int(importlib.import_module(verb.module).run(args))
    except CommandError as error:
        complain(error, as_json=args.json)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BaseException as error:
        if not type(error).__module__.startswith(_TABLE_MODULES):
            raise
        unreadable = CommandError(  # delta-rs errors and panics without a damaged file
            "the tables can't be read",
            why=f"{type(error).__name__}: {first_line(error)}",
            next_step="`ballast doctor` looks at each table; put them back from a backup if one is "
            "damaged (docs/operate.md, Restore)",
        )
        complain(unreadable, as_json=args.json)
        return Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
