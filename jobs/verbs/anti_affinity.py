"""Anti-affinity groups: namespaces that are spread over brokers and failure domains."""

import argparse

from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), "anti-affinity")


run = run_command
