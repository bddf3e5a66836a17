"""Run scenarios in virtual time, on the production balancer, and say whether they hold.

A scenario's file says what the cluster is, what it carries and goes through, and what must come of
it (docs/simulator.md has the grammar; conf/scenarios has examples). Fails when an expectation is
not met, or when what is recorded below the file's ---- is not what came out.
"""

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.console import CommandError, Exit, MisuseError, answer, note
from jobs.operating.simulations import (
    RECOMMENDED,
    STRATEGIES,
    Loaded,
    config_of,
    load_scenarios,
    note_wrong,
    with_seed,
    write_text,
)
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.load_map import LoadMap
from lbcore.sim.engine.rehearsal import run_scenario, run_with_load_map
from lbcore.sim.reports.report import judge_all, render, to_row
from lbcore.sim.scenario.parse import with_recorded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files, and what to change about them."""
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, or a folder")
    parser.add_argument(
        "--strategy",
        default="",
        metavar="A,B",
        help=f"run once with each: {', '.join(STRATEGIES)}; pulsar-avg and so on under Pulsar's "
        f"defaults; {', '.join(RECOMMENDED)} as documents recommend them",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting upon the scenario's own; may be repeated",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="instead of the scenario's")
    parser.add_argument(
        "--plot", type=Path, metavar="DIR", help="write pictures there, as SVG and PNG"
    )
    parser.add_argument(
        "--rewrite", action="store_true", help="record the output in the file, below ----"
    )


def run(args: argparse.Namespace) -> int:
    """Run everything; 1 when something does not hold."""
    loaded = load_scenarios(args.scenarios)
    is_changed = bool(args.strategy or args.set or args.seed is not None)
    if args.rewrite and is_changed:
        raise MisuseError(
            "nothing can be recorded of a scenario that was changed",
            why="--rewrite keeps what the file says by itself, without --strategy, --set, --seed",
            next_step="leave them out, or write the change into the file",
        )
    strategies = args.strategy.split(",")
    rows = [_run_one(args, one, name) for one in loaded for name in strategies]
    if args.json:
        answer(args, rows, "")
    elif len(rows) > 1:
        met = sum(row["is_met"] for row in rows)
        answer(args, rows, f"{met} of {len(rows)} runs are as expected")
    return Exit.DONE if all(row["is_met"] for row in rows) else Exit.FAILED


def _run_one(args: argparse.Namespace, one: Loaded, strategy: str) -> dict[str, Any]:
    scenario = with_seed(one.scenario, args.seed)
    config = config_of(scenario, strategy, args.set)
    done = (
        run_scenario(scenario, config)
        if args.plot is None
        else _run_drawn(args, one, config, strategy)
    )
    judged = judge_all(note_wrong(done))
    text = render(done, judged)
    row = {"file": str(one.path), "strategy": strategy, **to_row(done, judged)}
    if not args.json:
        head = scenario.title or one.path.stem
        answer(args, row, f"{head}{f' [{strategy}]' if strategy else ''}\n{text}")
    if args.rewrite:
        write_text(one.path, with_recorded(one.content, text))
    elif not (strategy or args.set or args.seed is not None) and scenario.recorded:
        row["is_met"] &= _is_recorded(one, text)
    return row


def _run_drawn(args: argparse.Namespace, one: Loaded, config: Config, strategy: str) -> Run:
    """Run it and write the pictures."""
    scenario = with_seed(one.scenario, args.seed)
    done, load_map = run_with_load_map(scenario, config)
    title = f"{scenario.title or one.path.stem}{f', under {strategy}' if strategy else ''}"
    stem = f"{one.path.stem}{f'-{strategy}' if strategy else ''}"
    try:
        files = _draw(title, done, load_map, args.plot / stem)
    except OSError as cause:
        raise CommandError(
            f"pictures can't be written to {args.plot}",
            why=str(cause),
            next_step="name a folder that this user may write to",
        ) from None
    note(f"{len(files)} pictures: {args.plot / stem}-*")
    return done


def _draw(title: str, run: Run, load_map: LoadMap, where: Path) -> Sequence[Path]:
    """The files that were drawn; raises CommandError where matplotlib is not installed."""
    try:
        from jobs.operating.drawing import Shot, draw_all  # noqa: PLC0415 needs matplotlib
    except ModuleNotFoundError as cause:
        raise CommandError(
            "pictures can't be drawn",
            why=f"{cause.name} is not installed",
            next_step="install it: pip install 'ballast[plots]' (`make setup-dev` does, too)",
        ) from None
    return draw_all(Shot(title=title, run=run, load_map=load_map), where.parent, where.name)


def _is_recorded(one: Loaded, text: str) -> bool:
    """Whether the file has this output; says what differs."""
    if one.scenario.recorded == text:
        return True
    note(f"{one.path}: the output is not what is recorded; --rewrite records it anew")
    for line in _difference(one.scenario.recorded.splitlines(), text.splitlines()):
        note(line)
    return False


def _difference(before: Sequence[str], after: Sequence[str]) -> list[str]:
    return list(difflib.unified_diff(before, after, "recorded", "now", n=0, lineterm=""))
