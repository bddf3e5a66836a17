"""Measured series of many entities: checked, and put on one grid of time.

Decides what is wrong with them (each flaw with its line) and how samples become intervals; knows
nothing of files, units or bundles. Time is whole milliseconds. A sample holds from its time until
the entity's next one, or for the time before it that it says it covers; on the grid stands the mean
over each step, so what was measured in all is kept whatever the phase of an entity's clock. A hole
of more than half a step is a gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from lbcore.sim.load.load import Floats, Ints

CELLS_MAX = 20_000_000
"""Of a grid: intervals times entities; more is a time that is far off."""
SLACK = 0.5
"""Of a step: a smaller hole or overlap between two samples is a clock's jitter."""


class SpanError(ValueError):
    """A grid would be too large; the text says why."""


class Gaps(str, Enum):
    """Treatment of a gap between two samples of an entity.

    Missing values are gaps, too.
    """

    REFUSE = "refuse"
    HOLD = "hold"
    ZERO = "zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Error at one place of the input.

    line: from 1. column: from 1, 0 = the whole line.
    """

    line: int
    column: int
    what: str

    def __str__(self) -> str:
        """Place and words."""
        where = f"line {self.line}" + (f", column {self.column}" if self.column else "")
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Samples, in the order of the file; every array has a row a sample.

    entities: names. of: int64, which of them. at_ms: int64. values: float64[samples, resources],
    NaN = missing. covers_ms: int64, so long before its time a sample covers, 0 = until the next.
    lines, columns: int64, where it stands.
    """

    entities: Sequence[str]
    of: Ints
    at_ms: Ints
    values: Floats
    covers_ms: Ints
    lines: Ints
    columns: Ints

    def taken(self, kept: Ints) -> "Series":
        """Only these samples, in this order."""
        return Series(
            entities=self.entities,
            of=self.of[kept],
            at_ms=self.at_ms[kept],
            values=self.values[kept],
            covers_ms=self.covers_ms[kept],
            lines=self.lines[kept],
            columns=self.columns[kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Intervals of equal length.

    values: float64[intervals, entities, resources], means. partly: how many entities were not there
    from the first interval to the last.
    """

    start_ms: int
    step_ms: int
    values: Floats
    partly: int


def by_entity(series: Series) -> Series:
    """The samples entity after entity, each entity's in the order of the file."""
    return series.taken(np.argsort(series.of, kind="stable"))


def step_of(series: Series) -> int:
    """Return the commonest time between samples of an entity; 0 = none.

    The shortest of equals.
    """
    ordered = by_entity(series)
    between = np.diff(ordered.at_ms)[np.diff(ordered.of) == 0]
    steps, counts = np.unique(between[between > 0], return_counts=True)
    return int(steps[np.argmax(counts)]) if len(steps) else 0


def flaws_of(series: Series, step_ms: int, gaps: Gaps) -> list[Flaw]:
    """Return all faults by line.

    Missing and negative values, duplicates, order, gaps. step_ms: of the grid, from 1. O(samples
    log samples).
    """
    found = _flaws_of_values(series, gaps)
    ordered = by_entity(_without_missing(series))
    same = np.diff(ordered.of) == 0
    between = np.diff(ordered.at_ms)
    for at in np.flatnonzero(same & (between <= 0)).tolist():
        name, line = ordered.entities[ordered.of[at]], int(ordered.lines[at])
        place = "the same time" if between[at] == 0 else "a later time"
        where = f"column {ordered.columns[at]}" if ordered.columns[at] else f"line {line}"
        kind = "duplicate" if between[at] == 0 else "unordered"
        found.append(_flaw(ordered, at + 1, f"{kind}: {name} has {place} in {where}"))
    if gaps is Gaps.REFUSE and not np.any(same & (between <= 0)):
        holes = _begins(ordered, step_ms)[1:] - _ends(ordered, step_ms)[:-1]
        for at in np.flatnonzero(same & (holes > 0)).tolist():
            name, lasts_s = ordered.entities[ordered.of[at]], int(holes[at]) / 1_000.0
            found.append(
                _flaw(ordered, at + 1, f"gap: {name} has nothing for {lasts_s:g} s before")
            )
    return sorted(found, key=lambda flaw: (flaw.line, flaw.column, flaw.what))


def on_grid(series: Series, step_ms: int, gaps: Gaps) -> Grid:
    """Return the means over each step. Raises SpanError.

    Of samples without flaws, at least one.
    """
    ordered = by_entity(_without_missing(series))
    begins, ends = _begins(ordered, step_ms), _ends(ordered, step_ms)
    if gaps is Gaps.HOLD:
        same = np.diff(ordered.of) == 0
        ends[:-1] = np.where(same, begins[1:], ends[:-1])
    start_ms, end_ms = int(begins.min()), int(ends.max())
    count = max(1, round((end_ms - start_ms) / step_ms))
    if count * len(ordered.entities) > CELLS_MAX:
        first, last = (int(ordered.lines[at]) for at in (np.argmin(begins), np.argmax(ends)))
        message = (
            f"from its first time (line {first}) to its last (line {last}) there are {count} steps"
        )
        raise SpanError(message)
    edges = start_ms + step_ms * np.arange(count + 1, dtype=np.int64)
    resources = ordered.values.shape[1]
    values = np.zeros((count, len(ordered.entities), resources))
    bounds = np.searchsorted(ordered.of, np.arange(len(ordered.entities) + 1)).tolist()
    partly = 0
    for entity, (first, last) in enumerate(pairwise(bounds)):
        if first == last:
            partly += 1
            continue
        own = slice(first, last)
        partly += bool(begins[first] >= edges[1] or ends[last - 1] <= edges[-2])
        for resource in range(resources):
            part = _means((begins[own], ends[own]), ordered.values[own, resource], edges)
            values[:, entity, resource] = part
    return Grid(start_ms=start_ms, step_ms=step_ms, values=values, partly=partly)


def _flaws_of_values(series: Series, gaps: Gaps) -> list[Flaw]:
    missing = np.isnan(series.values).any(axis=1)
    wrong = np.isinf(series.values).any(axis=1)
    negative = (series.values < 0).any(axis=1)
    kinds = [(negative, "negative value"), (wrong, "infinite value")]
    if gaps is Gaps.REFUSE:
        kinds.append((missing, "missing value"))
    return [
        _flaw(series, at, f"{what} of {series.entities[series.of[at]]}")
        for which, what in kinds
        for at in np.flatnonzero(which).tolist()
    ]


def _flaw(series: Series, at: int, what: str) -> Flaw:
    return Flaw(line=int(series.lines[at]), column=int(series.columns[at]), what=what)


def _without_missing(series: Series) -> Series:
    return series.taken(np.flatnonzero(~np.isnan(series.values).any(axis=1)))


def _begins(ordered: Series, step_ms: int) -> Ints:
    """Return the time at which each sample begins to hold.

    A sample that covers the time before it holds from the end of the previous one, unless there is
    a gap.
    """
    begins: Ints = ordered.at_ms - ordered.covers_ms
    if len(begins) > 1:
        before = ordered.at_ms[:-1]
        is_near = (np.diff(ordered.of) == 0) & (begins[1:] - before <= SLACK * step_ms)
        covers = ordered.covers_ms[1:] > 0
        begins[1:] = np.where(is_near & covers, before, begins[1:])
    return begins


def _ends(ordered: Series, step_ms: int) -> Ints:
    """Return the time at which each sample ceases to hold.

    This is its own time, the time of the next sample, or one step later.
    """
    covers = ordered.covers_ms > 0
    ends: Ints = np.where(covers, ordered.at_ms, ordered.at_ms + step_ms)
    if len(ends) > 1:
        between = np.diff(ordered.at_ms)
        is_near = (np.diff(ordered.of) == 0) & (between <= (1.0 + SLACK) * step_ms)
        ends[:-1] = np.where(is_near & ~covers[:-1], ordered.at_ms[1:], ends[:-1])
    return ends


def _means(held: tuple[Ints, Ints], values: Floats, edges: Ints) -> Floats:
    """Return the mean over each step of what holds from held[0] to held[1].

    Nothing counts as 0.
    """
    begins, ends = held
    times = np.stack((begins, ends), axis=1).reshape(-1).astype(float)
    amounts = np.stack((np.zeros(len(values)), values * (ends - begins)), axis=1).reshape(-1)
    summed = np.interp(edges.astype(float), times, np.cumsum(amounts))
    found: Floats = np.diff(summed) / np.diff(edges)
    return found
