"""Compare strategies: each of them on each scenario, in one table.

floor: imbalance with what no move can undo left out; balanced: time until it stays at or below 1.2;
unserved: time without service, summed over topics; unmet: expectations of the scenario not met.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from jobs.console import Exit, answer
from jobs.operating.simulations import Loaded, config_of, load_scenarios, with_seed
from lbcore.sim.measures import measure_named
from lbcore.sim.rehearsal import run_scenario
from lbcore.sim.report import format_value, judge_all

DEFAULT = "avg,threshold,overload,uniform,transfer,none,pulsar-avg,pulsar-threshold"
COLUMNS = {
    "floor p50": ("floor_adjusted.p50", ""),
    "floor p95": ("floor_adjusted.p95", ""),
    "imb p50": ("imbalance.p50", ""),
    "imb p95": ("imbalance.p95", ""),
    "balanced": ("balanced", "1.2"),
    "moves": ("moves", ""),
    "thrash": ("thrash", ""),
    "splits": ("splits", ""),
    "unserved": ("unserved", ""),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files, and the strategies that compete."""
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, or a folder")
    parser.add_argument("--strategy", default=DEFAULT, metavar="A,B", help=f"default: {DEFAULT}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="instead of the scenarios'")


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    loaded = load_scenarios(args.scenarios)
    names = args.strategy.split(",")
    rows = [_row(args, one, name) for one in loaded for name in names]
    answer(args, rows, _table(rows))
    return Exit.DONE


def _row(args: argparse.Namespace, one: Loaded, strategy: str) -> dict[str, Any]:
    scenario = with_seed(one.scenario, args.seed)
    done = run_scenario(scenario, config_of(scenario, strategy, args.set))
    return {
        "scenario": one.path.stem,
        "strategy": strategy,
        "hash": done.recorder.hash(),
        "unmet": [each.expectation.text for each in judge_all(done) if not each.is_met],
        **{metric: measure_named(done, metric, about) for metric, about in COLUMNS.values()},
    }


def _table(rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f"{title:>11}" for title in (*COLUMNS, "unmet"))
    lines, scenario = [f"{'':20}{head}"], ""
    for row in rows:
        if row["scenario"] != scenario:
            scenario = row["scenario"]
            lines.append(scenario)
        cells = [format_value(metric, row[metric]) for metric, _ in COLUMNS.values()]
        text = "".join(f"{cell:>11}" for cell in (*cells, str(len(row["unmet"]))))
        lines.append(f"  {row['strategy']:18}{text}")
    return "\n".join(lines)
