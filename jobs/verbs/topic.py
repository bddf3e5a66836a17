"""Make topics known before a broker reports them, give them more partitions, forget them."""

import argparse

from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), "topic")


run = run_command
