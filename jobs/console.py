"""How a command answers: text for people, one JSON document for programs, errors in three parts.

Decides nothing else. Every verb writes through this module, so `--json` means the same everywhere.
Source: ours.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Any


class Exit(IntEnum):
    """What the shell learns."""

    DONE = 0
    FAILED = 1
    MISUSE = 2
    UNKNOWN = 3
    CUT = 130


class CommandError(Exception):
    """Something went wrong that the user can act on.

    what: what happened; why: the cause, as far as it is known; next_step: what to do now.
    """

    exit_code = Exit.FAILED

    def __init__(self, what: str, *, why: str, next_step: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, out of another process."""
        return partial(type(self), self.what, why=self.why, next_step=self.next_step), ()

    def __str__(self) -> str:
        """Three lines, in the order in which a reader needs them."""
        return f"error: {self.what}\n  why: {self.why}\n next: {self.next_step}"


class MisuseError(CommandError):
    """The command was called in a way that can't be carried out, whatever the system's state."""

    exit_code = Exit.MISUSE


class UnknownError(CommandError):
    """Nobody knows whether it was done: an answer did not come in time."""

    exit_code = Exit.UNKNOWN


def cause_words(cause: Exception) -> str:
    """Why something failed, in words for an error: an OSError without its number."""
    return str((isinstance(cause, OSError) and cause.strerror) or cause)


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its name where it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__


def in_one_line(error: BaseException) -> str:
    """All that an error says, for a log or a page: of a CommandError its three parts."""
    if isinstance(error, CommandError):
        return " ".join(f"{error.what}: {error.why}; next: {error.next_step}".split())
    return f"{type(error).__name__}: {first_line(error)}"


def say(text: str) -> None:
    """Write one line to standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Write one line to standard error, at once: progress and warnings, never results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def agree(otherwise: str) -> None:
    """Ask the person at the terminal whether to go on; returns if so.

    otherwise: what to do next who does not agree. Raises MisuseError where nobody can be asked,
    CommandError where the answer is not yes.
    """
    if not sys.stdin.isatty():
        raise MisuseError(
            "nobody can be asked", why="this is no terminal", next_step="add --yes if you agree"
        )
    note("go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done", why="you did not agree", next_step=otherwise)


def add_json_option(parser: argparse.ArgumentParser, *, default: Any = False) -> None:
    """The option that every verb has, and every verb within a verb."""
    parser.add_argument(
        "--json", action="store_true", default=default, help="answer with one line of JSON"
    )


def answer(args: argparse.Namespace, value: Any, text: str) -> None:
    """Write a verb's result: `value` as one line of JSON with --json, otherwise `text`."""
    say(json.dumps(value, sort_keys=True) if args.json else text)


def complain(error: CommandError, *, as_json: bool) -> None:
    """Write an error to standard error, in three parts and without a stack trace."""
    note(json.dumps(_parts(error), sort_keys=True) if as_json else str(error))


def _parts(error: CommandError) -> Mapping[str, str]:
    return {"error": error.what, "why": error.why, "next": error.next_step}
