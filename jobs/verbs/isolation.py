"""Isolation policies: namespaces that live on brokers of their own. Set, delete or list them."""

import argparse
import json

from jobs.console import Exit, add_json_option, answer, json_line
from jobs.operating.command_words import add_commands, command_actions
from jobs.operating.commanding import run_command
from jobs.operating.stack_words import add_stack_arguments, whereabouts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    actions = command_actions(parser)
    add_commands(actions, "isolation")
    listing = actions.add_parser("list", help="What is set now.")
    add_json_option(listing, default=argparse.SUPPRESS)
    add_stack_arguments(listing, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Set or delete one, or list them all."""
    if args.action != "list":
        return run_command(args)
    condition = "is_set AND kind = 'isolation'"
    rows = whereabouts(args).reader().rows("policies", condition=condition)
    policies = {row["name"]: json.loads(row["value"]) for row in rows}
    value = {name: policies[name] for name in sorted(policies)}
    lines = [f"{name}  {json_line(policy)}" for name, policy in value.items()]
    answer(args, value, lines or "no isolation policy is set")
    return Exit.DONE
