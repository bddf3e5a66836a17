"""Backtests as the table keeps them: strategies with figures that a test can tell apart."""

from typing import Any

from lbcore.explain.kept_backtests import FIGURES, KeptRun, to_rows


def kept_run(number: int = 1, **given: Any) -> KeptRun:
    """A run that was kept in minute `number`."""
    known: dict[str, Any] = {
        "run_id": f"run-{number:02d}",
        "from_ms": 60_000,
        "until_ms": 660_000,
        "brokers": 4,
        "bundles": 24,
        "seed": 1,
        "settings": ("shedding.avg_low_threshold=9",),
        "bar": 1.2,
        "at_ms": 60_000 * number,
    }
    return KeptRun(**{**known, **given})


def found(strategy: str, cost: float | None, **figures: Any) -> dict[str, Any]:
    """A row as `ballast backtest` answers with it; what is not given is 1."""
    known = dict.fromkeys(FIGURES.values(), 1.0)
    shedding = "" if strategy == "recorded" else strategy
    return {"strategy": strategy, "shedding": shedding, **known, "cost": cost, **figures}


def kept_rows(cluster: str, run: KeptRun) -> list[dict[str, Any]]:
    """The table's rows of three strategies and of what really happened."""
    recorded = {"moves": 0.0, "imbalance.mean": 1.6, "balanced": None, "unserved": None}
    rows = [
        found("recorded", 60.0, **recorded),
        found("avg", 40.0, moves=12.0, **{"imbalance.mean": 1.3}),
        found("ballast", 15.0, moves=9.0, **{"imbalance.mean": 1.1}),
        found("as-set", 40.0, moves=12.0, shedding="avg", **{"imbalance.mean": 1.3}),
    ]
    return to_rows(cluster, run, rows)
