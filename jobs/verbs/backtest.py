"""Say what other strategies would have made of the load that a real run has recorded.

Reads load_history and brokers of a run's tables; the first line is what really happened, the others
are runs of the simulator on the production balancer, judged as `simulate --compare` judges. as-set:
the cluster's own settings, as the job was started with.
"""

import argparse

from jobs.console import Exit, answer
from jobs.operating.backtesting import (
    AS_SET,
    add_past_arguments,
    lines,
    make_past,
    recorded_of,
    settings_of,
    trying,
    weighed_row,
)
from jobs.operating.simulations import CONTESTANTS, config_of
from jobs.operating.stack_words import whereabouts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: run, part of it, and competing strategies."""
    names = ",".join((AS_SET, *CONTESTANTS))
    parser.add_argument("--strategy", default=names, metavar="A,B", help=f"default: {names}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulator's noise")
    parser.epilog = (
        "example: ballast backtest --tables var/tables --last 24h --strategy avg,transfer"
    )
    add_past_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    where = whereabouts(args)
    past = make_past(recorded_of(args, where), args.last, args.seed)
    base = settings_of(args, where)
    names = ["" if name == AS_SET else name for name in args.strategy.split(",")]
    for name in names:
        config_of(past.scenario, name, args.set, base)  # what can't be used is refused first
    runs = trying(past, args.set, base, args.workers)
    rows = [weighed_row(past), *runs.results(names)]
    answer(args, rows, lines(past, rows))
    return Exit.CUT if runs.is_cut else Exit.DONE
