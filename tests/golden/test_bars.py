"""The bars of a default over all that is shipped: which of them `ballast` misses, and no others.

`bars.json` beside this file has, by scenario, the bars that are missed today. A bar that is missed
anew is a loss; one that is met is taken out of the file, so that it stays met.
"""

import io
import json
from pathlib import Path
from unittest import mock

import pytest

from jobs.cli import main
from jobs.operating.league_bars import missed_bars

HERE = Path(__file__).resolve()
CONF = HERE.parents[2] / "conf"
KNOWN = json.loads(HERE.with_name("bars.json").read_text())
SHIPPED = {
    "scenarios": CONF / "scenarios",
    "performance": CONF / "scenarios" / "performance",
    **{path.stem: path for path in sorted((CONF / "traces").glob("*.scenario"))},
}


@pytest.mark.long
@pytest.mark.parametrize("name", SHIPPED)
def test_ballast_misses_no_bar_that_it_met(name: str) -> None:
    with mock.patch("sys.stdout", new=io.StringIO()) as said:
        assert main(["league", str(SHIPPED[name]), "--strategy", "ballast,avg", "--json"]) == 0
    found = missed_bars(json.loads(said.getvalue()), "ballast")
    known = {scenario: KNOWN.get(scenario, []) for scenario in found}
    assert {scenario: sorted(bars) for scenario, bars in found.items()} == known, found


def test_bars_that_are_missed_are_of_what_is_shipped() -> None:
    shipped = {path.stem for path in CONF.glob("**/*.scenario")}
    assert KNOWN
    assert set(KNOWN) <= shipped
