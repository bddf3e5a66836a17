"""The scoreboard is what the recorded tables say, and reads them as they were written."""

from pathlib import Path

from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.reports.comparison import compared_row, render_comparison
from lbcore.sim.scenario.parse import parse_scenario, with_compared
from tests.scoreboard import PAGE, PUBLISHED, page, recorded

UNEVEN = """\
title Uneven
brokers 2
namespace t/n bundles=10 topics=1
own t/n 0-8 b1
own t/n 9-9 b2
load t/n even 10pt each
set pipeline.trigger_ms=2000
run 5m
expect moves >= 100
expect balanced:1.2 <= 3m from 1m
"""
WORDS_MAX = 2_500


def test_page_is_drawn_from_the_recorded_tables() -> None:
    text = page(recorded())
    assert PAGE.read_text(encoding="utf-8") == text, "python -m tests.scoreboard"
    assert len(text.split()) <= WORDS_MAX


def test_every_published_figure_has_its_scenario() -> None:
    assert {one.name for one in recorded() if one.folder == "conf/scenarios/asim"} == set(PUBLISHED)


def test_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_scenario(parse_scenario(UNEVEN), Config())
    rows = [compared_row("ballast", run), compared_row("none", run)]
    folder = tmp_path / "conf" / "scenarios"
    folder.mkdir(parents=True)
    text = with_compared(UNEVEN, render_comparison(rows))
    (folder / "uneven.scenario").write_text(text, encoding="utf-8")
    (folder / "bare.scenario").write_text(UNEVEN, encoding="utf-8")
    (found,) = recorded(tmp_path / "conf")
    assert (found.name, found.folder) == ("uneven", "conf/scenarios")
    assert [row.strategy for row in found.rows] == ["ballast", "none"]
    assert found.row("none").moves == rows[0]["moves"]
    assert found.row("none").minutes_above == round(rows[0]["above_ms"] / 60_000, 1)
    assert found.expected["moves >= 100"] == dict.fromkeys(
        ("ballast", "none"), f"{rows[0]['moves']:g}!"
    )
    assert found.by_report_moves == rows[0]["report_moves"]
    assert "uneven |" in page([found])
