"""Parser of command lines: argparse with three-part error messages.

A misuse is answered with the fault, the cause, and the correct form with the word that was probably
meant. All processes and verbs use it. Arguments are values, which verbs share.
"""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from operator import methodcaller
from typing import Any, NoReturn, TypeAlias

from jobs.console import CommandError, Exit, MisuseError, add_json_option, complain

_CHOICE = re.compile(r"invalid choice: (?P<word>.+?) \(choose from (?P<known>.*)\)$")
_MISSING = "the following arguments are required: "
_OPTION = re.compile(r"--[a-z][a-z-]*")
_EXAMPLE = "example: "
_LIKE_ENOUGH = 0.7
_FEW = 8  # as many choices are listed even where one was probably meant


class Parser(argparse.ArgumentParser):
    """Parser of a command line; misuse is an error in three parts, exit code 2."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments; ends the process with a message for those that can't be taken."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            return super().parse_args(words, namespace)
        except MisuseError as error:
            complain(error, as_json="--json" in words)
            raise SystemExit(Exit.MISUSE) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse one verb's arguments; what is left over is a misuse of this verb.

        Its own parser knows its options, so the message names them.
        """
        found, extras = super().parse_known_args(args, namespace)
        if not extras:
            return found, extras
        unknown = [word for word in extras if word.startswith("-")]
        if unknown:
            word, options = unknown[0].partition("=")[0], _OPTION.findall(self._usage())
            raise MisuseError(
                f"`{self.prog}` has no option {word}",
                why=_choices(word, options),
                next_step=self._meant(word, options),
            )
        raise MisuseError(
            f"{' '.join(extras)!r} is too much for `{self.prog}`",
            why=f"it is written as {self._usage()}",
            next_step=f"leave it out, or put words with blanks in quotes{self._example()}",
        )

    def _match_arguments_partial(self, actions: Any, arg_strings_pattern: str) -> list[int]:
        """As argparse does, but a word that may be left out may also stand behind options.

        Python before 3.13 takes it for left out at the first option (python/cpython#59317).
        """
        counts: list[int] = super()._match_arguments_partial(actions, arg_strings_pattern)
        while counts and not counts[-1] and "O" in arg_strings_pattern:
            counts.pop()
        return counts

    def error(self, message: str) -> NoReturn:
        """Raise MisuseError where argparse would write its usage and end."""
        if message.startswith(_MISSING):
            names = message.removeprefix(_MISSING)
            verb = "are" if "," in names else "is"
            raise MisuseError(
                f"{names} {verb} missing",
                why=f"`{self.prog}` can't do without",
                next_step=f"{self._help()}{self._example()}",
            )
        place, _, rest = message.removeprefix("argument ").partition(": ")
        choice = _CHOICE.search(message)
        if choice is not None:
            word, known = choice["word"].strip("'"), re.findall(r"[^\s,']+", choice["known"])
            what = f"there is no {place.lower()} {word!r}"
            if place.startswith("-"):
                what = f"{word!r} is no value of {place}"
            raise MisuseError(what, why=_choices(word, known), next_step=self._meant(word, known))
        if rest:
            raise MisuseError(
                f"{place} can't be taken like this",
                why=rest,
                next_step=f"{self._help()}{self._example()}",
            )
        raise MisuseError(message, why=f"it is written as {self._usage()}", next_step=self._help())

    def _meant(self, word: str, known: Iterable[str]) -> str:
        near = _near(word, known)
        return f"did you mean {near}? {self._help()}" if near else self._help()

    def _help(self) -> str:
        return f"`{self.prog} --help` says more"

    def _usage(self) -> str:
        return " ".join(self.format_usage().removeprefix("usage: ").split())

    def _example(self) -> str:
        """The example that the help shows, if there is one."""
        first = (self.epilog or "").partition("\n")[0]
        return f"; for {first}" if first.startswith(_EXAMPLE) else ""


def _choices(word: str, known: Sequence[str]) -> str:
    """Return the known words, or only their number if many and one is similar."""
    if not known:
        return "there are none"
    if len(known) > _FEW and _near(word, known):
        return f"it is none of the {len(known)} that there are"
    return f"there are {', '.join(known)}"


def _near(word: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(word, list(known), 1, _LIKE_ENOUGH)), "")


Argument: TypeAlias = Callable[[Any], object]
"""Adds an argument, or several, to a parser or a group."""

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Carries out a verb or an action; returns the exit code."""


def argument(*names: str, **options: Any) -> Argument:
    """An argument as `add_argument` of argparse takes it."""
    return methodcaller("add_argument", *names, **options)


def arguments(
    *some: Argument, run: Run | None = None, about: str = "", example: str = ""
) -> Argument:
    """Several arguments.

    run: what `carry_out` calls. about: the description. example: a command line below the help.
    """

    def add(parser: Any) -> None:
        parser.set_defaults(**({"carry_out": run} if run else {}))
        parser.description = about or parser.description
        if example:
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
            parser.epilog = f"{_EXAMPLE}{example}"
        add_all(parser, some)

    return add


def add_all(to: Any, some: Iterable[Argument]) -> None:
    """Add arguments to a parser or a group."""
    for one in some:
        one(to)


def group(title: str, *some: Argument) -> Argument:
    """Arguments under a title in the help."""
    return lambda to: add_all(to.add_argument_group(title), some)


def either(*some: Argument) -> Argument:
    """Arguments of which one at most may be given."""
    return lambda to: add_all(to.add_mutually_exclusive_group(), some)


def action(name: str, summary: str, run: Run, *some: Argument, about: str = "") -> Argument:
    """An action of a verb. about: its description, "" = the summary."""

    def add(to: Any) -> None:
        parser = to.add_parser(name, help=summary, description=about or summary)
        parser.set_defaults(carry_out=run)
        add_json_option(parser, default=argparse.SUPPRESS)
        add_all(parser, some)

    return add


def actions(*some: Argument, **about: Any) -> Argument:
    """The actions of a verb, one of which must be given.

    about: as `add_subparsers` takes it.
    """
    usual = {"title": "what to do", "dest": "action", "metavar": "ACTION", "required": True}
    return lambda to: add_all(to.add_subparsers(**usual | about), some)


def by_verb(**verbs: Argument) -> Argument:
    """Add the arguments of the verb that the parser's program name ends with."""
    return lambda parser: verbs[parser.prog.split()[-1].replace("-", "_")](parser)


def run_process(parser: argparse.ArgumentParser, run: Run, argv: Sequence[str] | None) -> int:
    """Parse the command line of a process and run it; return the exit code."""
    args = parser.parse_args(argv)
    try:
        return run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)


def carry_out(args: argparse.Namespace) -> int:
    """Run the action that was given."""
    return int(args.carry_out(args))


def add_settings_options(
    to: argparse._ActionsContainer, help_of_set: str = "section.name=value (repeat)"
) -> None:
    """Add --conf (formerly --config) and --set, the options for settings."""
    to.add_argument(
        "--conf",
        "--config",
        dest="config",
        action="append",
        default=[],
        metavar="NAME",
        help="overlay, by name or path (repeat)",
    )
    to.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help_of_set)


def add_spark_option(to: argparse._ActionsContainer) -> None:
    """Add the option for Spark's own settings: args.spark is a list of pairs."""
    to.add_argument(
        "--spark",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a setting of Spark (repeat)",
    )


def _pair(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"{word!r} is not KEY=VALUE")
    return key, value


def whole_number(word: str, most: float = math.inf, least: int = 1) -> int:
    """For argparse: a whole number from least to most.

    Raises ArgumentTypeError for anything else.
    """
    if not word.isdecimal() or not least <= int(word) <= most:
        upto = "" if most == math.inf else f" to {most}"
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number from {least}{upto}")
    return int(word)


def decimal_number(word: str, least: float = 0.0) -> float:
    """For argparse: a finite number of at least `least`; raises ArgumentTypeError."""
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{word!r} is no number from {least:g}")
    return number


positive_number = partial(decimal_number, least=0.001)
"""For argparse: a finite number, not 0."""
port_number = partial(whole_number, most=65_535, least=0)
"""For argparse: a port; 0 = any free one."""


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 36_500 * _UNITS_MS["d"]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of 500ms, 30s, 5m, 2h, 1d, or seconds without a unit.

    Raises argparse.ArgumentTypeError, which argparse shows.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write it as 30s, 5m, 2h or 1d")
    length_ms = float(found[1]) * _UNITS_MS[found[2] or "s"]
    if length_ms > _LONGEST_MS:
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r} is too long for a duration; write at most 36500d"
        )
    return round(length_ms)


def parse_instant_ms(text: str, now_ms: int) -> int:
    """Parse an ISO time, or a span ago (5m), as ms since 1970.

    Without a zone it is UTC. As messages show it, too: `2026-11-21 03:00:00 UTC`. Raises
    argparse.ArgumentTypeError.
    """
    if _DURATION.fullmatch(text.strip()) and not text.strip().isdigit():
        return now_ms - parse_duration_ms(text)
    try:
        instant = datetime.fromisoformat(text.strip().replace(" UTC", "Z").replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write 2026-11-21T03:00:00Z, or 5m for five minutes ago"
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return round(instant.timestamp() * 1_000)


def option_with_default(
    name: str, default: str, about: str, reads: Any = whole_number, unit: str = "N"
) -> Argument:
    """Return an option with a default, which its help says."""
    about = f"{about} (default {default})"
    return argument(f"--{name}", type=reads, default=default, metavar=unit, help=about)
