"""The shipped scenarios: each known pathology of balancers, with what must come of it.

What came of them is recorded in their files below ----, to the hash of the trace: a change is
looked at as a difference, and recorded anew with `ballast simulate FILE --rewrite`. Short ones run
always; all of them, some of hours, and the tables below ---- compared, with `make test-long`. A row
of `ballast` that is older than the output above it is found without a run. WEAK are those whose
expectations their own strategy does not meet: they must go on failing until somebody mends that.
The strategy `ballast` meets them.
"""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from jobs.operating.simulations import Loaded, config_of, load_scenarios
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.reports.report import (
    compared_row,
    compared_strategies,
    judge_all,
    render,
    render_comparison,
    table_cells,
)

CONF = Path(__file__).parents[2] / "conf"
FOLDER = CONF / "scenarios"
NAMES = sorted(
    path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("**/*.scenario")
)
COMPARED = [
    one.path.relative_to(CONF).with_suffix("").as_posix()
    for one in load_scenarios([str(path) for path in sorted(CONF.glob("**/*.scenario"))])
    if one.scenario.compared
]
SHORT = (
    *("g05", "g10", "g11", "g14", "g16", "g17", "g20"),
    *("isolation/busy", "saturation/all"),
)
"""Those that take some seconds."""
WEAK = {
    "g07-load-of-another-process": "uniform moves bundles back: 36 returns in 40 minutes",
}


@lru_cache(maxsize=2)
def done(name: str, strategy: str = "") -> tuple[Loaded, Run]:
    (loaded,) = load_scenarios([str(FOLDER / f"{name}.scenario")])
    return loaded, run_scenario(loaded.scenario, config_of(loaded.scenario, strategy, ()))


def unmet(name: str, strategy: str = "") -> list[str]:
    _, run = done(name, strategy)
    return [one.expectation.text for one in judge_all(run) if not one.is_met]


def _marked(name: str) -> object:
    return pytest.param(name, marks=[] if name.startswith(SHORT) else [pytest.mark.long])


def test_every_golden_scenario_is_there() -> None:
    golden = [name[:3] for name in NAMES if "/" not in name]
    assert golden == [f"g{number:02d}" for number in range(1, 31)]
    assert WEAK.keys() <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_output_meets_all_expectations(name: str) -> None:
    (loaded,) = load_scenarios([str(FOLDER / f"{name}.scenario")])
    lines = loaded.scenario.expected_output.splitlines()
    met = [line for line in lines if line.startswith("ok ")]
    failed = [line for line in lines if line.startswith("FAILED ")]
    assert len(met) + len(failed) == len(loaded.scenario.expectations) > 0
    assert bool(failed) == (name in WEAK), failed


@pytest.mark.parametrize("name", [_marked(name) for name in NAMES])
def test_golden_scenario_comes_out_as_recorded(name: str) -> None:
    loaded, run = done(name)
    text = render(run, judge_all(run))
    assert text == loaded.scenario.expected_output, (
        f"look at the difference; if it is meant: ballast simulate {loaded.path} --rewrite"
    )


@pytest.mark.parametrize("name", NAMES)
def test_row_of_the_default_strategy_is_as_old_as_the_output_above_it(name: str) -> None:
    (loaded,) = load_scenarios([str(FOLDER / f"{name}.scenario")])
    rows = {strategy: cells[-1] for strategy, *cells in table_cells(loaded.scenario.compared)}
    if config_of(loaded.scenario, "", ()).shedding.strategy != "ballast" or not rows:
        return
    assert loaded.scenario.expected_output.splitlines()[-1] == f"hash {rows['ballast']}", (
        f"ballast simulate {loaded.path} --rewrite"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", COMPARED)
def test_recorded_comparison_comes_out_again(name: str) -> None:
    (loaded,) = load_scenarios([str(CONF / f"{name}.scenario")])
    scenario = loaded.scenario
    rows = [
        compared_row(strategy, run_scenario(scenario, config_of(scenario, strategy, ())))
        for strategy in compared_strategies(scenario.compared)
    ]
    assert render_comparison(rows) == scenario.compared, (
        f"look at the difference; if it is meant: ballast simulate {loaded.path} --rewrite"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(WEAK))
def test_weak_scenario_is_mended_by_our_own_strategy(name: str) -> None:
    assert unmet(name, "ballast") == []


def test_hash_is_the_same_in_every_process_and_on_older_processors() -> None:
    scenario = FOLDER / "g14-restart-between-hits.scenario"
    command = [sys.executable, "-m", "jobs.cli", "simulate", str(scenario)]
    outputs = set()
    for seed, without in (("0", ""), ("1", "AVX2 FMA3 AVX512F AVX512_SKX")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "NPY_DISABLE_CPU_FEATURES": without}
        ended = subprocess.run(
            command,
            cwd=FOLDER.parents[1],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(ended.stdout)
    assert len(outputs) == 1
    assert "\nhash " in outputs.pop()
