"""What a run is held against: what nobody could, what nobody could know, and the rest."""

import json
from pathlib import Path

import pytest

from jobs.cli import main
from jobs.operating.league_bounds import possible_cells, possible_page
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.judge.possible import beside_bound, what_was_possible
from lbcore.sim.scenario.parse import parse_scenario

UNEVEN = """\
brokers 2
namespace t/n bundles=100 topics=1
own t/n 0-89 b1
own t/n 90-99 b2
load t/n even 1pt each
set pipeline.trigger_ms=2000
run 5m
"""
HOT = """\
brokers 4
namespace t/n bundles=8 topics=1
own t/n all all
load t/n even 2pt each
load t/n topic 60pt bundles=0-0
set pipeline.trigger_ms=2000
run 5m
"""
STILL = "shedding.is_shedding=false"


def run_of(text: str, *settings: str) -> Run:
    scenario = parse_scenario(text)
    return run_scenario(scenario, parse_assignments(Config(), [*scenario.settings, *settings]))


def test_run_that_moves_nothing_is_above_where_somebody_could_have_been_below() -> None:
    found = what_was_possible(run_of(UNEVEN, STILL))
    assert found.bound_p95 == pytest.approx(1.0)
    assert found.over_p95 == pytest.approx(1.8)
    assert found.above_ms == 300_000
    assert (found.nobody_ms, found.unforeseen_ms) == (0, 60_000)
    assert found.avoidable_ms == 240_000
    assert found.least == 30
    assert (found.report_moves, found.report_above_ms) == (30, 60_000)


def test_bundle_that_is_more_than_a_fair_load_is_nobodys_fault() -> None:
    found = what_was_possible(run_of(HOT, STILL))
    assert found.bound_p50 == pytest.approx(62 / 19, rel=0.01)
    assert found.nobody_ms == found.above_ms == 300_000
    assert found.over_p50 == pytest.approx(1.0, abs=0.05)
    assert (found.avoidable_ms, found.least) == (0, 0)


def test_means_beside_the_bound_tell_what_was_anybodys_fault() -> None:
    uneven, hot = beside_bound(run_of(UNEVEN, STILL)), beside_bound(run_of(HOT, STILL))
    assert uneven.imbalance == pytest.approx(1.8)
    assert uneven.bound == pytest.approx(1.0)
    assert uneven.over == pytest.approx(1.8)
    assert hot.bound == pytest.approx(62 / 19, rel=0.01)
    assert hot.over == pytest.approx(1.0, abs=0.05)


def test_bundles_of_a_broker_that_is_gone_must_move() -> None:
    crash = UNEVEN.replace("run 5m", "at 60s crash b2\nrun 5m")
    assert what_was_possible(run_of(crash, STILL)).least == 40


def test_run_that_split_is_held_against_single_topics() -> None:
    text = HOT.replace("topics=1", "topics=4").replace(" bundles=0-0", "")
    split = text.replace(
        "run 5m", "at 60s command split_bundle bundle=t/n/0x00000000_0x20000000\nrun 5m"
    )
    found = what_was_possible(run_of(split, STILL))
    assert (found.least, found.report_moves) == (None, None)
    whole = what_was_possible(run_of(text, STILL))
    assert found.bound_p50 is not None
    assert whole.bound_p50 is not None
    assert found.bound_p50 <= whole.bound_p50


def test_league_says_what_was_possible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "uneven.scenario", tmp_path / "page.md"
    path.write_text(UNEVEN.replace("bundles=100", "bundles=10").replace("0-89", "0-8")
                    .replace("90-99", "9-9").replace("1pt", "10pt"))  # fmt: skip
    assert main(["league", str(path), "--strategy", "none", "--exact", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["possible"]["least"] == row["possible"]["exact_least"] == 3
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert main(["league", "--rows", str(rows), "--page", str(page)]) == 0
    assert "| `none` | 1.00 | 1.00 | 1.80 | 1.80 | 5m | 0m | 1m | 4m | 0 | =3 | 0.0 | 3 / 1m |" in (
        page.read_text()
    )
    assert "what was possible" in capsys.readouterr().out


def test_rows_of_before_say_nothing_of_it() -> None:
    assert list(possible_page([{"scenario": "s", "strategy": "avg"}])) == []


def test_moves_are_over_the_least_where_there_is_one() -> None:
    ratios = dict.fromkeys(("bound_p50", "bound_p95", "over_p50", "over_p95"), 1.0)
    times = dict.fromkeys(("above_ms", "nobody_ms", "unforeseen_ms", "avoidable_ms"), 0)
    found = {**ratios, **times, "least": 4, "report_moves": None, "report_above_ms": None}
    assert possible_cells({"moves": 10.0, "possible": found})[-4:] == ["10", "4", "2.5", "-"]
    assert possible_cells({"moves": 10.0, "possible": {**found, "least": 0}})[-2] == "-"
