"""Figures of runs: what a watched run came to, and a table of several runs.

Ratio: what the busiest live broker is offered over the mean of them; 1.0 = even. A figure of -1 was
not seen.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

BOUND = 1.25
SKEW, ADDED = "skew", "added"

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a run. began_s, ended_s: of the run's own time, which stands still between two."""

    name: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What holds from at_s on, until the next one. unowned: bundles with traffic and no owner."""

    at_s: float
    ratio: float
    unowned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A bundle seen at another broker. is_failover: the one that had it was killed."""

    at_s: float
    bundle: str
    is_failover: bool


def stretches(samples: Sequence[Sample], part: Phase) -> list[tuple[float, Sample]]:
    """(how long it held in s, sample), within a part of the run."""
    ends = [*(one.at_s for one in samples[1:]), part.ended_s]
    found = [
        (min(end_s, part.ended_s) - max(one.at_s, part.began_s), one)
        for one, end_s in zip(samples, ends, strict=True)
    ]
    return [(held_s, one) for held_s, one in found if held_s > 0]


def balance_figures(
    phases: Sequence[Phase], samples: Sequence[Sample], moves: Sequence[Move]
) -> Figures:
    """Evenness over a run, and the moves that somebody decided."""
    known = {one.name: one for one in phases}
    whole = Phase(name="all", began_s=0.0, ended_s=phases[-1].ended_s)
    held = stretches(samples, whole)
    own = [move for move in moves if not move.is_failover]
    skew = known[SKEW]
    first = [move.at_s - skew.began_s for move in own if skew.began_s <= move.at_s < skew.ended_s]
    return {
        "min above 1.25": sum(s for s, one in held if one.ratio > BOUND) / 60.0,
        "mean max/mean": sum(s * one.ratio for s, one in held) / max(whole.ended_s, 1e-9),
        "at the end of skew": stretches(samples, skew)[-1][1].ratio,
        "and of added": stretches(samples, known[ADDED])[-1][1].ratio,
        "first move (s)": min(first, default=-1.0),
        "moves": float(len(own)),
        "repeated": float(sum(n - 1 for n in Counter(move.bundle for move in own).values())),
        "s with a bundle unowned": sum(s for s, one in held if one.unowned),
    }


def p99(took_ms: Iterable[float]) -> float:
    """The 99th percentile in ms, -1 of nothing."""
    found = sorted(took_ms)
    return round(found[int(0.99 * (len(found) - 1))], 1) if found else -1.0


def table(folder: Path, order: Mapping[str, str]) -> str:
    """The records of a folder in Markdown: a row a figure, a column each of `order` that was run.

    A cell has the median, and the least and the most in brackets where they differ.
    """
    runs: dict[str, list[Figures]] = {name: [] for name in order}
    for path in sorted(folder.glob("*.json")):
        record: dict[str, Any] = json.loads(path.read_text())
        runs[record["name"]].append(record["figures"])
    runs = {name: found for name, found in runs.items() if found}
    figures = dict.fromkeys(name for found in runs.values() for one in found for name in one)
    lines = [f"| | {' | '.join(order[name] for name in runs)} |", "|---" * (len(runs) + 1) + "|"]
    for figure in figures:
        cells = [_cell([one[figure] for one in found]) for found in runs.values()]
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    """The median, the least and the most; what was not seen is more than the most."""
    in_order = sorted((one if one >= 0 else float("inf")) for one in values)
    least, most = _number(in_order[0]), _number(in_order[-1])
    return least if least == most else f"{_number(median(in_order))} ({least}, {most})"


def _number(value: float) -> str:
    if value == float("inf"):
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
