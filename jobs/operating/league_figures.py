"""The figures that the league judges by, and which differences are noise.

Decides the columns, and the margins: two hundredths of an imbalance, a tenth of moves or of time
without service. Source: ours.
"""

from collections.abc import Mapping

COLUMNS: Mapping[str, tuple[str, str]] = {
    "floor p50": ("floor_adjusted.p50", ""),
    "floor p95": ("floor_adjusted.p95", ""),
    "imb p50": ("imbalance.p50", ""),
    "imb p95": ("imbalance.p95", ""),
    "balanced": ("balanced", "1.2"),
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
    one = NEVER if mine is None else mine
    two = NEVER if other is None else other
    if two == NEVER:
        return False
    return one > two + max(absolute, relative * two)


def title_of(metric: str) -> str:
    """The column that has a metric."""
    return next(title for title, (name, _) in COLUMNS.items() if name == metric)
