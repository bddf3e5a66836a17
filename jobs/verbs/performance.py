"""The four performance tests of the extensible load balancer's announcement, in virtual time.

Beside the document's figures, for modular-style, extensible-style and Ballast's own rules; what is
modelled and what is not stands at the top of the page. Takes minutes.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs.console import Exit, answer
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
    add_rows_argument,
    config_of,
    earlier_rows,
    load_scenarios,
    write_text,
)
from lbcore.sim.engine.rehearsal import run_scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tests, and where the page goes."""
    names = [test.scenario for test in TESTS]
    parser.add_argument("--test", action="append", choices=names, help="default: all of them")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page (Markdown)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the scenarios are")
    add_rows_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Run the tests, and write them down."""
    rows = earlier_rows(args)
    known = {(row["scenario"], row["strategy"]) for row in rows}
    wanted = [test for test in TESTS if args.test is None or test.scenario in args.test]
    rows += [
        _run(args.folder, test, strategy)
        for test in wanted
        for strategy in test.only
        if (test.scenario, strategy) not in known
    ]
    if args.page:
        before = args.page.read_text(encoding="utf-8") if args.page.is_file() else ""
        write_text(args.page, performance_page(rows) + measured_part(before))
    answer(args, rows, "\n".join(line for test in wanted for line in _text(test, rows)))
    return Exit.DONE


def _run(folder: Path, test: PerformanceTest, strategy: str) -> dict[str, Any]:
    (one,) = load_scenarios([str(folder / f"{test.scenario}{SUFFIX}")])
    done = run_scenario(one.scenario, config_of(one.scenario, strategy, ()))
    return row_of(test, strategy, done)


def _text(test: PerformanceTest, rows: list[dict[str, Any]]) -> Iterable[str]:
    yield test.title
    yield f"  the document: {test.document}"
    for line in table_of(test, rows):
        yield f"  {line[0]:30}" + "".join(f"{cell:>27}" for cell in line[1:])
