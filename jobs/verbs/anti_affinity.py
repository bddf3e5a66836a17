"""Anti-affinity groups: namespaces that are spread over brokers and failure domains."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

COMMANDS = (
    CommandVerb(name="set", kind="set_anti_affinity_group", example="acme/orders replicas"),
    CommandVerb(name="delete", kind="delete_anti_affinity_group", example="acme/orders"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
