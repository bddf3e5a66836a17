"""Kept backtests: from a backtest's rows to the table's and to the answer, which runs stay."""

import json

from lbcore.explain.kept_backtests import FIGURES, newest_run, past_runs, to_rows
from lbcore.model.backtest_tables import BACKTESTS, RUNS_KEPT
from tests.support.values.kept_runs import found, kept_rows, kept_run


def test_row_has_every_column_of_the_table_and_what_was_found() -> None:
    values = {name: float(at) for at, name in enumerate(FIGURES.values())}
    (row,) = to_rows("east", kept_run(), [{"strategy": "avg", "shedding": "avg", **values}])
    assert list(row) == [column.name for column in BACKTESTS.columns]
    assert {name: row[name] for name in FIGURES} == dict(zip(FIGURES, values.values(), strict=True))
    assert (row["cluster"], row["strategy"], row["run_id"]) == ("east", "avg", "run-01")


def test_what_may_be_unknown_is_nullable_and_nothing_else() -> None:
    assert {column.name for column in BACKTESTS.columns if column.is_nullable} == set(FIGURES)


def test_answer_is_the_newest_run_best_first() -> None:
    rows = [
        *kept_rows("c", kept_run(2)),
        *kept_rows("c", kept_run(3, seed=7)),
        *kept_rows("c", kept_run(1)),
    ]
    told = newest_run(rows)
    assert told["runs"] == 3
    assert told["run"] == {
        "run_id": "run-03",
        "from_ms": 60_000,
        "until_ms": 660_000,
        "brokers": 4,
        "bundles": 24,
        "seed": 7,
        "settings": ["shedding.avg_low_threshold=9"],
        "bar": 1.2,
        "at_ms": 180_000,
    }
    names = [one["strategy"] for one in told["strategies"]]
    assert names == ["ballast", "as-set", "avg", "recorded"]
    assert told["strategies"][1]["shedding"] == "avg"
    assert told["strategies"][3]["unserved_ms"] is None
    assert told == json.loads(json.dumps(told))


def test_strategies_of_one_cost_are_ordered_by_moves_and_an_unknown_cost_is_last() -> None:
    rows = to_rows(
        "c",
        kept_run(),
        [
            found("a", None),
            found("b", 2.0, moves=5.0),
            found("c", 2.0, moves=4.0),
            found("d", 1.0, moves=9.0),
        ],
    )
    assert [one["strategy"] for one in newest_run(rows)["strategies"]] == ["d", "c", "b", "a"]


def test_of_runs_kept_at_the_same_time_the_higher_id_counts() -> None:
    same = [kept_run(run_id=name, at_ms=5) for name in ("r-2", "r-3", "r-1")]
    rows = [row for run in same for row in kept_rows("c", run)]
    assert newest_run(rows)["run"]["run_id"] == "r-3"


def test_no_rows_are_no_run() -> None:
    assert newest_run([]) == {"run": None, "runs": 0, "strategies": []}


def test_each_clusters_newest_runs_stay() -> None:
    rows = [
        row
        for cluster, count in (("east", RUNS_KEPT + 2), ("west", RUNS_KEPT))
        for number in range(1, count + 1)
        for row in kept_rows(cluster, kept_run(number))
    ]
    assert past_runs(rows) == [("east", "run-02"), ("east", "run-01")]
