"""A scenario under several strategies as one table, kept below `---- compared`.

A diff of the file then shows which strategy got better or worse. The text has a row a strategy, a
line for each expectation with every strategy's value, and what was possible. Runs are made
elsewhere. After CockroachDB's asim, which records several configurations in one file.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from lbcore.sim.engine.engine import Run
from lbcore.sim.judge.bounds import attainable_results
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.reports.report import format_value, judge_all

COLUMNS: Mapping[str, str] = {
    "moves": "moves",
    "returns": "returns",
    "thrash": "thrash",
    "variation": "variation",
    "minutes>1.2": "",
    "p95": "imbalance.p95",
    "end": "imbalance.end",
    "failed": "",
    "hash": "",
}
"""Title → metric; "" = counted here. *p95* and *end* are imbalances."""
_MINUTE_MS = 60_000
_NAME_WIDTH = 22
_WIDTH = 13


def compared_row(strategy: str, run: Run) -> dict[str, Any]:
    """Return a run's figures as JSON-able values. O(samples × bundles log bundles)."""
    judged = judge_all(run)
    possible = attainable_results(run)
    return {
        "strategy": strategy,
        **{metric: measure_named(run, metric) for metric in COLUMNS.values() if metric},
        "above_ms": possible.above_ms,
        "expectations": [
            {
                "text": one.expectation.text,
                "value": format_value(one.expectation.metric, one.value),
                "is_met": one.is_met,
            }
            for one in judged
        ],
        "bound_p95": possible.bound_p95,
        "nobody_ms": possible.nobody_ms,
        "least": possible.least,
        "report_moves": possible.report_moves,
        "report_above_ms": possible.report_above_ms,
        "hash": run.recorder.hash(),
    }


def render_comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a scenario's rows as text, the same on every machine. rows: at least one."""
    lines = [_line("strategy", COLUMNS), *(_line(row["strategy"], _cells(row)) for row in rows)]
    for number, expected in enumerate(rows[0]["expectations"]):
        values = (_value(row["strategy"], row["expectations"][number]) for row in rows)
        lines.append(f"expect {expected['text']}: {', '.join(values)}")
    return "\n".join([*lines, _possible(rows), ""])


def compared_strategies(text: str) -> list[str]:
    """Return the strategies of a recorded table, in its order; none of an empty text."""
    return [cells[0] for cells in table_cells(text)]


def table_cells(text: str) -> list[list[str]]:
    """Return the rows of a recorded table.

    The strategy, and its cells in the order of COLUMNS.
    """
    rows = (line.split() for line in text.splitlines()[1:])
    return list(takewhile(lambda cells: len(cells) == len(COLUMNS) + 1, rows))


def _line(name: str, cells: Sequence[str] | Mapping[str, str]) -> str:
    *figures, last = cells
    return (
        f"{name:{_NAME_WIDTH}}" + "".join(f"{cell:>{_WIDTH}}" for cell in figures) + f"  {last:>16}"
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    counted = {
        "minutes>1.2": minutes(row["above_ms"]),
        "failed": str(sum(not one["is_met"] for one in row["expectations"])),
        "hash": row["hash"],
    }
    return [
        format_value(metric, row[metric]) if metric else counted[title]
        for title, metric in COLUMNS.items()
    ]


def _value(strategy: str, one: Mapping[str, Any]) -> str:
    return f"{strategy} {one['value']}{'' if one['is_met'] else '!'}"


def _possible(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the bounds from the first run with whole bundles, else from the first."""
    row = next((one for one in rows if one["least"] is not None), rows[0])
    words = [
        f"p95 {format_value('imbalance', row['bound_p95'])}",
        f"minutes>1.2 {minutes(row['nobody_ms'])}",
    ]
    if row["least"] is not None:
        words.append(f"moves {row['least']}")
        words.append(
            f"by report {row['report_moves']} moves and {minutes(row['report_above_ms'])} minutes"
        )
    return f"possible: {', '.join(words)}"


def minutes(value_ms: float) -> str:
    """Return a duration in minutes, to a tenth."""
    return f"{round(value_ms / _MINUTE_MS, 1):g}"
