"""What shadows would have done within a window: sums, imbalance over time, the last moves.

Decides how much is shown; the rows are the job's (`shadow_decisions`). Source: ours.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from lbcore.explain.shadow_words import by_strategy, finite
from lbcore.model.shadow_tables import SHADOW_DECISIONS

MOMENTS_MAX = 120
STEPS_MAX = 50
_SUMMED = ("moves", "splits", "moved_msg_rate")
_NEWEST = ("imbalance", "floor_adjusted", "shadow_imbalance", "shadow_floor_adjusted")

Row = Mapping[str, Any]


def read_shadows(reader: TableReader, from_ms: int, until_ms: int) -> dict[str, Any]:
    """Each shadow that planned in the window, in name order. O(rows log rows)."""
    window = f"at_ms > {from_ms} AND at_ms <= {until_ms}"
    found = by_strategy(reader.rows(SHADOW_DECISIONS.name, condition=window))
    return {
        "from_ms": from_ms,
        "until_ms": until_ms,
        "shadows": [_told(name, rows, (from_ms, until_ms)) for name, rows in found.items()],
    }


def _told(strategy: str, rows: Sequence[Row], window: tuple[int, int]) -> dict[str, Any]:
    newest = rows[-1]
    return {
        "strategy": strategy,
        "at_ms": int(newest["at_ms"]),
        "cycles": len(rows),
        **{name: sum(row[name] for row in rows) for name in _SUMMED},
        "elsewhere": int(newest["elsewhere"]),
        **{name: finite(newest[name]) for name in _NEWEST},
        "skips": dict(sorted(Counter(row["reason"] for row in rows if row["reason"]).items())),
        "moments": _moments(rows, window),
        "steps": _steps(rows),
    }


def _moments(rows: Sequence[Row], window: tuple[int, int]) -> list[list[float | int | None]]:
    """[time, imbalance, the shadow's], of each stretch its highest; MOMENTS_MAX at most."""
    from_ms, until_ms = window
    step_ms = max(1, -(-(until_ms - from_ms) // MOMENTS_MAX))
    highest: dict[int, list[float | None]] = {}
    for row in rows:
        at_ms = from_ms + (int(row["at_ms"]) - from_ms - 1) // step_ms * step_ms
        now = [finite(row["imbalance"]), finite(row["shadow_imbalance"])]
        before = highest.get(at_ms, [None, None])
        highest[at_ms] = [_higher(a, b) for a, b in zip(before, now, strict=True)]
    return [[at_ms, *values] for at_ms, values in sorted(highest.items())]


def _higher(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


def _steps(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The last moves, the newest first."""
    found: list[dict[str, Any]] = []
    for row in reversed(rows):
        found += [{"at_ms": int(row["at_ms"]), **step} for step in json.loads(row["steps"])]
        if len(found) >= STEPS_MAX:
            break
    return found[:STEPS_MAX]
