"""Make and delete namespaces, take all their bundles away, keep them from being shed."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

COMMANDS = (
    CommandVerb(
        name="create",
        kind="create_namespace",
        example="acme/orders --bundles 16 --hash murmur3_32",
    ),
    CommandVerb(name="delete", kind="delete_namespace", example="acme/orders --timeout 5m"),
    CommandVerb(
        name="unload", kind="unload_namespace", example="acme/orders --destination broker-2"
    ),
    CommandVerb(name="exclude", kind="exclude_namespace", example="acme/orders"),
    CommandVerb(name="include", kind="include_namespace", example="acme/orders"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
