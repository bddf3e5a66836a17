"""Write what lets a shell complete the verbs, options and choices of `ballast`.

bash: ballast completion bash > /etc/bash_completion.d/ballast
zsh:  ballast completion zsh > "${fpath[1]}/_ballast"
"""

import argparse
import importlib

import shtab

from jobs.console import Exit, add_json_option, answer
from jobs.parser import Parser
from jobs.verbs import VERBS

SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For which shell."""
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Write the script; it is made from what the verbs declare."""
    script = shtab.complete(_whole_parser(), args.shell)
    answer(args, {"shell": args.shell, "script": script}, script)
    return Exit.DONE


def _whole_parser() -> Parser:
    """All verbs in one parser; `ballast` itself imports only the verb that was asked for."""
    whole = Parser(prog="ballast")
    verbs = whole.add_subparsers(metavar="VERB")
    for name, verb in sorted(VERBS.items()):
        parser = verbs.add_parser(name, help=verb.summary)
        importlib.import_module(verb.module).add_arguments(parser)
        add_json_option(parser)
    return whole
