"""Backtests on tables that the job's own sink has written: a run that nobody balanced, again."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_writer import TableWriter
from jobs.cli import main
from jobs.console import CommandError
from jobs.operating.backtesting import Past, make_past, read_recorded

PER_BUNDLE = 4 * 400.0


@pytest.fixture(scope="module")
def past(recorded_tables: Path) -> Past:
    return make_past(read_recorded(TableReader(recorded_tables, "local")), 0, 1)


def test_history_says_what_the_run_was(past: Past) -> None:
    assert past.history.fit.full_rate == pytest.approx(40_000, rel=0.03)
    assert [spec.name for spec in past.scenario.brokers if not spec.is_absent] == ["b1", "b2", "b3"]
    assert [(one.verb, one.brokers) for one in past.scenario.scenario_events] == [
        ("start", ("b4",))
    ]
    assert past.scenario.namespaces[0].bundles == 24
    assert past.history.moves() == []


def test_recorded_load_is_that_of_the_bundles(past: Past) -> None:
    space = past.recording.namespaces["t/n"]
    rates = space.rates[:, :, :2].sum(axis=2)
    assert rates[1, 0] == pytest.approx(PER_BUNDLE, rel=0.01)
    assert PER_BUNDLE * 1.1 < rates[-1, 0] <= PER_BUNDLE * 1.25  # an average of ten reports
    assert rates[-1, 10] == pytest.approx(PER_BUNDLE, rel=0.01)


def answered(capsys: pytest.CaptureFixture[str], tables: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["backtest", "--tables", str(tables), *words, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_strategy_that_sheds_would_have_been_more_even(
    recorded_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, idle, avg = answered(capsys, recorded_tables, "--strategy", "none,avg")
    assert recorded["strategy"] == "recorded"
    assert recorded["moves"] == idle["moves"] == 0
    assert idle["floor_adjusted.p50"] == pytest.approx(recorded["floor_adjusted.p50"], rel=0.05)
    assert avg["moves"] > 0
    assert avg["floor_adjusted.p50"] < idle["floor_adjusted.p50"] - 0.3


def test_end_of_a_history_can_be_tested_alone(
    recorded_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["backtest", "--tables", str(recorded_tables), "--last", "3m", "--strategy", "none"])
        == 0
    )
    out = capsys.readouterr().out
    assert "4 brokers, 24 bundles, 3 min from" in out
    assert "open loop" in out


def test_tables_without_history_are_told(tmp_path: Path) -> None:
    TableWriter(tmp_path)
    recorded = read_recorded(TableReader(tmp_path, "local"))
    with pytest.raises(CommandError, match="recorded nothing"):
        make_past(recorded, 0, 1)
