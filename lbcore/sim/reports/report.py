"""Report of a run, and the comparison of a scenario under several strategies.

A run's text (table over time, expected and actual values, trace hash) follows `----` in a
scenario's file, the comparison `---- compared`: a row a strategy, a line for each expectation, and
what was possible. A diff of the file shows which strategy got better or worse. After CockroachDB's
asim, which records several configurations in one file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from lbcore.model.times import MINUTE_MS
from lbcore.sim.engine.engine import Run
from lbcore.sim.judge.bounds import attainable_results
from lbcore.sim.judge.measures import (
    JudgedExpectation,
    floor_adjusted_of,
    imbalance_of,
    judge,
    measure_named,
)
from lbcore.sim.scenario.metrics import COUNT, LOAD, METRICS, PART, TIME
from lbcore.sim.scenario.tokens import format_ms

ROWS = 12
_LONG_MS = 60_000
_SUMMARY = (
    "imbalance.p50",
    "imbalance.p95",
    "floor_adjusted.p50",
    "floor_adjusted.p95",
    "floor_adjusted.end",
    "gap.p95",
    "moves",
    "returns",
    "thrash",
    "splits",
    "unserved",
    "outage.max",
    "publish.p9999",
    "doubles",
)


def judge_all(run: Run) -> list[JudgedExpectation]:
    """Everything that the scenario expects, in its order."""
    return [judge(run, expectation) for expectation in run.scenario.expectations]


def render(run: Run, judged: Sequence[JudgedExpectation]) -> str:
    """The run as text, which is the same for the same scenario on every machine."""
    causes = ", ".join(f"{cause} {count}" for cause, count in _moves_by_cause(run).items())
    lines = [*_timeline(run), "", f"moves: {causes or 'none'}"]
    for one in judged:
        word = "ok    " if one.is_met else "FAILED"
        value = format_value(one.expectation.metric, one.value)
        lines.append(f"{word} {one.expectation.text}: {value}")
    return "\n".join([*lines, f"hash {run.recorder.hash()}", ""])


def to_row(run: Run, judged: Sequence[JudgedExpectation]) -> dict[str, Any]:
    """The run as JSON-able values; times in ms, loads in percent."""
    return {
        "title": run.scenario.title,
        "seed": run.scenario.seed,
        "is_met": all(one.is_met for one in judged),
        "hash": run.recorder.hash(),
        "metrics": {name: measure_named(run, name) for name in _SUMMARY},
        "moves_by_cause": _moves_by_cause(run),
        "expectations": [
            {
                "text": one.expectation.text,
                "line": one.expectation.line,
                "value": one.value,
                "is_met": one.is_met,
            }
            for one in judged
        ],
    }


def format_value(metric: str, value: float | None) -> str:
    """A metric's value as people read it; - where there was nothing to measure."""
    if value is None:
        return "-"
    unit = METRICS[metric.partition(".")[0]].unit
    if unit == TIME:
        return format_ms(round(value)) if value < _LONG_MS else f"{value / 1_000:.0f}s"
    if unit == COUNT:
        return f"{value:g}"
    return {LOAD: f"{value:.1f}", PART: f"{value:.1%}"}.get(unit, f"{value:.2f}")


def _timeline(run: Run) -> list[str]:
    """Return a line for every so many samples: loads, and events since the last line."""
    head = ("time", "highest", "lowest", "imbalance", "floor-adj", "bundles", "moves", "splits")
    lines = ["".join(f"{word:>10}" for word in head)]
    samples = run.recorder.samples
    step = max(1, -(-len(samples) // ROWS))
    before_ms = 0
    for sample in samples[step - 1 :: step]:
        loads = sample.loads[~np.isnan(sample.loads)]
        moves = sum(before_ms < one.move.at_ms <= sample.at_ms for one in run.recorder.moves)
        splits = sum(before_ms < at_ms <= sample.at_ms for at_ms in run.recorder.splits)
        cells = (
            format_ms(sample.at_ms),
            f"{loads.max():.1f}" if len(loads) else "-",
            f"{loads.min():.1f}" if len(loads) else "-",
            format_value("imbalance", imbalance_of(sample)),
            format_value("floor_adjusted", floor_adjusted_of(sample)),
            str(sample.bundles),
            str(moves),
            str(splits),
        )
        lines.append("".join(f"{cell:>10}" for cell in cells))
        before_ms = sample.at_ms
    return lines


def _moves_by_cause(run: Run) -> dict[str, int]:
    return dict(sorted(Counter(one.cause for one in run.recorder.moves).items()))


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
        found = ((row["strategy"], row["expectations"][number]) for row in rows)
        values = (f"{name} {one['value']}{'' if one['is_met'] else '!'}" for name, one in found)
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


def _possible(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what no balancer could beat, by the first run, without splits if any."""
    row = next((one for one in rows if one["least"] is not None), rows[0])
    words = [
        f"p95 {format_value('imbalance', row['bound_p95'])}",
        f"minutes>1.2 {minutes(row['nobody_ms'])}",
    ]
    if row["least"] is not None:
        reported = f"{row['report_moves']} moves and {minutes(row['report_above_ms'])} minutes"
        words += [f"moves {row['least']}", f"by report {reported}"]
    return f"possible: {', '.join(words)}"


def minutes(value_ms: float) -> str:
    """Return a duration in minutes, to a tenth."""
    return f"{round(value_ms / MINUTE_MS, 1):g}"
