"""Verbs that only send commands: broker, namespace, pause, resume."""

import argparse

from jobs.operating.commanding import add_verb, run_command
from jobs.verbs import VERBS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb that the parser is of."""
    parser.description = VERBS[parser.prog.split()[1]].summary
    add_verb(parser)


run = run_command
