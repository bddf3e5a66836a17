"""Make topics known before a broker reports them, give them more partitions, forget them."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

_TOPIC = "persistent://acme/orders/paid"

COMMANDS = (
    CommandVerb(name="create", kind="create_topic", example=f"{_TOPIC} --partitions 8"),
    CommandVerb(name="update", kind="update_topic", example=f"{_TOPIC} 16"),
    CommandVerb(name="delete", kind="delete_topic", example=_TOPIC),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
