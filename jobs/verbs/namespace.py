"""Make and delete namespaces, take all their bundles away, keep them from being shed."""

import argparse

from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), "namespace")


run = run_command
