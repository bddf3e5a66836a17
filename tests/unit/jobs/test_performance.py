"""What is measured of the four performance tests, and how it is written down."""

import json
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.operating.performance_tests import (
    CONTESTANTS,
    TESTS,
    balanced_after,
    last_split,
    performance_page,
    topic_spread,
)
from jobs.operating.simulations import load_scenarios
from lbcore.config.tree import Config
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.scenario.parse import parse_scenario

FOLDER = Path(__file__).parents[3] / "conf" / "scenarios" / "performance"
CRASH = """\
brokers 3
namespace t/n bundles=30 topics=2
own t/n 0-9 b1
own t/n 10-19 b2
own t/n 20-29 b3
load t/n even 1pt each
set pipeline.trigger_ms=2000 shedding.is_shedding=false
at 20s crash b1
run 90s
"""


def test_scenario_of_every_test_is_there() -> None:
    assert {path.stem for path in FOLDER.glob("*.scenario")} == {test.scenario for test in TESTS}
    assert all(load_scenarios([str(FOLDER)]))


def test_measures_of_a_run() -> None:
    run = run_scenario(parse_scenario(CRASH), Config())
    after = balanced_after(20_000)(run)
    assert after is not None
    assert after <= 25_000
    assert topic_spread(run) == 0
    assert last_split(run) is None


def test_page_sets_the_values_beside_the_document() -> None:
    test = TESTS[0]
    row = {
        "scenario": test.scenario,
        "strategy": "avg",
        "values": dict.fromkeys(test.measures, 150_000.0),
    }
    page = performance_page([row])
    assert "20 min (modular), 10 min (extensible)" in page
    assert "| Ballast's default | 150s | 150s | 150s |" in page


def test_performance_runs_a_scenario_for_each_contestant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scale-in.scenario").write_text(CRASH, encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("# Old\n\n## On the real pipeline\n\nas measured\n", encoding="utf-8")
    asked = ["performance", "--test", "scale-in", "--folder", str(tmp_path), "--page", str(page)]
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == list(CONTESTANTS.values())
    text = page.read_text(encoding="utf-8")
    assert "from ten brokers to five" in text
    assert "# Old" not in text
    assert text.endswith("|\n\n## On the real pipeline\n\nas measured\n")
