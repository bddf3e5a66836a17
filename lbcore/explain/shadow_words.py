"""Shadows in a status: what each would have done of late, and how even it would be.

Decides how rows of `shadow_decisions` are summed up and worded. Part of `explain`. Source: ours.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def shadow_status(rows: Iterable[Row]) -> tuple[Row, ...]:
    """A shadow's newest figures, and its moves in all of its rows; in name order."""
    return tuple(_summed(name, of_it) for name, of_it in by_strategy(rows).items())


def by_strategy(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each shadow, the oldest first; in name order. O(rows log rows)."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (str(row["strategy"]), int(row["at_ms"]))):
        found.setdefault(str(row["strategy"]), []).append(row)
    return found


def shadow_words(one: Row) -> str:
    """Worked: `ballast: would have moved 3 bundles in 10 min, imbalance 1.12 (really 1.40)`."""
    moves = f"{one['moves']} bundle{'' if one['moves'] == 1 else 's'}"
    last = f"; last: {one['reason']}" if one["reason"] else ""
    if one["shadow_imbalance"] is None or one["imbalance"] is None:
        return f"{one['strategy']}: would have moved {moves} in 10 min{last}"
    even = f"imbalance {one['shadow_imbalance']:.2f} (really {one['imbalance']:.2f})"
    return f"{one['strategy']}: would have moved {moves} in 10 min, {even}{last}"


def _summed(name: str, rows: list[Row]) -> Row:
    newest = rows[-1]
    return {
        "strategy": name,
        "at_ms": int(newest["at_ms"]),
        "reason": newest["reason"],
        "moves": sum(int(row["moves"]) for row in rows),
        "elsewhere": int(newest["elsewhere"]),
        "imbalance": finite(newest["imbalance"]),
        "shadow_imbalance": finite(newest["shadow_imbalance"]),
    }


def finite(value: float) -> float | None:
    """The number; None for NaN, for which JSON has no word."""
    return None if math.isnan(value) else float(value)
