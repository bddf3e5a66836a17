"""Performance tests and full brokers come out as recorded, and meet what they expect."""

from pathlib import Path

import pytest

from jobs.operating.simulations import config_of, load_scenarios
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.reports.report import judge_all, render

FOLDER = Path(__file__).parents[2] / "conf" / "scenarios"
FOLDERS = {"performance": 5, "saturation": 4}
NAMES = sorted(
    f"{folder}/{path.stem}" for folder in FOLDERS for path in (FOLDER / folder).glob("*.scenario")
)
SLOW = ("performance/reconnect", "saturation/no-cascade", "saturation/one-large-bundle")


def test_every_scenario_of_a_folder_has_a_recorded_output_that_meets_its_expectations() -> None:
    assert len(NAMES) == sum(FOLDERS.values())
    for name in NAMES:
        (loaded,) = load_scenarios([str(FOLDER / f"{name}.scenario")])
        lines = loaded.scenario.recorded.splitlines()
        met = [line for line in lines if line.startswith("ok ")]
        assert len(met) == len(loaded.scenario.expectations) > 0
        assert not [line for line in lines if line.startswith("FAILED ")]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name in SLOW else []) for name in NAMES],
)
def test_scenario_of_a_folder_comes_out_as_recorded(name: str) -> None:
    (loaded,) = load_scenarios([str(FOLDER / f"{name}.scenario")])
    run = run_scenario(loaded.scenario, config_of(loaded.scenario, "", ()))
    assert render(run, judge_all(run)) == loaded.scenario.recorded, (
        f"look at the difference; if it is meant: ballast simulate {loaded.path} --rewrite"
    )
