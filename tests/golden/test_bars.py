"""The bars of the default over all recorded comparisons: what it must hold against the others.

Read from the tables below `---- compared`, so nothing runs here. `bars.json` has the known misses,
each with its reason.
"""

import json

from tests.scoreboard import BARS, Compared, recorded

OURS, IDLE = "ballast", "none"
ABOVE_TIMES, LEAST_TIMES, THRASH_MAX = 0.5, 1.5, 0.01
KNOWN = json.loads(BARS.read_text(encoding="utf-8"))


def missed(found: list[Compared]) -> set[str]:
    """The bars that are missed, each as "bar" or "bar: scenario"."""
    names = {row.strategy for one in found for row in one.rows} - {OURS, IDLE}
    above = {name: sum(one.row(name).minutes_above for one in found) for name in {OURS, *names}}
    moves = sum(one.row(OURS).moves for one in found)
    counted = [one for one in found if one.by_report_moves is not None]
    by_report = sum(one.by_report_moves or 0 for one in counted)
    made = sum(one.row(OURS).moves for one in counted)
    returns = sum(one.row(OURS).returns for one in found)
    misses = {
        "time above 1.2": above[OURS] > ABOVE_TIMES * min(above[name] for name in names),
        "moves by report": made > LEAST_TIMES * by_report,
        "thrash": returns > THRASH_MAX * moves,
    }
    for one in found:
        misses[f"failed expectation: {one.name}"] = one.row(OURS).failed > 0
        misses[f"worse than none: {one.name}"] = (
            one.row(OURS).minutes_above > one.row(IDLE).minutes_above
        )
    return {bar for bar, is_missed in misses.items() if is_missed}


def test_default_misses_no_bar_but_the_known_ones() -> None:
    assert missed(recorded()) == KNOWN.keys()
