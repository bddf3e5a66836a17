"""Say what other strategies would have made of the load that a real run has recorded.

Reads load_history and brokers of a run's tables; the first line is what really happened, the others
are runs of the simulator on the production balancer, judged as the league judges. as-set: the
cluster's own settings, as the job was started with. With --keep the result is added to the tables
(`backtests`), and the console's League shows it.
"""

import argparse

from jobs.adapters.delta.appending import make_ready
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, MisuseError, answer, note
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
from jobs.operating.kept_backtests import keep
from jobs.operating.simulations import config_of
from jobs.operating.stack_words import whereabouts
from jobs.verbs.league import DEFAULT
from lbcore.model.backtest_tables import BACKTESTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which part of it, and who competes."""
    names = f"{AS_SET},{DEFAULT}"
    parser.add_argument("--strategy", default=names, metavar="A,B", help=f"default: {names}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulator's noise")
    parser.add_argument(
        "--keep", action="store_true", help="keep the result in the tables, for the console"
    )
    parser.epilog = (
        "example: ballast backtest --tables var/tables --last 24h --strategy avg,transfer"
    )
    add_past_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    if args.keep and args.recording:
        raise MisuseError(
            "--keep and --recording can't be used together",
            why="a recording in a file need not be of this cluster, whose tables would keep it",
            next_step="leave one of them out",
        )
    where = whereabouts(args)
    past = make_past(recorded_of(args, where), args.last, args.seed)
    base = settings_of(args, where)
    names = ["" if name == AS_SET else name for name in args.strategy.split(",")]
    for name in names:
        config_of(past.scenario, name, args.set, base)  # what can't be used is refused first
    if args.keep:
        make_ready(where.tables, BACKTESTS)
    runs = trying(past, args.set, base, args.workers)
    rows = [weighed_row(past), *runs.results(names)]
    answer(args, rows, lines(past, rows))
    if runs.is_cut:
        if args.keep:
            note("not kept: it was ended before all had run")
        return Exit.CUT
    if args.keep:
        run_id = keep(where, past, rows, args.set, wall_ms())
        note(f"kept as {run_id}: the console's League shows it")
    return Exit.DONE
