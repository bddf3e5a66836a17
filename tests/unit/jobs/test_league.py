"""The league's page, and the least moves that a run is held against."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.processes.shipped import CONF, folder_name
from jobs.cli import main
from jobs.operating.league_figures import is_worse
from jobs.operating.league_page import league_page
from lbcore.config.tree import Config
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.judge.fewest_moves import first_owners, least_moves
from lbcore.sim.scenario.parse import parse_scenario

UNEVEN = """\
brokers 2
namespace t/n bundles=100 topics=1
own t/n 0-89 b1
own t/n 90-99 b2
load t/n even 1pt each
set pipeline.trigger_ms=2000 shedding.is_shedding=false
"""


def row(strategy: str, scenario: str = "s1", **changes: Any) -> dict[str, Any]:
    """A row as the league makes it: balanced, nothing moved."""
    return {
        "scenario": scenario,
        "title": "A scenario",
        "strategy": strategy,
        "unmet": [],
        "floor_adjusted.p50": 1.0,
        "floor_adjusted.p95": 1.0,
        "imbalance.p50": 1.0,
        "imbalance.p95": 1.0,
        "balanced": 0.0,
        "moves": 0.0,
        "least": 0,
        "thrash": 0.0,
        "splits": 0.0,
        "topics": 0,
        "unserved": 0.0,
        **changes,
    }


def test_least_moves_bring_the_first_owners_to_the_limit() -> None:
    run = run_scenario(parse_scenario(UNEVEN + "run 20s\n"), Config())
    assert least_moves(run) == 30


def test_least_moves_count_all_bundles_of_a_broker_that_is_gone() -> None:
    run = run_scenario(parse_scenario(UNEVEN + "at 20s crash b2\nrun 90s\n"), Config())
    assert set(run.recorder.owner.values()) == {"b1"}
    assert list(first_owners(run).values()).count("b2") == 10
    assert least_moves(run) == 10


@pytest.mark.parametrize(
    ("metric", "mine", "other", "worse"),
    [
        ("floor_adjusted.p50", 1.05, 1.0, True),
        ("floor_adjusted.p50", 1.01, 1.0, False),
        ("balanced", None, 60_000.0, True),
        ("balanced", 60_000.0, None, False),
        ("moves", 115.0, 100.0, True),
        ("moves", 105.0, 100.0, False),
    ],
)
def test_difference_counts_beyond_a_margin(
    metric: str, mine: float | None, other: float | None, *, worse: bool
) -> None:
    assert is_worse(metric, mine, other) is worse


def test_page_names_what_ours_is_worse_in_and_who_is_best() -> None:
    better = row("avg", "s2", moves=50.0)
    page = league_page(
        [
            row("ballast"),
            row("avg", **{"floor_adjusted.p50": 1.5}, balanced=None),
            row("ballast", "s2", moves=80.0),
            better,
        ]
    )
    assert "floor p50 1.00 (1.50)" in page
    assert "| s2 | - | moves 80 (50) |" in page
    assert "| s2 | moves | 80 | 50 (`avg`) |" in page
    assert "`avg` stays the default" in page


def test_page_sums_apart_what_all_have_played() -> None:
    page = league_page([row("ballast"), row("avg"), row("none"), row("avg", "s2", moves=8.0)])
    both, _, every = page.partition("Of all 2, those who have played them all:")
    assert "Of those 1 of 2 scenarios that all of them have played (who is not" in both
    assert "| `avg` | 1 of 1 |" in both
    assert "| `none` | 1 of 1 |" in both
    assert "| `avg` | 2 of 2 | 0 | 2 | 1.00 | 1.00 | 4 |" in every
    assert "| `ballast` | 2 of 2" not in every


def test_page_sums_each_folder_and_names_the_command_that_wrote_it() -> None:
    traces = {"folder": "conf/traces"}
    page = league_page([row("ballast"), row("ballast", "s2", moves=8.0, **traces)])
    assert "`ballast league conf/scenarios conf/traces --strategy ballast --page FILE`" in page
    scenarios, _, rest = page.partition("Of `conf/traces`:")
    assert "Of `conf/scenarios`:" in scenarios
    assert "| `ballast` | 1 of 1 | 0 | 1 | 1.00 | 1.00 | 0 |" in scenarios
    assert "| `ballast` | 1 of 1 | 0 | 1 | 1.00 | 1.00 | 8 |" in rest


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CONF / "traces" / "day.scenario", "conf/traces"),
        (Path("conf/scenarios/g01.scenario"), "conf/scenarios"),
        (Path("mine/day.scenario"), "mine"),
    ],
)
def test_folder_is_named_as_it_is_typed(path: Path, name: str) -> None:
    assert folder_name(path) == name


def test_page_says_when_ours_may_be_the_default() -> None:
    page = league_page([row("ballast"), row("avg", balanced=None)])
    assert "By this rule it may be the default." in page


def test_league_writes_a_page_of_rows_that_it_gave_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, page = tmp_path / "rows.json", tmp_path / "league.md"
    rows.write_text(json.dumps([row("ballast"), row("avg", moves=9.0)]), encoding="utf-8")
    assert main(["league", "--rows", str(rows), "--page", str(page)]) == 0
    assert "s1" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").startswith("# The league")


def test_league_without_anything_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["league"]) == 2
    assert "neither a scenario nor --rows" in capsys.readouterr().err
