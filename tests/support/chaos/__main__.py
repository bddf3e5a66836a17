"""Run rounds of chaos and fail when one is unsafe: `python -m tests.support.chaos`, `make chaos`.

`--rounds N --seed S` choose the seeds, from which the clusters and their faults are drawn. `--show`
prints the scenario of --seed, for `ballast simulate`.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from jobs.console import say
from jobs.operating.simulations import ManyRuns
from lbcore.config.tree import Config
from tests.support.chaos.chaos import chaos_text
from tests.support.chaos.rounds import ChaosRound, Held, hold_bounds, run_round

BOUNDS_ROUNDS_MIN = 100
"""Fewer rounds than this say nothing about quantiles: only safety is judged."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds; 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first round")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--show", action="store_true", help="print the scenario, run nothing")
    args = parser.parse_args(arguments)
    if args.show:
        say(*chaos_text(args.seed).rstrip().split("\n"))
        return 0
    runs = ManyRuns(partial(_round, Config()), args.workers, "rounds")
    rounds = list(runs.results(range(args.seed, args.seed + args.rounds)))
    held = hold_bounds(rounds) if len(rounds) >= BOUNDS_ROUNDS_MIN else []
    say(*report(rounds, held))
    return int(any(one.faults for one in rounds) or not all(one.is_met for one in held))


def report(rounds: Sequence[ChaosRound], held: Sequence[Held]) -> Iterator[str]:
    """Yield what came of the rounds: each bound, the sums, and each failed seed."""
    for one in held:
        mark = "ok    " if one.is_met else "FAILED"
        value = "-" if one.value is None else f"{one.value:.1f}"
        yield f"{mark} {one.side}load p{one.percent:g}: {value} <= {one.limit:g} points"
    failed = [one for one in rounds if one.faults]
    yield f"{len(rounds) - len(failed)} passed, {len(failed)} failed"
    for lost in failed:
        yield f"  seed {lost.seed}: {lost.faults[0]}"
        yield f"    again: python -m tests.support.chaos --seed {lost.seed} --rounds 1"


def _round(config: Config, seed: int) -> ChaosRound:
    return run_round(seed, config=config)


if __name__ == "__main__":
    sys.exit(main())
