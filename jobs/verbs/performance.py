"""The four performance tests of the extensible load balancer's announcement, in virtual time.

Beside the document's figures, for modular-style, extensible-style and Ballast's own rules; what is
modelled and what is not stands at the top of the page. Takes minutes.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.console import Exit, answer, note
from jobs.operating.many_runs import ManyRuns, add_workers_argument
from jobs.operating.performance_tests import (
    FOLDER,
    TESTS,
    PerformanceTest,
    measured_part,
    performance_page,
    row_of,
    table_of,
)
from jobs.operating.simulations import (
    SUFFIX,
    Loaded,
    add_rows_argument,
    config_of,
    earlier_rows,
    load_scenarios,
    weight_of,
    write_text,
)
from lbcore.config.tree import Config
from lbcore.sim.engine.rehearsal import Tell, run_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A test by its number, under a strategy."""

    test: int
    strategy: str
    one: Loaded

    @property
    def config(self) -> Config:
        """What it is run with."""
        return config_of(self.one.scenario, self.strategy, ())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tests, and where the page goes."""
    names = [test.scenario for test in TESTS]
    parser.add_argument("--test", action="append", choices=names, help="default: all of them")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page (Markdown)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the scenarios are")
    add_rows_argument(parser)
    add_workers_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the tests, and write them down."""
    rows = earlier_rows(args)
    known = {(row["scenario"], row["strategy"]) for row in rows}
    wanted = [test for test in TESTS if args.test is None or test.scenario in args.test]
    missing = [
        _Task(test=TESTS.index(test), strategy=strategy, one=_scenario_of(args.folder, test))
        for test in wanted
        for strategy in test.only
        if (test.scenario, strategy) not in known
    ]
    runs = ManyRuns(_played, args.workers)
    rows += runs.results(missing, [weight_of(one.one.scenario, one.config) for one in missing])
    if runs.is_cut and args.page:
        note(f"{args.page} is left as it is: tests are missing")
    elif args.page:
        before = args.page.read_text(encoding="utf-8") if args.page.is_file() else ""
        write_text(args.page, performance_page(rows) + measured_part(before))
    answer(args, rows, [line for test in wanted for line in _text(test, rows)])
    return Exit.CUT if runs.is_cut else Exit.DONE


def _scenario_of(folder: Path, test: PerformanceTest) -> Loaded:
    (one,) = load_scenarios([str(folder / f"{test.scenario}{SUFFIX}")])
    return one


def _played(task: _Task, tell: Tell) -> dict[str, Any] | None:
    """The row of a test under a strategy; None where it was given up."""
    done = run_scenario(task.one.scenario, task.config, tell)
    if done.is_cut:
        return None
    return row_of(TESTS[task.test], task.strategy, done)


def _text(test: PerformanceTest, rows: list[dict[str, Any]]) -> Iterable[str]:
    yield test.title
    yield f"  the document: {test.document}"
    for line in table_of(test, rows):
        yield f"  {line[0]:30}" + "".join(f"{cell:>27}" for cell in line[1:])
