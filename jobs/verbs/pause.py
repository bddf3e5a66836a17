"""Stop shedding and splitting, everywhere or in one namespace; failover and commands go on."""

import argparse

from jobs.operating.command_words import CommandVerb, add_command
from jobs.operating.commanding import run_command

COMMANDS = (CommandVerb(kind="pause", example="--reason 'broker-3 gets new disks'"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to pause."""
    add_command(parser, COMMANDS[0])


run = run_command
