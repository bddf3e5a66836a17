"""Go on balancing after many brokers have vanished at once."""

import argparse

from jobs.operating.command_words import CommandVerb, add_command
from jobs.operating.commanding import run_command

COMMANDS = (CommandVerb(kind="release_brake", example=""),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but how and where to send it."""
    add_command(parser, COMMANDS[0])


run = run_command
