"""Say what the next cycles would do on what the tables say, before and after; nothing is sent.

With the balancer's own code. Each decision says after how many more hits it comes. What the tables
don't know (hits and averages of most strategies, load of the last moments) ends the answer.
"""

import argparse

from jobs.adapters.processes.own_strategies import with_own
from jobs.console import Exit, MisuseError, answer
from jobs.operating.foreseeing import look_ahead
from jobs.operating.simulations import STRATEGIES
from jobs.operating.stack_words import add_stack_arguments, whereabouts
from lbcore.foresight.foresee import WhatIf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What would be otherwise."""
    parser.add_argument(
        "--dry-run", action="store_true", help="required: plans are carried out by the job alone"
    )
    parser.add_argument(
        "--strategy", default="", metavar="S", help=f"as if it were {', '.join(STRATEGIES)}"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="as if a setting were so"
    )
    parser.add_argument(
        "--add-brokers", type=int, default=0, metavar="N", help="as if N idle ones joined"
    )
    parser.add_argument(
        "--remove-broker",
        action="append",
        default=[],
        metavar="B",
        help="as if it were drained; may be repeated",
    )
    parser.epilog = "example: ballast plan --dry-run --strategy threshold --add-brokers 2"
    add_stack_arguments(parser, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Write what would happen."""
    if not args.dry_run:
        raise MisuseError(
            "`plan` only looks ahead",
            why="the streaming job makes and carries out its plans by itself",
            next_step="write `ballast plan --dry-run`; `ballast bundle unload` moves one by hand",
        )
    where = whereabouts(args)
    what_if = WhatIf(
        settings=tuple(args.set),
        add_brokers=args.add_brokers,
        remove_brokers=tuple(args.remove_broker),
    )
    config = with_own(where.config.for_cluster(where.cluster), [args.strategy])
    outlook = look_ahead(where.reader(), config, args.strategy, what_if)
    answer(args, outlook.to_json(), "\n".join(outlook.lines()))
    return Exit.DONE
