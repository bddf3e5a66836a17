"""Report of a run: table over time, expected and actual values, trace hash.

Decides only the form. The text is what follows `----` in a scenario's file.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.recorder import Sample
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
    lines = [*_timeline(run), "", *_moves_by_cause(run), *map(_judged_line, judged)]
    return "\n".join([*lines, f"hash {run.recorder.hash()}", ""])


def to_row(run: Run, judged: Sequence[JudgedExpectation]) -> dict[str, Any]:
    """The run as JSON-able values; times in ms, loads in percent."""
    return {
        "title": run.scenario.title,
        "seed": run.scenario.seed,
        "is_met": all(one.is_met for one in judged),
        "hash": run.recorder.hash(),
        "metrics": {name: measure_named(run, name) for name in _SUMMARY},
        "moves_by_cause": dict(sorted(_causes(run).items())),
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
    """Yield a line for every so many samples: loads, and events since the last line."""
    head = ("time", "highest", "lowest", "imbalance", "floor-adj", "bundles", "moves", "splits")
    lines = ["".join(f"{word:>10}" for word in head)]
    samples = run.recorder.samples
    step = max(1, -(-len(samples) // ROWS))
    before_ms = 0
    for sample in samples[step - 1 :: step]:
        lines.append(_sample_line(run, sample, before_ms))
        before_ms = sample.at_ms
    return lines


def _sample_line(run: Run, sample: Sample, before_ms: int) -> str:
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
    return "".join(f"{cell:>10}" for cell in cells)


def _causes(run: Run) -> Counter[str]:
    return Counter(one.cause for one in run.recorder.moves)


def _moves_by_cause(run: Run) -> list[str]:
    causes = ", ".join(f"{cause} {count}" for cause, count in sorted(_causes(run).items()))
    return [f"moves: {causes or 'none'}"]


def _judged_line(one: JudgedExpectation) -> str:
    word = "ok    " if one.is_met else "FAILED"
    value = format_value(one.expectation.metric, one.value)
    return f"{word} {one.expectation.text}: {value}"
