"""Explain a bundle, a broker, the cluster or a decision: sentences, then numbers.

From the tables, or a service that reads them (--url): it answers while the job and Kafka are away,
and about an earlier time.
"""

import argparse

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, Exit, MisuseError, answer
from jobs.operating.answers import answers_of, require_known
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.operating.explaining import KINDS, WINDOW_MS, ExplainQuestion
from jobs.parser import argument, arguments, parse_duration_ms, parse_instant_ms

add_arguments = arguments(
    argument("kind", choices=KINDS, help="what is asked about"),
    argument(
        "name", nargs="?", default="", metavar="NAME", help="its name or id; none for the cluster"
    ),
    argument("--at", default="", metavar="TIME", help="as it was: 5m ago, or 2026-11-21T03:00Z"),
    argument(
        "--window",
        type=parse_duration_ms,
        default=WINDOW_MS,
        metavar="TIME",
        help="how far back decisions are looked at (default 1h)",
    ),
    TABLES_OPTIONS,
    example="ballast explain broker broker-3:8080 --at 10m",
)


def run(args: argparse.Namespace) -> int:
    """Write the explanation."""
    now_ms = wall_ms()
    if bool(args.name) == (args.kind == "cluster"):
        raise MisuseError(
            f"explain {args.kind} takes {'no' if args.name else 'a'} name",
            why="the cluster is named with --cluster, everything else by its name or id",
            next_step="write `ballast explain cluster` or `ballast explain bundle NAME`",
        )
    try:
        at_ms = parse_instant_ms(args.at, now_ms) if args.at else 0
    except argparse.ArgumentTypeError:
        raise MisuseError(
            f"{args.at!r} is no time",
            why="an instant is an ISO time, or so long ago",
            next_step="write 2026-11-21T03:00:00Z, or 5m for five minutes ago",
        ) from None
    question = ExplainQuestion(
        kind=args.kind, name=args.name, now_ms=now_ms, at_ms=at_ms, window_ms=args.window
    )
    answers = answers_of(connection_options(args))
    found = answers.explain(question)
    if found is None:
        if args.kind == "broker" and not args.at:
            require_known(answers, broker=args.name)
        raise CommandError(
            f"there is no {args.kind} {args.name}" + (f" at {args.at}" if args.at else ""),
            why=f"no row of cluster {answers.cluster} has this name",
            next_step="`ballast status` lists brokers, `ballast ownership` bundles, and "
            "`ballast explain cluster` says what was decided of late",
        )
    answer(args, found.to_json(), found.lines())
    return Exit.DONE
