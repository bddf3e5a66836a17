"""Make, change and delete tenants, of which the balancer only keeps a list."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

COMMANDS = (
    CommandVerb(name="create", kind="create_tenant", example="acme --admin-roles ops"),
    CommandVerb(name="update", kind="update_tenant", example="acme --admin-roles ops dev"),
    CommandVerb(name="delete", kind="delete_tenant", example="acme"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
