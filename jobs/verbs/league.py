"""Compare strategies: each of them on each scenario, in one table, or as a page.

floor: imbalance with what no move can undo left out; balanced: time until it stays at or below 1.2;
least: the fewest moves that could have led there; topics: interrupted, each time counted; unserved:
time without service, summed over topics; unmet: expectations of the scenario not met. Below: what
was possible, by bounds that nobody beats (docs/traces.md).
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs.adapters.processes.shipped import folder_name
from jobs.console import Exit, MisuseError, answer
from jobs.operating.exact_bounds import exact_least
from jobs.operating.league_bars import bar_lines
from jobs.operating.league_bounds import possible_lines
from jobs.operating.league_figures import COLUMNS, OURS
from jobs.operating.league_page import cells_of, league_page
from jobs.operating.many_runs import ManyRuns, add_workers_argument
from jobs.operating.simulations import (
    CONTESTANTS,
    Loaded,
    add_rows_argument,
    config_of,
    earlier_rows,
    load_scenarios,
    note_wrong,
    weight_of,
    with_seed,
    write_text,
)
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.rehearsal import Tell, run_scenario
from lbcore.sim.judge.fewest_moves import interrupted_topics, least_moves
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.judge.possible import what_was_possible
from lbcore.sim.reports.report import judge_all

DEFAULT = ",".join(CONTESTANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A strategy on a scenario."""

    one: Loaded
    strategy: str

    @property
    def key(self) -> tuple[str, str]:
        """What a row of it is known by."""
        return self.one.path.stem, self.strategy


@dataclass(frozen=True, slots=True)
class _Rules:
    """What holds for all contests. seed: None = the scenario's. is_exact: ask a solver, too."""

    settings: Sequence[str]
    seed: int | None
    is_exact: bool


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
    parser.add_argument(
        "--bars", default=OURS, metavar="A,B", help=f"hold these to the bars (default: {OURS})"
    )
    add_rows_argument(parser)
    add_workers_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    known = {_key(row): row for row in earlier_rows(args)}
    loaded = load_scenarios(args.scenarios)
    names = args.strategy.split(",")
    wanted = [Contest(one=one, strategy=name) for one in loaded for name in names]
    runs = ManyRuns(partial(_row, _Rules(args.set, args.seed, args.exact)), args.workers)
    new = _played(args, runs, [contest for contest in wanted if contest.key not in known])
    known |= {_key(row): row for row in new}
    rows = [known[each.key] for each in wanted if each.key in known] or list(known.values())
    if not rows and not runs.is_cut:
        raise MisuseError(
            "there is nothing to compare",
            why="neither a scenario nor --rows is named",
            next_step="name a scenario, e.g. conf/scenarios",
        )
    if args.page:
        write_text(args.page, league_page(rows))
    bars = [line for name in args.bars.split(",") for line in bar_lines(rows, name)]
    answer(args, rows, [*_table(rows), *possible_lines(rows), *bars])
    return Exit.CUT if runs.is_cut else Exit.DONE


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row["scenario"]), str(row["strategy"])


def _played(
    args: argparse.Namespace, runs: ManyRuns[dict[str, Any]], contests: Sequence[Contest]
) -> Iterator[dict[str, Any]]:
    """The rows of contests; every one's settings are looked at before the first begins."""
    scenarios = [(each.one.scenario, each.strategy) for each in contests]
    weights = [weight_of(one, config_of(one, name, args.set)) for one, name in scenarios]
    return runs.results(contests, weights)


def _row(rules: _Rules, contest: Contest, tell: Tell) -> dict[str, Any] | None:
    """The contest's row; None where it was given up."""
    scenario = with_seed(contest.one.scenario, rules.seed)
    config = config_of(scenario, contest.strategy, rules.settings)
    done = note_wrong(run_scenario(scenario, config, tell))
    if done.is_cut:
        return None
    return {
        "scenario": contest.one.path.stem,
        "folder": folder_name(contest.one.path),
        "title": scenario.title,
        "strategy": contest.strategy,
        "hash": done.recorder.hash(),
        "unmet": [each.expectation.text for each in judge_all(done) if not each.is_met],
        **{name: measure_named(done, name, of) for name, of in COLUMNS.values() if name},
        "least": least_moves(done),
        "topics": interrupted_topics(done),
        "possible": _possible(done, is_exact=rules.is_exact),
    }


def _possible(done: Run, *, is_exact: bool) -> dict[str, Any]:
    """The bounds; with --exact also the solver's fewest moves, where the run is small enough."""
    found = asdict(what_was_possible(done))
    if is_exact and not done.recorder.splits:
        found["exact_least"] = exact_least(done)
    return found


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    head = "".join(f"{title:>10}" for title in COLUMNS)
    lines, scenario = [f"{'':20}{head}"], ""
    for row in rows:
        if row["scenario"] != scenario:
            scenario = row["scenario"]
            lines.append(scenario)
        lines.append(f"  {row['strategy']:18}" + "".join(f"{cell:>10}" for cell in cells_of(row)))
    return lines
