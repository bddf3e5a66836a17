"""End a pause, of the whole cluster or of one namespace."""

import argparse

from jobs.operating.command_words import add_command
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to resume."""
    add_command(parser, "resume")


run = run_command
