"""Write what lets a shell complete the words of `ballast`, or its man page.

Names of brokers, bundles, strategies and settings come from `ballast completion --names brokers`,
which asks the cluster that $BALLAST_URL, $BALLAST_TABLES, a context or the local run names.

bash: ballast completion bash > /etc/bash_completion.d/ballast
zsh:  ballast completion zsh > "${fpath[1]}/_ballast"
fish: ballast completion fish > ~/.config/fish/completions/ballast.fish
man:  ballast completion man > /usr/local/share/man/man1/ballast.1
"""

import argparse
import importlib
import re

import shtab
from argparse_manpage.manpage import Manpage

from jobs import VERSION
from jobs.console import CommandError, Exit, MisuseError, add_json_option, answer
from jobs.operating.answers import answers_of
from jobs.operating.connection_options import STACK_OPTIONS, connection_options
from jobs.operating.simulations import RECOMMENDED, STRATEGIES
from jobs.parser import Parser, argument, arguments
from jobs.verbs import VERBS
from lbcore.config.tree import SETTINGS

SHELLS = ("bash", "zsh", "tcsh", "fish")
MAN = "man"
NAMES = ("brokers", "bundles", "strategies", "settings")
_NAMED_BY = {
    "broker": "brokers",
    "brokers": "brokers",
    "destination": "brokers",
    "bundle": "bundles",
    "bundles": "bundles",
    "strategy": "strategies",
    "compare": "strategies",
    "set": "settings",
    "keys": "settings",
    "values": "settings",
}
"""Argument → what its words name."""


add_arguments = arguments(
    argument("shell", nargs="?", choices=(*SHELLS, MAN), help="for which shell; man: the man page"),
    argument("--names", choices=NAMES, help="write the names that there are instead"),
)


def run(args: argparse.Namespace) -> int:
    """Write the script or the page; both are made from what the verbs declare."""
    if args.names:
        names = names_of(args.names)
        answer(args, names, names)
        return Exit.DONE
    if args.shell is None:
        raise MisuseError(
            "shell is missing",
            why="each shell has a script of its own",
            next_step=f"name one of {', '.join((*SHELLS, MAN))}, or --names",
        )
    whole = _whole_parser()
    _complete_names(whole)
    script = _man_page(whole) if args.shell == MAN else shtab.complete(whole, args.shell)
    answer(args, {"shell": args.shell, "script": script}, script.rstrip("\n").split("\n"))
    return Exit.DONE


def names_of(what: str) -> list[str]:
    """Return the names of one of NAMES in order; none where there are no tables."""
    if what == "strategies":
        return sorted({*STRATEGIES, *RECOMMENDED})
    if what == "settings":
        return sorted(SETTINGS)
    parser = Parser()
    STACK_OPTIONS(parser)
    try:
        answers = answers_of(connection_options(parser.parse_args([])))
        if what == "brokers":
            return sorted(answers.names("broker"))
        return [str(row["bundle"]) for row in answers.ownership("", "")[1]]
    except CommandError:
        return []


def _complete_names(parser: argparse.ArgumentParser) -> None:
    """Add completion of names to the verbs' parsers, too."""
    for action in parser._actions:  # noqa: SLF001 argparse has no other list
        what = _NAMED_BY.get(action.dest.removeprefix("argument_"))
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 nor another name
            for inner in action.choices.values():
                _complete_names(inner)
        elif what and not action.choices and action.nargs != 0:
            command = f"ballast completion --names {what} 2>/dev/null"
            action.complete = shtab.cmd(command)  # type: ignore[attr-defined]


def _man_page(whole: Parser) -> str:
    """In roff, for section 1."""
    page = Manpage(whole)
    page.description = "balance the load of a cluster of brokers"
    page.source, page.manual = f"ballast {VERSION}", "Ballast"
    # a line of text that begins with a suffix (.csv) is no request; roff's own have two letters
    return re.sub(r"^\.(?=\w{3})", r"\&.", str(page), flags=re.MULTILINE)


def _whole_parser() -> Parser:
    """Return all verbs in one parser.

    `ballast` itself imports only the verb that was asked for.
    """
    whole = Parser(prog="ballast")
    verbs = whole.add_subparsers(metavar="VERB")
    for name, verb in sorted(VERBS.items()):
        module = importlib.import_module(verb.module)
        parser = verbs.add_parser(name, help=verb.summary, description=module.__doc__)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)
        add_json_option(parser)
    return whole
