"""Go on balancing after many brokers have vanished at once."""

import argparse

from jobs.operating.command_words import add_command
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but how and where to send it."""
    add_command(parser, "release-brake")


run = run_command
