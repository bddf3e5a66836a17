"""End a pause, of the whole cluster or of one namespace."""

import argparse

from jobs.operating.command_words import CommandVerb, add_command
from jobs.operating.commanding import run_command

COMMANDS = (CommandVerb(kind="resume", example=""),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to resume."""
    add_command(parser, COMMANDS[0])


run = run_command
