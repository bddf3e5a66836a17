"""Rules on where namespaces may be: isolation policies and anti-affinity groups.

An isolation policy keeps namespaces on brokers of their own. A group spreads its namespaces over
brokers and failure domains.
"""

import argparse
import json

from jobs.console import Exit, add_json_option, answer, json_line
from jobs.operating.commanding import add_verb, run_command
from jobs.operating.connection_options import add_stack_arguments, connection_options
from jobs.operating.service_answers import answers_of

_ISOLATION, _GROUP = "isolation", "anti_affinity"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    listing = add_verb(parser).add_parser("list", help="What is set now.")
    add_json_option(listing, default=argparse.SUPPRESS)
    add_stack_arguments(listing, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Set or delete one, or list them all."""
    if args.action != "list":
        return run_command(args)
    found = answers_of(connection_options(args)).policies()
    rows = [row for row in found if row["kind"] in (_ISOLATION, _GROUP)]
    rows.sort(key=lambda row: (row["kind"], row["name"]))
    value = {
        kind: {row["name"]: json.loads(row["value"]) for row in rows if row["kind"] == kind}
        for kind in (_ISOLATION, _GROUP)
    }
    lines = [f"{row['kind']}  {row['name']}  {json_line(json.loads(row['value']))}" for row in rows]
    answer(args, value, lines or "no policy is set")
    return Exit.DONE
