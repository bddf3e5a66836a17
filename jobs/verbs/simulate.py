"""Run scenarios in virtual time on the production balancer, and judge them.

A scenario's file says what the cluster is, what it carries and goes through, and what must come of
it (docs/simulator.md has the grammar; conf/scenarios has examples). Without --compare it fails when
an expectation is not met, or when what is recorded below the file's ---- is not what came out.
--compare shows several strategies of a scenario in one table, in which a failed expectation is
marked with !.
"""

import argparse
import difflib
import importlib
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.atomic_file import read_text_file
from jobs.console import CommandError, Exit, MisuseError, answer, note
from jobs.extras import missing_extra
from jobs.operating.simulations import (
    RECOMMENDED,
    STRATEGIES,
    WORKERS_OPTION,
    Loaded,
    ManyRuns,
    config_of,
    load_scenarios,
    note_wrong,
    weight_of,
    write_text,
)
from jobs.parser import argument, arguments
from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario, run_with_load_map
from lbcore.sim.reports.report import (
    compared_row,
    compared_strategies,
    judge_all,
    render,
    render_comparison,
    to_row,
)
from lbcore.sim.scenario.model import Scenario
from lbcore.sim.scenario.parse import with_compared, with_recorded

if TYPE_CHECKING:
    from jobs.operating.plots import DrawnRun


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A scenario to run, under a strategy's name."""

    loaded: Loaded
    scenario: Scenario
    strategy: str
    settings: Sequence[str]
    is_compared: bool = False

    def config(self) -> Config:
        """Return the configuration of the run; a custom strategy is loaded where it runs."""
        return config_of(self.scenario, self.strategy, self.settings)

    @property
    def head(self) -> str:
        """Display name of the scenario."""
        return self.scenario.title or self.loaded.path.stem

    @property
    def picture(self) -> str:
        """Name of the picture's files, without their endings."""
        return f"{self.loaded.path.stem}{f'-{self.strategy}' if self.strategy else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Result of a task. at: index of the task."""

    at: int
    row: dict[str, Any]
    text: str
    drawn: "DrawnRun | None" = None


add_arguments = arguments(
    argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, or a folder"),
    argument(
        "--strategy",
        default="",
        metavar="A,B",
        help=f"run once with each: {', '.join(STRATEGIES)}; pulsar-avg and so on under Pulsar's "
        f"defaults; {', '.join(RECOMMENDED)} as Pulsar's documents advise",
    ),
    argument("--compare", default="", metavar="A,B", help="the same, one table per scenario"),
    argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that overrides the scenario's; may be repeated",
    ),
    argument("--seed", type=int, metavar="N", help="instead of the scenario's"),
    argument("--plot", type=Path, metavar="DIR", help="write pictures there, as SVG and PNG"),
    argument(
        "--rewrite",
        action="store_true",
        help="record the output in the file, below ----, and the table if the file has one; with "
        "--compare the table alone",
    ),
    WORKERS_OPTION,
)


def run(args: argparse.Namespace) -> int:
    """Run everything; 1 when an expectation of a run outside --compare does not hold."""
    loaded = load_scenarios(args.scenarios)
    is_changed = bool(args.strategy or args.set or args.seed is not None)
    if args.rewrite and is_changed:
        raise MisuseError(
            "nothing can be recorded of a scenario that was changed",
            why="--rewrite records runs of the file as it is, without --strategy, --set, --seed",
            next_step="leave them out, or write the change into the file",
        )
    if args.strategy and args.compare:
        raise MisuseError(
            "--strategy and --compare can't be used together",
            why="each names the strategies to run, --compare those of one table",
            next_step="leave one of them out",
        )
    tasks = [task for one in loaded for task in _tasks_of(args, one)]
    if args.plot is not None:
        _check_pictures(tasks)
    runs = ManyRuns(partial(_run_task, args.plot), args.workers)
    weights = [weight_of(task.scenario, task.config()) for task in tasks]
    outcomes = list[_Outcome]()
    for one in runs.results(list(enumerate(tasks)), weights):
        if not tasks[one.at].is_compared:
            _report_run(args, tasks[one.at], one)
        outcomes.append(one)
    done = [(tasks[one.at], one.row) for one in outcomes]
    compared = [(task.loaded.path, row["compared"]) for task, row in done if task.is_compared]
    _report_comparison(args, compared, is_cut=runs.is_cut)
    rows = [row for _, row in done]
    single = [row for task, row in done if not task.is_compared]
    if args.plot is not None and len(tasks) > len(loaded):
        drawn = ((tasks[one.at].loaded.path, one.drawn) for one in outcomes if one.drawn)
        _draw_side_by_side(args.plot, drawn)
    if args.json:
        answer(args, rows, "")
    elif len(single) > 1 or not rows:
        met = sum(row["is_met"] for row in single)
        answer(args, rows, f"{met} of {len(single)} runs are as expected")
    if runs.is_cut:
        return Exit.CUT
    return Exit.DONE if all(row["is_met"] for row in single) else Exit.FAILED


def _tasks_of(args: argparse.Namespace, one: Loaded) -> Iterator[_Task]:
    """Yield what is run of a scenario.

    A rewrite renews the table that the file has, too.
    """
    scenario = one.scenario if args.seed is None else replace(one.scenario, seed=args.seed)
    make = partial(_Task, loaded=one, scenario=scenario, settings=args.set)
    if not args.compare:
        yield from (make(strategy=name) for name in args.strategy.split(","))
    names = args.compare.split(",") if args.compare else compared_strategies(one.scenario.compared)
    if args.compare or args.rewrite:
        yield from (make(strategy=name, is_compared=True) for name in names)


def _check_pictures(tasks: Sequence[_Task]) -> None:
    """Raise MisuseError if the pictures of two files would have one name."""
    runs, named = Counter(task.loaded.path for task in tasks), dict[str, Path]()
    for task in tasks:
        path = task.loaded.path
        names = [task.picture, *([f"{path.stem}-strategies"] if runs[path] > 1 else [])]
        for name in names:
            other = named.setdefault(name, path)
            if other.resolve() != path.resolve():
                raise MisuseError(
                    f"two pictures would have the name {name}",
                    why=f"{other} and {path} would write them, one over the other",
                    next_step="rename one of the files, or run them with a --plot each",
                )


def _report_comparison(
    args: argparse.Namespace, compared: Iterable[tuple[Path, dict[str, Any]]], *, is_cut: bool
) -> None:
    """Write each scenario's table; --rewrite records it, unless the run was cut."""
    for path, pairs in groupby(compared, itemgetter(0)):
        rows = [row for _, row in pairs]
        text = render_comparison(rows)
        if args.rewrite and not is_cut:
            write_text(path, with_compared(read_text_file(path), text))
        if not args.json:
            answer(args, rows, [str(path), *text.split("\n")])


def _run_task(plot: Path | None, item: tuple[int, _Task]) -> _Outcome:
    at, task = item
    drawn = None
    if plot is None:
        done = run_scenario(task.scenario, task.config())
    else:
        done, load_map = run_with_load_map(task.scenario, task.config())
        title = f"{task.head}{f', under {task.strategy}' if task.strategy else ''}"
        with _drawing(plot) as drawing:
            files = drawing.draw_run(title, done, load_map, plot / task.picture)
            drawn = drawing.drawn_run(task.head, task.strategy or "as written", done)
        note(f"pictures: {', '.join(map(str, files))}")
    judged = judge_all(note_wrong(done))
    head = {"file": str(task.loaded.path), "strategy": task.strategy}
    row = {**head, **to_row(done, judged)}
    if task.is_compared:
        row["compared"] = compared_row(task.strategy, done)
    return _Outcome(at=at, row=row, text=render(done, judged), drawn=drawn)


def _report_run(args: argparse.Namespace, task: _Task, outcome: _Outcome) -> None:
    """Print a run's output, then record it or compare it with the recorded one."""
    one, strategy, recorded = task.loaded, task.strategy, task.scenario.expected_output
    if not args.json:
        head = f"{task.head}{f' [{strategy}]' if strategy else ''}"
        answer(args, outcome.row, [head, *outcome.text.split("\n")])
    if args.rewrite:
        write_text(one.path, with_recorded(one.content, outcome.text))
        return
    is_as_written = not (strategy or args.set or args.seed is not None)
    if is_as_written and recorded and recorded != outcome.text:
        outcome.row["is_met"] = False
        note(f"{one.path}: the output is not what is recorded; --rewrite records it anew")
        lines = recorded.splitlines(), outcome.text.splitlines()
        note(*difflib.unified_diff(*lines, "recorded", "now", n=0, lineterm=""))


def _draw_side_by_side(plot: Path, runs: "Iterable[tuple[Path, DrawnRun]]") -> None:
    """A picture for each scenario that was run under several strategies."""
    for path, pairs in groupby(runs, itemgetter(0)):
        drawn_runs = [drawn for _, drawn in pairs]
        if len(drawn_runs) > 1:
            with _drawing(plot) as drawing:
                files = drawing.draw_strategies(drawn_runs, plot / f"{path.stem}-strategies")
            note(f"side by side: {', '.join(map(str, files))}")


@contextmanager
def _drawing(plot: Path) -> Iterator[types.ModuleType]:
    """Yield the drawing module.

    Raises CommandError if it is not installed, or the file can't be written.
    """
    try:
        yield importlib.import_module("jobs.operating.plots")  # needs matplotlib
    except ModuleNotFoundError as cause:
        raise missing_extra("simulate --plot", cause.name or "") or cause from None
    except OSError as cause:
        raise CommandError(
            f"pictures can't be written to {plot}",
            why=str(cause),
            next_step="name a folder that this user may write to",
        ) from None
