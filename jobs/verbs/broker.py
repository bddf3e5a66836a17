"""Empty a broker before it stops, let it take bundles again, forget one that is gone for good."""

import argparse

from jobs.operating.command_words import CommandVerb, add_commands, command_actions
from jobs.operating.commanding import run_command

_HOUR_MS = 3_600_000

COMMANDS = (
    CommandVerb(
        name="drain",
        kind="drain_broker",
        example="broker-3 --max-in-flight 20 --deadline 30m",
        timeout_ms=_HOUR_MS,
    ),
    CommandVerb(name="cancel-drain", kind="cancel_drain", example="broker-3"),
    CommandVerb(name="forget", kind="forget_broker", example="broker-3"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    add_commands(command_actions(parser), COMMANDS)


run = run_command
