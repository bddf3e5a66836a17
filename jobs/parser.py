"""How words on a command line are taken: argparse, which says what it can't take in three parts.

Decides how a misuse is worded: what is wrong, why, and what to write instead, with the word that
was probably meant. Every process and verb reads its words with it. Source: ours.
"""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from jobs.console import Exit, MisuseError, complain

_CHOICE = re.compile(r"invalid choice: (?P<word>.+?) \(choose from (?P<known>.*)\)$")
_MISSING = "the following arguments are required: "
_OPTION = re.compile(r"--[a-z][a-z-]*")
_EXAMPLE = "example: "
_LIKE_ENOUGH = 0.7


class Parser(argparse.ArgumentParser):
    """Reads a command line; what can't be taken is told as an error in three parts, exit code 2."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments; ends the process with a message for those that can't be taken."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            return super().parse_args(words, namespace)
        except MisuseError as error:
            complain(error, as_json="--json" in words)
            raise SystemExit(Exit.MISUSE) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The same, of one verb: whoever is asked for less knows best what may stand there."""
        found, extras = super().parse_known_args(args, namespace)
        if extras:
            raise self._too_much(extras)
        return found, extras

    def error(self, message: str) -> NoReturn:
        """Raise MisuseError where argparse would write its usage and end."""
        raise self._misuse(message)

    def _misuse(self, message: str) -> MisuseError:
        if message.startswith(_MISSING):
            names = message.removeprefix(_MISSING)
            verb = "are" if "," in names else "is"
            return MisuseError(
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
            return MisuseError(
                what, why=f"there are {', '.join(known)}", next_step=self._meant(word, known)
            )
        if rest:
            return MisuseError(
                f"{place} can't be taken like this",
                why=rest,
                next_step=f"{self._help()}{self._example()}",
            )
        return MisuseError(message, why=f"it is written as {self._usage()}", next_step=self._help())

    def _too_much(self, extras: Sequence[str]) -> MisuseError:
        options = _OPTION.findall(self._usage())
        unknown = [word for word in extras if word.startswith("-")]
        if unknown:
            word = unknown[0].partition("=")[0]
            return MisuseError(
                f"`{self.prog}` has no option {word}",
                why=f"it has {', '.join(options)}",
                next_step=self._meant(word, options),
            )
        return MisuseError(
            f"{' '.join(extras)!r} is too much for `{self.prog}`",
            why=f"it is written as {self._usage()}",
            next_step=f"leave it out, or put words with blanks in quotes{self._example()}",
        )

    def _meant(self, word: str, known: Iterable[str]) -> str:
        near = difflib.get_close_matches(word, list(known), n=1, cutoff=_LIKE_ENOUGH)
        return f"did you mean {near[0]}? {self._help()}" if near else self._help()

    def _help(self) -> str:
        return f"`{self.prog} --help` says more"

    def _usage(self) -> str:
        return " ".join(self.format_usage().removeprefix("usage: ").split())

    def _example(self) -> str:
        """The example that the help shows, if there is one."""
        first = (self.epilog or "").partition("\n")[0]
        return f"; for {first}" if first.startswith(_EXAMPLE) else ""


def whole_number(word: str, most: float = math.inf) -> int:
    """For argparse: a whole number from 1; raises ArgumentTypeError for anything else."""
    if not word.isdecimal() or not 1 <= int(word) <= most:
        upto = "" if most == math.inf else f" to {most}"
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number from 1{upto}")
    return int(word)
