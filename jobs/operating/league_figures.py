"""The figures that the league judges by, and which differences are noise.

Decides the columns, and the margins: two hundredths of an imbalance, a tenth of moves or of time
without service. Source: ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from lbcore.sim.judge.possible import BAR

Row: TypeAlias = Mapping[str, Any]
"""What a strategy came to on a scenario, by the names of metrics."""

OURS, DEFAULT = "ballast", "avg"

COLUMNS: Mapping[str, tuple[str, str]] = {
    "floor p50": ("floor_adjusted.p50", ""),
    "floor p95": ("floor_adjusted.p95", ""),
    "imb p50": ("imbalance.p50", ""),
    "imb p95": ("imbalance.p95", ""),
    "balanced": ("balanced", f"{BAR}"),
    "moves": ("moves", ""),
    "least": ("", ""),
    "thrash": ("thrash", ""),
    "splits": ("splits", ""),
    "topics": ("", ""),
    "unserved": ("unserved", ""),
    "unmet": ("", ""),
}
"""Title → metric and its argument; "" = counted by the league itself, under the title."""

NEVER = float("inf")
MARGINS: Mapping[str, tuple[float, float]] = {
    "floor_adjusted.p50": (0.02, 0.0),
    "floor_adjusted.p95": (0.02, 0.0),
    "balanced": (30_000.0, 0.1),
    "thrash": (0.01, 0.0),
    "moves": (2.0, 0.1),
    "unserved": (5_000.0, 0.1),
}
"""Metric → (absolute, relative): a smaller difference is none. Less is better of each."""


def is_worse(metric: str, mine: float | None, other: float | None) -> bool:
    """Whether one value of a metric is worse than another by more than the margin; None = never."""
    absolute, relative = MARGINS[metric]
    if other is None:
        return False
    return as_number(mine) > other + max(absolute, relative * other)


def as_number(value: float | None) -> float:
    """A value that can be compared; None is later than all."""
    return NEVER if value is None else float(value)


def or_balanced(value: float | None) -> float | None:
    """An imbalance, or what counts as balanced, whichever is worse."""
    return None if value is None else max(BAR, value)


def rivals_of(mine: Row, rows: Sequence[Row]) -> list[Row]:
    """Of all rows, the others of the same scenario."""
    return [
        row
        for row in rows
        if row["scenario"] == mine["scenario"] and row["strategy"] != mine["strategy"]
    ]


def title_of(metric: str) -> str:
    """The column that has a metric."""
    return next(title for title, (name, _) in COLUMNS.items() if name == metric)
