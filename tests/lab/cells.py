"""A figure of several runs as a table of the lab shows it."""

from collections.abc import Sequence

from tests.lab.records import middle


def cell(values: Sequence[float]) -> str:
    """The median, and the least and the most in brackets; "-" for what was not seen (below 0).

    Without brackets where least and most are shown alike.
    """
    if len(values) == 1:
        return _number(values[0])
    least, most = min(values), max(values)
    if min(values) < 0:  # not seen is more than the most
        seen = [one for one in values if one >= 0]
        least, most = min(seen, default=-1.0), -1.0
    if _number(least) == _number(most):
        return _number(least)
    return f"{_number(middle(values))} ({_number(least)}, {_number(most)})"


def _number(value: float) -> str:
    if value < 0:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
