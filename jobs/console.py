"""Output of every command: lines for people, JSON for programs, three-part errors.

Every verb writes through this module, so `--json` means the same everywhere. Only here are terminal
control characters of foreign text escaped.
"""

import argparse
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from enum import IntEnum
from functools import partial
from typing import Any, TextIO

CAUSE_BREAK = "\n      "
"""Separator of several causes of one error: each gets a line of its own below "why"."""


class Exit(IntEnum):
    """Exit codes of the process."""

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
        """Pickle with the keyword arguments: errors cross processes."""
        return partial(type(self), self.what, why=self.why, next_step=self.next_step), ()

    def __str__(self) -> str:
        """Three lines, in the order in which a reader needs them."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return a line for each part, and for each further cause; all printable."""
        return three_parts(f"error: {self.what}", self.why, self.next_step)


class MisuseError(CommandError):
    """Misuse: a command that can't be carried out, whatever the system's state."""

    exit_code = Exit.MISUSE


class UnknownError(CommandError):
    """The outcome is unknown: no answer came in time."""

    exit_code = Exit.UNKNOWN


class OutputError(OSError):
    """Standard output takes no more: its reader is gone, or its disk is full."""


def cause_message(cause: Exception) -> str:
    """Return the cause of a failure as text: an OSError without its number."""
    return str((isinstance(cause, OSError) and cause.strerror) or cause)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; its class without a text."""
    return str(error).partition("\n")[0] or type(error).__name__


def three_parts(what: str, why: str, next_step: str) -> list[str]:
    """Return what happened, why, and what to do next as printable lines."""
    first, *others = why.split(CAUSE_BREAK)
    causes = [f"  why: {first}", *(f"      {other}" for other in others)]
    return [printable(line) for line in (what, *causes, f" next: {next_step}")]


def in_one_line(error: BaseException) -> str:
    """Return an error as one line, for a log or page; a CommandError with all parts."""
    if isinstance(error, CommandError):
        return " ".join(f"{error.what}: {error.why}; next: {error.next_step}".split())
    return f"{type(error).__name__}: {first_line(error)}"


def printable(text: str) -> str:
    r"""Return the text with all that a terminal would execute or hide as escapes.

    Control characters (\x1b), line breaks (\n), marks of direction (\u202e), characters without
    width and lone surrogates. A text that is printable stays the same, so it may be called again.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def format_instant(at_ms: int) -> str:
    """An instant in UTC, to the second: 2026-11-21T03:00:00Z."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1_000, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):  # before year 1 or after 9999
        return f"{at_ms} ms since 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def text_table(cells: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield a line a row; cells[0] is the head.

    right: indexes of the columns that end together.
    """
    if not cells:
        return
    rows = [[printable(cell) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        parts = (
            text.rjust(width) if at in right else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(parts).rstrip()


def json_line(value: Any, *, sort_keys: bool = True, default: Any = None) -> str:
    """Return a value as one line of harmless ASCII JSON; NaN becomes null."""
    try:
        line = json.dumps(value, sort_keys=sort_keys, default=default, allow_nan=False)
    except ValueError:
        line = json.dumps(_finite(value), sort_keys=sort_keys, default=default)
    return line.replace("\x7f", "\\u007f")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(*lines: str) -> None:
    """Write lines to standard output at once, line breaks within them escaped.

    Raises OutputError.
    """
    try:
        _write(sys.stdout, lines)
    except OSError as error:
        raise OutputError(*error.args) from error


def is_terminal() -> bool:
    """Return True if standard output is open and a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def note(*lines: str) -> None:
    """Write lines to standard error, at once: progress and warnings, never results.

    What nobody can read is dropped: the command goes on, and its exit code says how it ended.
    """
    with suppress(OSError):
        _write(sys.stderr, lines)


def _write(stream: TextIO | None, lines: Iterable[str]) -> None:
    if stream is None:  # it was closed before the start; `print` writes nothing then, either
        return
    text = "".join(f"{printable(line)}\n" for line in lines)
    try:
        stream.write(text)
    except UnicodeEncodeError:  # a terminal that does not know all characters
        stream.write(text.encode("ascii", "backslashreplace").decode())
    stream.flush()


def require_consent(otherwise: str) -> None:
    """Ask the person at the terminal whether to go on; return if so.

    otherwise: next step of a user who does not agree. Raises MisuseError without a terminal,
    CommandError if the answer is not yes.
    """
    if not sys.stdin.isatty():
        raise MisuseError(
            "nobody can be asked", why="this is no terminal", next_step="add --yes if you agree"
        )
    note("go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done", why="you did not agree", next_step=otherwise)


def add_json_option(parser: argparse.ArgumentParser, *, default: Any = False) -> None:
    """Add the option --json of every verb and action."""
    parser.add_argument(
        "--json", action="store_true", default=default, help="answer with one line of JSON"
    )


def answer(args: argparse.Namespace, value: Any, text: str | Iterable[str]) -> None:
    """Write a verb's result: `value` as one line of JSON with --json, else `text`.

    text: a line, or lines. A line break within a line is written as an escape.
    """
    if args.json:
        say(json_line(value))
    else:
        say(*([text] if isinstance(text, str) else text))


def complain(error: CommandError, *, as_json: bool) -> None:
    """Write an error to standard error, in three parts and without a stack trace."""
    parts = {"error": error.what, "why": error.why, "next": error.next_step}
    note(*([json_line(parts)] if as_json else error.lines()))
