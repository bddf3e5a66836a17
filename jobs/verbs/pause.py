"""Stop shedding and splitting, everywhere or in one namespace; failover and commands go on."""

import argparse

from jobs.operating.command_words import add_command
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to pause."""
    add_command(parser, "pause")


run = run_command
