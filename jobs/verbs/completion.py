"""Write what lets a shell complete the verbs, options and choices of `ballast`, or its man page.

bash: ballast completion bash > /etc/bash_completion.d/ballast
zsh:  ballast completion zsh > "${fpath[1]}/_ballast"
man:  ballast completion man > /usr/local/share/man/man1/ballast.1
"""

import argparse
import importlib
import re

import shtab
from argparse_manpage.manpage import Manpage

from jobs import VERSION
from jobs.console import Exit, add_json_option, answer
from jobs.parser import Parser
from jobs.verbs import VERBS

SHELLS = ("bash", "zsh", "tcsh")
MAN = "man"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For which shell."""
    parser.add_argument("shell", choices=(*SHELLS, MAN), help="for which shell; man: the man page")


def run(args: argparse.Namespace) -> int:
    """Write the script or the page; both are made from what the verbs declare."""
    whole = _whole_parser()
    script = _man_page(whole) if args.shell == MAN else shtab.complete(whole, args.shell)
    answer(args, {"shell": args.shell, "script": script}, script.rstrip("\n").split("\n"))
    return Exit.DONE


def _man_page(whole: Parser) -> str:
    """In roff, for section 1."""
    page = Manpage(whole)
    page.description = "balance the load of a cluster of brokers"
    page.source, page.manual = f"ballast {VERSION}", "Ballast"
    # a line of text that begins with a suffix (.csv) is no request; roff's own have two letters
    return re.sub(r"^\.(?=\w{3})", r"\&.", str(page), flags=re.MULTILINE)


def _whole_parser() -> Parser:
    """All verbs in one parser; `ballast` itself imports only the verb that was asked for."""
    whole = Parser(prog="ballast")
    verbs = whole.add_subparsers(metavar="VERB")
    for name, verb in sorted(VERBS.items()):
        module = importlib.import_module(verb.module)
        parser = verbs.add_parser(name, help=verb.summary, description=module.__doc__)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)
        add_json_option(parser)
    return whole
