"""Rounds of chaos: random clusters that random things happen to, in virtual time, each by its seed.

A round fails when anything unsafe happens in any batch, or something is left unserved or unsettled
at its end. All rounds together fail when imbalance leaves its bounds, which are by quantile. Each
round can be seen alone: --show writes its scenario, which `ballast simulate` runs.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from jobs.console import Exit, MisuseError, answer, note, say
from jobs.operating.many_runs import ManyRuns, add_workers_argument
from jobs.operating.simulations import config_of
from lbcore.config.tree import Config
from lbcore.sim.chaos.chaos import chaos_text
from lbcore.sim.chaos.rounds import ChaosRound, Held, hold_bounds, run_round
from lbcore.sim.engine.rehearsal import Tell
from lbcore.sim.scenario.model import Scenario

ROUNDS = 1_000
BOUNDS_ROUNDS_MIN = 100
"""Fewer rounds than this say nothing about quantiles: only safety is judged."""
MAX_PERCENT = 100.0
_SEEDS_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, from which seed on."""
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"now {ROUNDS}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first round")
    add_workers_argument(parser)
    parser.add_argument("--strategy", default="", metavar="S", help="as `simulate` takes it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all rounds"
    )
    parser.add_argument("--show", action="store_true", help="write the scenario of --seed, no run")


def run(args: argparse.Namespace) -> int:
    """Run the rounds; 1 when something does not hold."""
    if args.show:
        say(*chaos_text(args.seed).rstrip().split("\n"))
        return Exit.DONE
    if args.rounds < 1 or args.seed < 0:
        raise MisuseError(
            "there is nothing to run",
            why="--rounds counts from 1, --seed from 0",
            next_step="leave them out, or give larger numbers",
        )
    config = config_of(Scenario(), args.strategy, args.set)
    seeds = range(args.seed, args.seed + args.rounds)
    runs = ManyRuns(partial(_round, config), args.workers, "rounds")
    rounds = list(_told(runs.results(seeds)))
    held = hold_bounds(rounds) if len(rounds) >= BOUNDS_ROUNDS_MIN else []
    failed = [one for one in rounds if one.faults]
    answer(args, _to_row(rounds, held), _lines(rounds, held))
    is_held = not failed and all(one.is_met for one in held)
    if runs.is_cut and is_held:
        return Exit.CUT
    return Exit.DONE if is_held else Exit.FAILED


def _round(config: Config, seed: int, tell: Tell) -> ChaosRound:
    """A round of some seconds at most, which is not given up."""
    done = run_round(seed, config=config)
    tell(1.0)
    return done


def _told(rounds: Iterable[ChaosRound]) -> Iterator[ChaosRound]:
    """The rounds, with a word to the terminal about each failure."""
    for one in rounds:
        if one.faults:
            note(f"seed {one.seed} failed: {one.faults[0]}")
        yield one


def _to_row(rounds: Sequence[ChaosRound], held: Sequence[Held]) -> dict[str, Any]:
    failed = [one for one in rounds if one.faults]
    return {
        "passed": len(rounds) - len(failed),
        "failed": len(failed),
        "failures": [{"seed": one.seed, "faults": list(one.faults)} for one in failed],
        "batches": sum(one.batches for one in rounds),
        "moves": sum(one.moves for one in rounds),
        "bounds": [
            {
                "side": one.side,
                "percentile": one.bound.percent,
                "limit": one.bound.limit,
                "value": one.value,
                "is_met": one.is_met,
            }
            for one in held
        ],
        "rounds": [
            {"seed": one.seed, "over": one.over, "under": one.under, "hash": one.hash}
            for one in rounds
        ],
    }


def _lines(rounds: Sequence[ChaosRound], held: Sequence[Held]) -> Iterator[str]:
    yield from map(_held_line, held)
    failed = [one for one in rounds if one.faults]
    batches = sum(one.batches for one in rounds)
    yield f"{batches} batches looked at, {sum(one.moves for one in rounds)} moves"
    yield f"{len(rounds) - len(failed)} passed, {len(failed)} failed"
    for one in failed[:_SEEDS_SHOWN]:
        yield f"  seed {one.seed}: {one.faults[0]}"
        yield f"    again: ballast chaos --seed {one.seed} --rounds 1; see it: --show"
    if len(failed) > _SEEDS_SHOWN:
        yield f"  and {len(failed) - _SEEDS_SHOWN} more; --json names them all"


def _held_line(one: Held) -> str:
    word = "ok    " if one.is_met else "FAILED"
    name = "max" if one.bound.percent == MAX_PERCENT else f"p{one.bound.percent:g}"
    value = "-" if one.value is None else f"{one.value:.1f}"
    return f"{word} {one.side}load {name}: {value} <= {one.bound.limit:g} points"
