"""Take single bundles from their owners, give them to brokers, split them, keep them in place."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

_BUNDLE = "acme/orders/0x40000000_0x80000000"

COMMANDS = (
    CommandVerb(name="unload", kind="unload_bundle", example=f"{_BUNDLE} --destination broker-2"),
    CommandVerb(name="assign", kind="assign_bundle", example=_BUNDLE),
    CommandVerb(name="override", kind="override_bundle", example=f"{_BUNDLE} broker-2"),
    CommandVerb(
        name="split",
        kind="split_bundle",
        example="--namespace acme/orders --which LARGEST --unload",
        optional=("bundle",),
        timeout_ms=120_000,
    ),
    CommandVerb(
        name="pin",
        kind="pin_bundle",
        example=f"{_BUNDLE} broker-2 --ttl 2h --reason 'index is being rebuilt'",
    ),
    CommandVerb(name="unpin", kind="unpin_bundle", example=_BUNDLE),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
