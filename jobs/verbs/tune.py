"""Search the settings that would have served a recorded run best, and say when that is noise.

Stretches of the recorded time are balanced again by the production balancer: as it is set, under
each strategy, and with half and double of each setting of the best one. What wins is run anew
under seeds that it was not chosen by. Nothing is sent and nothing is set. Runs are processes of
this machine, or, with --master, tasks of Spark; the answer is the same.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from jobs.console import Exit, MisuseError, answer
from jobs.operating.backtesting import add_past_arguments, recorded_of, settings_of
from jobs.operating.durations import parse_duration_ms
from jobs.operating.many_runs import ManyRuns, SideBySide
from jobs.operating.simulations import write_text
from jobs.operating.stack_words import whereabouts
from jobs.operating.tuning import FIGURES, Search, Tuned, lines, stretches, tune, verdict
from jobs.parser import add_spark_word, whole_number
from lbcore.config.load import differences, parse_assignments
from lbcore.config.render import render_differences
from lbcore.sim.reports.tuning import MOVE_PRICE

SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, which part of it, and how much is tried."""
    parser.add_argument(
        "--stretch",
        type=parse_duration_ms,
        default="2h",
        metavar="TIME",
        help="longest stretch that is balanced again; default 2h",
    )
    for name, default, text in (
        ("--stretches", 3, "spread evenly over the time"),
        ("--seeds", 2, "of the simulator's noise, as many again for what is found"),
        ("--rounds", 2, "of steps from the best settings"),
    ):
        parser.add_argument(
            name, type=whole_number, default=default, metavar="N", help=f"{text}; default {default}"
        )
    parser.add_argument(
        "--move-price",
        type=float,
        default=MOVE_PRICE,
        metavar="POINTS",
        help=f"what moving a percent of the bundles in an hour costs; default {MOVE_PRICE}",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write what is better as overlay")
    parser.add_argument(
        "--master",
        default="",
        metavar="SPARK",
        help="run as tasks of Spark, local[2] or spark://HOST:7077, instead of in processes",
    )
    add_spark_word(parser)
    parser.epilog = "example: ballast tune --tables var/tables --last 24h --out conf/tuned.toml"
    add_past_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table and the verdict."""
    if not 0.0 <= args.move_price < float("inf"):
        raise MisuseError(
            f"--move-price {args.move_price} can't be used",
            why="a move costs nothing or something",
            next_step=f"give 0 or more; {MOVE_PRICE} is the default",
        )
    where = whereabouts(args)
    pasts = stretches(recorded_of(args, where), args.last, args.stretch, args.stretches)
    search = Search(
        base=settings_of(args, where),
        given=tuple(args.set),
        price=args.move_price,
        rounds=args.rounds,
        seeds=args.seeds,
    )
    with _side_by_side(args) as beside:
        tuned = tune(pasts, search, beside)
    answer(args, as_json(tuned), lines(pasts, tuned, search, SHOWN))
    if args.out and tuned.best is not None and tuned.is_better:
        best = parse_assignments(search.base, search.words(tuned.best.assignments))
        head = f"Written by `ballast tune`.\n{verdict(tuned)}"
        write_text(args.out, render_differences(differences(best, search.base), head))
    return Exit.CUT if tuned.is_cut else Exit.DONE


@contextmanager
def _side_by_side(args: argparse.Namespace) -> Iterator[SideBySide]:
    """Processes of this machine, or Spark."""
    if not args.master:
        if args.spark:
            raise MisuseError(
                f"--spark {args.spark[0]} has no use",
                why="without --master, runs are processes of this machine and no tasks of Spark",
                next_step="give --master, e.g. local[2] or spark://HOST:7077, or leave it out",
            )
        yield partial(ManyRuns, workers=args.workers)
        return
    from jobs.operating.spark_runs import spark_runs  # noqa: PLC0415 takes seconds to import

    wrong = [pair for pair in args.spark if "=" not in pair]
    if wrong:
        raise MisuseError(
            f"--spark {wrong[0]} can't be used",
            why="it has no =",
            next_step="give KEY=VALUE, e.g. spark.executor.memory=2g",
        )
    with spark_runs(args.master, dict(args.spark)) as beside:
        yield beside


def as_json(tuned: Tuned) -> dict[str, object]:
    """What --json answers."""
    best, shown = tuned.best, tuned.shown
    return {
        "trials": [
            {
                "name": one.name,
                "assignments": one.assignments,
                **{name: one.mean(name, tuned.cells) for name in FIGURES},
            }
            for one in tuned.trials
        ],
        "best": best.name if best else None,
        "assignments": best.assignments if best else (),
        "gain": shown.points if shown else None,
        "noise": shown.noise if shown and math.isfinite(shown.noise) else None,
        "is_better": tuned.is_better,
        "verdict": verdict(tuned),
    }
