"""A backtest's rows as the table `backtests` keeps them, and its newest run as an answer.

Decides which columns the figures stand in, which run counts and which strategy is first: the
cheapest, as `ballast tune` weighs imbalance and moves. Runs no simulation. Part of `explain`.
Source: ours.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbcore.model.backtest_tables import RUNS_KEPT

Row = Mapping[str, Any]

FIGURES: Mapping[str, str] = {
    "cost": "cost",
    "imbalance_mean": "imbalance.mean",
    "imbalance_p50": "imbalance.p50",
    "imbalance_p95": "imbalance.p95",
    "floor_adjusted_mean": "floor_adjusted.mean",
    "floor_adjusted_p50": "floor_adjusted.p50",
    "floor_adjusted_p95": "floor_adjusted.p95",
    "bound_mean": "bound.mean",
    "over_bound_mean": "over_bound.mean",
    "above_ms": "above_ms",
    "nobody_ms": "nobody_ms",
    "balanced_ms": "balanced",
    "moves": "moves",
    "thrash": "thrash",
    "splits": "splits",
    "unserved_ms": "unserved",
}
"""Column → what a row of `ballast backtest --json` calls it."""

_LAST = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """What the rows of one run share: its columns, by their names."""

    run_id: str
    from_ms: int
    until_ms: int
    brokers: int
    bundles: int
    seed: int
    settings: Sequence[str]
    bar: float
    at_ms: int


def to_rows(cluster: str, run: KeptRun, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The table's rows of a backtest's own, one each."""
    return [
        {
            "cluster": cluster,
            "run_id": run.run_id,
            "strategy": row["strategy"],
            "shedding": row["shedding"],
            "from_ms": run.from_ms,
            "until_ms": run.until_ms,
            "brokers": run.brokers,
            "bundles": run.bundles,
            "seed": run.seed,
            "settings": json.dumps(list(run.settings)),
            "bar": run.bar,
            **{column: _number(row[name]) for column, name in FIGURES.items()},
            "at_ms": run.at_ms,
        }
        for row in rows
    ]


def newest_run(rows: Sequence[Row]) -> dict[str, Any]:
    """The newest run of one cluster's rows: what it was of, and its strategies, best first.

    run: None where there are no rows. runs: how many are kept.
    """
    runs = runs_of(rows)
    if not runs:
        return {"run": None, "runs": 0, "strategies": []}
    own = [row for row in rows if row["run_id"] == runs[0]]
    shared = {name: own[0][name] for name in KeptRun.__slots__}
    return {
        "run": {**shared, "settings": json.loads(own[0]["settings"])},
        "runs": len(runs),
        "strategies": [_told(row) for row in sorted(own, key=cheapest_first)],
    }


def past_runs(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """(cluster, run) of those that need not be kept: all but each cluster's newest RUNS_KEPT."""
    by_cluster: dict[str, list[Row]] = {}
    for row in rows:
        by_cluster.setdefault(row["cluster"], []).append(row)
    return [
        (cluster, run)
        for cluster, own in sorted(by_cluster.items())
        for run in runs_of(own)[RUNS_KEPT:]
    ]


def runs_of(rows: Iterable[Row]) -> list[str]:
    """The runs of one cluster, the newest first; of two of the same time the higher id."""
    found = {(int(row["at_ms"]), str(row["run_id"])) for row in rows}
    return [run for _, run in sorted(found, reverse=True)]


def cheapest_first(row: Row) -> tuple[float, float, str]:
    """The order of strategies: cost, then moves, then name; what is not known last."""
    cost, moves = row["cost"], row["moves"]
    return (
        _LAST if cost is None else float(cost),
        _LAST if moves is None else float(moves),
        str(row["strategy"]),
    )


def _told(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("strategy", "shedding", *FIGURES)}


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
