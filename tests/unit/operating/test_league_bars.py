"""The bars that a strategy is held to: each is missed by what is beyond it, and by nothing else."""

from pathlib import Path
from typing import Any

import pytest

from jobs.operating.league_bars import bar_lines, bars_of, bars_page, missed_bars
from jobs.operating.league_reasons import REASONS

Row = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs" / "league.md"


def row(strategy: str = "ballast", scenario: str = "s1", **changes: Any) -> Row:
    """A row that meets every bar: the least of 10 moves was 8, all were balanced after a minute."""
    possible = {"bound_p95": 1.1, "least": 8, **changes.pop("possible", {})}
    return {
        "scenario": scenario,
        "title": "A scenario",
        "strategy": strategy,
        "unmet": [],
        "floor_adjusted.p50": 1.1,
        "floor_adjusted.p95": 1.2,
        "balanced": 60_000.0,
        "moves": 10.0,
        "least": 7,
        "thrash": 0.0,
        "unserved": 10_000.0,
        "possible": possible,
        **changes,
    }


@pytest.mark.parametrize(
    ("mine", "other", "missed"),
    [
        (row(), row("avg"), set()),
        (row(unmet=["moves <= 2"]), row("avg"), {"unmet"}),
        (row(**{"floor_adjusted.p95": 1.21}), row("none", unmet=["x"]), {"floor p95"}),
        (row(**{"floor_adjusted.p95": 1.5, "possible": {"bound_p95": 1.16}}), None, set()),
        (row(moves=14.0), None, set()),
        (row(moves=15.0), None, {"moves"}),
        (row(moves=99.0, least=None, possible={"least": None}), None, set()),
        (row(moves=20.0, possible={"exact_least": 13}), None, set()),
        (row(moves=13.0), row("avg", moves=10.0), {"moves", "worse in"}),
        (row(moves=13.0), row("avg", moves=10.0, **{"floor_adjusted.p95": 1.4}), set()),
        (row(moves=13.0), row("avg", moves=10.0, unmet=["x"]), set()),
        (row(moves=13.0), row("none", moves=10.0), {"worse in"}),
        (row(thrash=0.01), None, set()),
        (row(thrash=0.011), None, {"thrash"}),
        (row(balanced=170_000.0), row("uniform", moves=30.0, balanced=60_000.0), {"worse in"}),
        (
            row(balanced=190_000.0),
            row("uniform", moves=30.0, balanced=60_000.0),
            {"balanced", "worse in"},
        ),
        (row(balanced=None), row("uniform", balanced=None), set()),
        (row(unserved=30_000.0), row("avg"), {"worse in"}),
    ],
)
def test_bar_is_missed_by_what_is_beyond_it(mine: Row, other: Row | None, missed: set[str]) -> None:
    assert set(bars_of(mine, [mine, *([other] if other else [])])) == missed


def test_lines_mark_what_is_missed_and_sum_it_up() -> None:
    rows = [row(), row("avg"), row(scenario="s2", moves=30.0), row("avg", "s2", moves=8.0)]
    said = "\n".join(bar_lines(rows, "ballast"))
    assert " 30! " in said
    assert "moves 30 (avg 8)" in said
    assert said.endswith("ballast meets all bars on 1 of 2; misses moves on 1, worse in on 1")
    assert missed_bars(rows, "ballast")["s1"] == {}
    assert not list(bar_lines(rows, "uniform"))


def test_page_has_a_section_where_rows_tell_what_was_possible() -> None:
    old = {name: value for name, value in row().items() if name != "possible"}
    assert not list(bars_page([old], "ballast"))
    page = "\n".join(bars_page([row(moves=30.0), old], "ballast"))
    assert "## The bars of `ballast`" in page
    assert "| s1 | 0 | 1.20 | 1.10 | 30! | 8 |" in page


def test_page_says_why_ours_misses_a_bar() -> None:
    name, why = next(iter(REASONS.items()))
    rows = [row(scenario=name, moves=30.0), row(scenario="s2")]
    page = "\n".join(bars_page(rows, "ballast"))
    assert page.endswith(f"Why:\n\n- {name}: {why}")
    avg = [{**one, "strategy": "avg"} for one in rows]
    assert "Why" not in "\n".join(bars_page(avg, "avg"))
    assert "Why" not in "\n".join(bars_page([row(scenario=name)], "ballast"))


def test_shipped_page_says_why_of_every_scenario_that_misses_a_bar() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.split("## The bars of `ballast`")[1].split("## What was possible")[0]
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    missed = [
        name.removeprefix("| ")
        for name, *cells, worse in lines
        if worse != "- |" or any("!" in cell for cell in cells)
    ]
    assert missed
    assert [line.split(":")[0] for line in table.splitlines() if line.startswith("- ")] == [
        f"- {name}" for name in missed
    ]
    assert set(REASONS) == set(missed)
