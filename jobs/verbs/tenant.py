"""Make, change and delete tenants, of which the balancer only keeps a list."""

import argparse

from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), "tenant")


run = run_command
