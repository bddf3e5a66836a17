"""Take single bundles from their owners, give them to brokers, split them, keep them in place."""

import argparse

from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), "bundle")


run = run_command
