"""Compare strategies: each of them on each scenario, in one table, or as a page.

floor: imbalance with what no move can undo left out; balanced: time until it stays at or below 1.2;
least: the fewest moves that could have led there; topics: interrupted, each time counted; unserved:
time without service, summed over topics; unmet: expectations of the scenario not met. Below: what
was possible, by bounds that nobody beats (docs/traces.md).
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.console import Exit, MisuseError, answer
from jobs.operating.exact_bounds import exact_least
from jobs.operating.league_bounds import possible_lines
from jobs.operating.league_page import COLUMNS, cells_of, league_page
from jobs.operating.simulations import (
    CONTESTANTS,
    Loaded,
    add_rows_argument,
    config_of,
    earlier_rows,
    load_scenarios,
    note_wrong,
    with_seed,
    write_text,
)
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.judge.fewest_moves import interrupted_topics, least_moves
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.judge.possible import what_was_possible
from lbcore.sim.reports.report import judge_all

DEFAULT = ",".join(CONTESTANTS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files, and the strategies that compete."""
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="a file, or a folder")
    parser.add_argument("--strategy", default=DEFAULT, metavar="A,B", help=f"default: {DEFAULT}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="instead of the scenarios'")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write it as a page (Markdown)")
    parser.add_argument(
        "--exact", action="store_true", help="ask a solver for the fewest moves, where it can"
    )
    add_rows_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    known = {_key(row): row for row in earlier_rows(args)}
    names = args.strategy.split(",")
    rows = list(known.values()) if not args.scenarios else []
    for one in load_scenarios(args.scenarios):
        for name in names:
            rows.append(known.get((one.path.stem, name)) or _row(args, one, name))
    if not rows:
        raise MisuseError(
            "there is nothing to compare",
            why="neither a scenario nor --rows is named",
            next_step="name a scenario, e.g. conf/scenarios",
        )
    if args.page:
        write_text(args.page, league_page(rows))
    answer(args, rows, "\n".join([_table(rows), *possible_lines(rows)]))
    return Exit.DONE


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row["scenario"]), str(row["strategy"])


def _row(args: argparse.Namespace, one: Loaded, strategy: str) -> dict[str, Any]:
    scenario = with_seed(one.scenario, args.seed)
    done = note_wrong(run_scenario(scenario, config_of(scenario, strategy, args.set)))
    return {
        "scenario": one.path.stem,
        "title": scenario.title,
        "strategy": strategy,
        "hash": done.recorder.hash(),
        "unmet": [each.expectation.text for each in judge_all(done) if not each.is_met],
        **{name: measure_named(done, name, of) for name, of in COLUMNS.values() if name},
        "least": least_moves(done),
        "topics": interrupted_topics(done),
        "possible": _possible(args, done),
    }


def _possible(args: argparse.Namespace, done: Run) -> dict[str, Any]:
    """The bounds; with --exact also the solver's fewest moves, where the run is small enough."""
    found = asdict(what_was_possible(done))
    if args.exact and not done.recorder.splits:
        found["exact_least"] = exact_least(done)
    return found


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"{title:>10}" for title in COLUMNS)
    lines, scenario = [f"{'':20}{head}"], ""
    for row in rows:
        if row["scenario"] != scenario:
            scenario = row["scenario"]
            lines.append(scenario)
        lines.append(f"  {row['strategy']:18}" + "".join(f"{cell:>10}" for cell in cells_of(row)))
    return "\n".join(lines)
