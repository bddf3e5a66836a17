"""The verb `simulate`: what it answers, records, and refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from jobs.console import Exit
from jobs.operating.simulations import ManyRuns
from lbcore.sim.reports.report import COLUMNS, compared_strategies
from lbcore.sim.scenario.parse import parse_scenario
from tests.support import Capsys

TEXT = """title Nothing happens
brokers 2
namespace t/n bundles=4
own t/n all all
load t/n even 10%
run 20s
expect moves == 0
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "quiet.scenario"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_scenario_that_holds_is_done_and_says_its_hash(scenario: Path, capsys: Capsys) -> None:
    assert main(["simulate", str(scenario)]) == 0
    said = capsys.readouterr().out
    assert "ok     moves == 0: 0" in said
    assert "hash " in said
    scenario.write_text(TEXT.replace("moves == 0", "moves >= 1"), encoding="utf-8")
    assert main(["simulate", str(scenario)]) == 1
    assert main(["simulate", str(scenario), "--compare", "none"]) == 0
    assert "expect moves >= 1: none 0!" in capsys.readouterr().out


def test_each_strategy_is_a_run_of_its_own(scenario: Path, capsys: Capsys) -> None:
    folder = str(scenario.parent)
    assert main(["simulate", folder, "--strategy", "avg,pulsar-threshold", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == ["avg", "pulsar-threshold"]
    assert all(row["metrics"]["moves"] == 0.0 for row in rows)


def test_output_that_was_recorded_must_come_again(scenario: Path, capsys: Capsys) -> None:
    assert main(["simulate", str(scenario), "--rewrite"]) == 0
    assert main(["simulate", str(scenario)]) == 0
    recorded = scenario.read_text(encoding="utf-8")
    scenario.write_text(recorded.replace("hash ", "hash 0"), encoding="utf-8")
    capsys.readouterr()
    assert main(["simulate", str(scenario)]) == 1
    assert "is not what is recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--strategy", "best"], "there is no strategy 'best'"),
        (["--strategy", "extensibel"], "did you mean extensible? "),
        (["--set", "sheding.strategy=avg"], "did you mean shedding.strategy?"),
        (["--set", "no.such=1"], "can't be used"),
        (["--rewrite", "--seed", "2"], "nothing can be recorded"),
        (["--compare", "avg", "--strategy", "none"], "leave one of them out"),
    ],
)
def test_misuse_is_told(scenario: Path, options: list[str], told: str, capsys: Capsys) -> None:
    assert main(["simulate", str(scenario), *options]) == 2
    assert told in capsys.readouterr().err


def test_line_that_can_not_be_read_is_named(scenario: Path, capsys: Capsys) -> None:
    scenario.write_text(TEXT.replace("run 20s", "run soon"), encoding="utf-8")
    assert main(["simulate", str(scenario)]) == 2
    error = capsys.readouterr().err
    assert "quiet.scenario, line 6" in error
    assert "a time such as" in error


def test_compare_shows_each_strategy_in_one_table(scenario: Path, capsys: Capsys) -> None:
    assert main(["simulate", str(scenario), "--compare", "avg,none"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == str(scenario)
    assert lines[0].split() == ["strategy", *COLUMNS]
    assert [line.split()[0] for line in lines[1:3]] == ["avg", "none"]
    assert main(["simulate", str(scenario), "--compare", "avg,none", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["strategy"], row["compared"]["moves"]) for row in rows] == [
        ("avg", 0.0),
        ("none", 0.0),
    ]


def test_comparison_is_recorded_below_the_output_and_rewritten_with_it(scenario: Path) -> None:
    assert main(["simulate", str(scenario), "--rewrite"]) == 0
    recorded = parse_scenario(scenario.read_text(encoding="utf-8")).expected_output
    assert main(["simulate", str(scenario), "--compare", "none,avg", "--rewrite"]) == 0
    written = scenario.read_text(encoding="utf-8")
    found = parse_scenario(written)
    assert found.expected_output == recorded
    assert compared_strategies(found.compared) == ["none", "avg"]
    scenario.write_text(written.replace("hash ", "hash 0"), encoding="utf-8")
    assert main(["simulate", str(scenario), "--rewrite"]) == 0
    assert scenario.read_text(encoding="utf-8") == written


def test_comparison_that_is_cut_short_is_not_recorded(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["simulate", str(scenario), "--compare", "none,avg", "--rewrite"]) == 0
    written = scenario.read_text(encoding="utf-8")
    results = ManyRuns.results

    def first_only(runs: ManyRuns[Any], items: Any, weights: Any = ()) -> Iterator[Any]:
        yield next(results(runs, items, weights))
        runs.is_cut = True

    monkeypatch.setattr(ManyRuns, "results", first_only)
    command = ["simulate", str(scenario), "--compare", "avg,none,overload", "--rewrite"]
    assert main(command) == Exit.CUT
    assert scenario.read_text(encoding="utf-8") == written


def test_scenario_that_is_named_twice_runs_once(scenario: Path, capsys: Capsys) -> None:
    assert main(["simulate", str(scenario), str(scenario.parent), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
