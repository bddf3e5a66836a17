"""Recorded load of tables or traces, laid over the hash space by intervals.

Load belongs to hash positions: it goes with a bundle to its next owner and with the children of a
split. Between two boundaries that any bundle ever had lies a *cell*; a bundle's load is spread over
its cells by their width. A bundle without a row for a moment (on its way) keeps its last load.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from lbcore.model.bundles import (
    HASH_SPACE,
    HashFunction,
    NamespaceBundles,
    even_boundaries,
    hash_topics,
)
from lbcore.model.names import InvalidNameError, parse_bundle, range_end
from lbcore.model.resources import complete
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, Floats, Ints

CELLS_MAX = 20_000_000
"""Largest number of intervals times entities in a grid; above it a time must be wrong."""
SLACK = 0.5
"""Share of a step up to which a hole or overlap of two samples is a clock's jitter."""


class SpanError(ValueError):
    """A grid would be too large; the text is the reason."""


class Gaps(str, Enum):
    """Treatment of gaps between samples of an entity, and of missing values."""

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
    """Samples in the order of the file; every array has a row per sample.

    entities: names. of: int64, index into them. at_ms: int64. values: float64[samples, resources],
    NaN = missing. covers_ms: int64, time before its own that a sample covers, 0 = it lasts until
    the next. lines, columns: int64, its place in the file.
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

    values: float64[intervals, entities, resources], means. partly: number of entities that don't
    cover all intervals.
    """

    start_ms: int
    step_ms: int
    values: Floats
    partly: int


def by_entity(series: Series) -> Series:
    """Return the samples sorted by entity, then in the order of the file."""
    return series.taken(np.argsort(series.of, kind="stable"))


def step_of(series: Series) -> int:
    """Return the commonest time between samples of an entity, ms; 0 = none."""
    ordered = by_entity(series)
    between = np.diff(ordered.at_ms)[np.diff(ordered.of) == 0]
    steps, counts = np.unique(between[between > 0], return_counts=True)
    return int(steps[np.argmax(counts)]) if len(steps) else 0


def flaws_of(series: Series, step_ms: int, gaps: Gaps) -> list[Flaw]:
    """Return all faults by line: missing and negative values, duplicates, order, gaps.

    step_ms: of the grid, from 1. O(samples log samples).
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
    """Return the means over each step of a grid of time.

    Samples have no flaws, at least one. A sample holds from its time until the entity's next one,
    or for the time before it that it covers, so what was measured in all is kept whatever the phase
    of an entity's clock. A hole of more than half a step is a gap. Raises SpanError, FoldingError.
    """
    ordered = by_entity(_without_missing(series))
    if not len(ordered.values):
        raise FoldingError("no sample has a value")
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
    filled = _filled(ordered, gaps)
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
            part = _means((begins[own], ends[own]), filled[own, resource], edges)
            values[:, entity, resource] = part
    return Grid(start_ms=start_ms, step_ms=step_ms, values=values, partly=partly)


def _flaws_of_values(series: Series, gaps: Gaps) -> list[Flaw]:
    kinds = [(series.values < 0, "negative value"), (np.isinf(series.values), "infinite value")]
    if gaps is Gaps.REFUSE:
        kinds.append((np.isnan(series.values), "missing value"))
    return [
        _flaw(series, at, f"{what} of {series.entities[series.of[at]]}")
        for is_wrong, what in kinds
        for at in np.flatnonzero(is_wrong.any(axis=1)).tolist()
    ]


def _flaw(series: Series, at: int, what: str) -> Flaw:
    return Flaw(line=int(series.lines[at]), column=int(series.columns[at]), what=what)


def _without_missing(series: Series) -> Series:
    """Return the samples that have the value of a resource."""
    return series.taken(np.flatnonzero(~np.isnan(series.values).all(axis=1)))


def _filled(ordered: Series, gaps: Gaps) -> Floats:
    """Return the values, with those filled that a sample lacks beside others."""
    values = ordered.values
    if gaps is Gaps.HOLD:
        rows = np.arange(len(values))[:, np.newaxis]
        firsts = np.searchsorted(ordered.of, ordered.of)[:, np.newaxis]
        last_known = np.maximum.accumulate(np.where(np.isnan(values), firsts, rows))
        values = np.take_along_axis(values, last_known, axis=0)
    return np.nan_to_num(values, nan=0.0)


def _begins(ordered: Series, step_ms: int) -> Ints:
    """Return the time from which each sample holds.

    One that covers the time before it holds from the end of the previous one, unless there is a
    gap.
    """
    begins: Ints = ordered.at_ms - ordered.covers_ms
    before = ordered.at_ms[:-1]
    is_near = (np.diff(ordered.of) == 0) & (begins[1:] - before <= SLACK * step_ms)
    begins[1:] = np.where(is_near & (ordered.covers_ms[1:] > 0), before, begins[1:])
    return begins


def _ends(ordered: Series, step_ms: int) -> Ints:
    """Return the time until which each sample holds.

    Its own time, the time of the next sample, or one step later.
    """
    covers = ordered.covers_ms > 0
    ends: Ints = np.where(covers, ordered.at_ms, ordered.at_ms + step_ms)
    is_near = (np.diff(ordered.of) == 0) & (np.diff(ordered.at_ms) <= (1.0 + SLACK) * step_ms)
    ends[:-1] = np.where(is_near & ~covers[:-1], ordered.at_ms[1:], ends[:-1])
    return ends


def _means(held: tuple[Ints, Ints], values: Floats, edges: Ints) -> Floats:
    """Return means over each step of values that hold in `held`; 0 elsewhere."""
    begins, ends = held
    times = np.stack((begins, ends), axis=1).reshape(-1).astype(float)
    amounts = np.stack((np.zeros(len(values)), values * (ends - begins)), axis=1).reshape(-1)
    summed = np.interp(edges.astype(float), times, np.cumsum(amounts))
    found: Floats = np.diff(summed) / np.diff(edges)
    return found


MESSAGE_BYTES = 1024.0
_PER_PERCENT = FULL_RATE_MSG_PER_S / 100.0
_ROUND, _ROUND_MAX = 1, 12
_PRECISE = 1e4

_CPU = {"percent": 1.0, "share": 100.0, "cores": 100.0, "mhz": 0.04, "ghz": 40.0}
_BYTES = {
    "b/s": 1.0,
    "kb/s": 1e3,
    "mb/s": 1e6,
    "kib/s": 1024.0,
    "mib/s": 1048576.0,
    "bit/s": 0.125,
    "kbit/s": 125.0,
    "mbit/s": 125e3,
}
_MESSAGES = {"msg/s": 1.0}
UNITS: Mapping[str, Mapping[str, float]] = {
    "cpu": _CPU,
    "msg": _MESSAGES,
    "msg_in": _MESSAGES,
    "msg_out": _MESSAGES,
    "bytes": _BYTES,
    "bytes_in": _BYTES,
    "bytes_out": _BYTES,
    "memory": {"percent": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "kib": 1024.0, "mib": 1048576.0},
    "disk": _BYTES,
    "sessions": {"count": 1.0},
}
"""Kind of resource → its units → how many of the kind's own unit (percent of a core, msg/s,
bytes/s, bytes, count) one is. A core has 2.5 GHz. Where a replay says its mean, only proportions
matter."""

_WEIGHTLESS = ("memory", "disk", "sessions")
"""Kinds that simulated brokers don't report by bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumn:
    """A column of a trace. unit: of UNITS[kind]."""

    column: str
    kind: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Loads of bundles. rates: float64[intervals, bundles, 4], columns COLUMNS.

    topics: int64[bundles], number of entities. notes: a sentence per resource on its conversion.
    """

    start_ms: int
    step_ms: int
    bundles: tuple[str, ...]
    topics: Ints
    rates: Floats
    notes: tuple[str, ...]


class FoldingError(ValueError):
    """No resource counts; the text is the reason."""


def fold(
    grid: Grid, entities: Sequence[str], resources: Sequence[TraceColumn], space: tuple[str, int]
) -> Folded:
    """Return a namespace's bundle loads, folded from entities. Raises FoldingError.

    An entity (a virtual machine, a container, a topic) belongs to the bundle with murmur3_32 of its
    name, of N ranges of equal width: as Pulsar places topics, and as unevenly. A bundle carries the
    sum of its entities. Resources that the simulator's brokers don't report by bundle weigh
    nothing.

    space: its name, how many bundles. Messages are the columns of messages; without any, CPU: 1
    percent of a core = 400 msg/s, and 100 % of a broker is 40,000; without CPU, a message a KiB.
    Half of what has no direction goes in, half out. Without columns of bytes: 1 KiB a message.
    """
    edges = np.array(even_boundaries(space[1]), dtype=np.int64)
    places = hash_topics(HashFunction.MURMUR3_32, entities)
    numbers = np.minimum(np.searchsorted(edges, places, side="right") - 1, space[1] - 1)
    amounts: dict[str, Floats] = {}
    for kind, units in UNITS.items():
        for at, one in enumerate(resources):
            if one.kind == kind:
                amounts[kind] = grid.values[:, :, at] * units[one.unit] + amounts.get(kind, 0.0)
    rates, notes = _rates(amounts)
    if not rates.any():
        raise FoldingError("; ".join(notes) or "it has no resource")
    folded = np.zeros((len(rates), space[1], rates.shape[2]))
    for entity, bundle in enumerate(numbers.tolist()):
        folded[:, bundle] += rates[:, entity]
    highest = float(folded[:, :, :2].max())  # small loads keep their proportions
    digits = next((at for at in range(_ROUND, _ROUND_MAX) if highest * 10.0**at >= _PRECISE), 0)
    if not digits:
        raise FoldingError(f"no bundle has more than {highest:g} messages a second")
    return Folded(
        start_ms=grid.start_ms,
        step_ms=grid.step_ms,
        bundles=NamespaceBundles(space[0], tuple(edges.tolist())).names(),
        topics=np.bincount(numbers, minlength=space[1]).astype(np.int64),
        rates=np.round(folded, digits),
        notes=tuple(notes),
    )


def history_rows(folded: Folded, brokers: int, mean_percent: float) -> Iterator[dict[str, object]]:
    """Yield rows as in `load_history`, a broker and interval each.

    Bundles are assigned in turn to b1..bN. mean_percent: CPU of a broker at the mean of all rates,
    to which the others are in proportion.
    """
    mean = float(folded.rates[:, :, :2].sum(axis=(1, 2)).mean()) / brokers
    for interval, rates in enumerate(folded.rates):
        for broker in range(brokers):
            own = rates[broker::brokers]
            cpu = round(float(own[:, :2].sum()) / mean * mean_percent, 3)
            yield {
                "broker": f"b{broker + 1}",
                "minute_ms": folded.start_ms + interval * folded.step_ms,
                "percent": list(complete([cpu])),
                "bundles": list(folded.bundles[broker::brokers]),
                "msg_rate_in": own[:, 0].tolist(),
                "msg_rate_out": own[:, 1].tolist(),
                "msg_throughput_in": own[:, 2].tolist(),
                "msg_throughput_out": own[:, 3].tolist(),
                "topics": np.maximum(folded.topics[broker::brokers], 1).astype(float).tolist(),
            }


def _rates(amounts: Mapping[str, Floats]) -> tuple[Floats, list[str]]:
    """Return float64[intervals, entities, 4] of all resources, and sentences on each."""
    notes = [
        f"{kind} weighs nothing: it is 0 throughout"
        for kind, found in amounts.items()
        if not found.any()
    ]
    left = {kind: found for kind, found in amounts.items() if found.any()}
    notes += [
        f"{kind} weighs nothing: no broker of the simulator reports it by bundle"
        for kind in left
        if kind in _WEIGHTLESS
    ]
    nothing = np.zeros(next(iter(amounts.values())).shape) if amounts else np.zeros((0, 0))
    messages = _directed(left, "msg", nothing)
    volumes = _directed(left, "bytes", nothing)
    message = [kind for kind in ("msg", "msg_in", "msg_out") if kind in left]
    volume = [kind for kind in ("bytes", "bytes_in", "bytes_out") if kind in left]
    if message:
        notes += [f"{kind} is the bundles' messages" for kind in message]
        if "cpu" in left:
            notes.append("cpu weighs nothing: messages are told, and brokers' CPU follows them")
    elif "cpu" in left:
        half = left["cpu"] * (0.5 * _PER_PERCENT)
        messages = [half, half]
        notes.append("cpu became messages: 1 percent of a core = 400 msg/s, half in, half out")
    elif volume:
        messages = [found / MESSAGE_BYTES for found in volumes]
        notes.append("messages are not told: one a KiB")
    notes += [f"{kind} is the bundles' bytes" for kind in volume]
    if not volume:
        volumes = [found * MESSAGE_BYTES for found in messages]
        if any(found.any() for found in messages):
            notes.append("bytes are not told: 1 KiB a message")
    return np.stack((*messages, *volumes), axis=2), notes


def _directed(left: Mapping[str, Floats], kind: str, nothing: Floats) -> list[Floats]:
    """Return in and out; amounts without direction count half for each."""
    half = left.get(kind, nothing) * 0.5
    return [half + left.get(f"{kind}_in", nothing), half + left.get(f"{kind}_out", nothing)]


COLUMNS = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
KEPT_INTERVALS = 5
"""Longest gap that is bridged, in intervals; in a longer one the bundle carries nothing."""
TOPICS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedNamespace:
    """A namespace's load. edges: int64[cells + 1], ascending, of the whole hash space.

    rates: float64[intervals, cells, 4], columns COLUMNS. topics: int64[cells], from 1.
    """

    edges: Ints
    rates: Floats
    topics: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Recorded load.

    times_ms: int64[intervals], ascending, in ms since 1970.
    """

    times_ms: Ints
    namespaces: Mapping[str, RecordedNamespace]

    @property
    def length_ms(self) -> int:
        """From its start until its last interval is over."""
        times = self.times_ms
        last = int(times[-1] - times[-2]) if len(times) > 1 else 60_000
        return int(times[-1] - times[0]) + last

    def interval_at(self, since_ms: int) -> int:
        """Return the interval at this time after the start; at its end it repeats."""
        at_ms = int(self.times_ms[0]) + since_ms % self.length_ms
        return int(np.searchsorted(self.times_ms, at_ms, side="right")) - 1


class RecordingError(ValueError):
    """Rows that make no recording; the text is the reason."""


def make_recording(rows: Iterable[Mapping[str, Any]]) -> Recording:
    """Return the recording of rows of `load_history`. O(intervals × bundles).

    Raises RecordingError.
    """
    known = sorted(rows, key=lambda row: (row["minute_ms"], row["broker"]))
    times = sorted({int(row["minute_ms"]) for row in known})
    if not times:
        raise RecordingError("there is not one row")
    for row in known:
        lengths = {len(row[name]) for name in ("bundles", "topics", *COLUMNS)}
        if len(lengths) > 1:
            raise RecordingError(
                f"the arrays of {row['broker']} differ in length: {sorted(lengths)}"
            )
    ranges = _ranges_of(known)
    if not ranges:
        raise RecordingError("no row names a bundle")
    ends: dict[str, set[int]] = {}
    for namespace, lower, end in ranges.values():
        ends.setdefault(namespace, {0, HASH_SPACE}).update((lower, end))
    edges = {name: np.array(sorted(ends[name]), dtype=np.int64) for name in sorted(ends)}
    rates = {
        name: np.full((len(times), len(own) - 1, len(COLUMNS)), np.nan)
        for name, own in edges.items()
    }
    topics = {name: np.zeros(len(own) - 1) for name, own in edges.items()}
    widths = {name: np.diff(own).astype(float) for name, own in edges.items()}
    by_time = groupby(known, key=lambda row: int(row["minute_ms"]))
    for interval, (_, found) in enumerate(by_time):
        loads: list[tuple[Any, ...]] = [
            load
            for row in found
            for load in zip(row["bundles"], row["topics"], *map(row.get, COLUMNS), strict=True)
        ]
        for bundle, count, *traffic in sorted(loads, key=lambda load: ranges[load[0]][:2]):
            namespace, lower, end = ranges[bundle]
            own = edges[namespace]
            first, last = np.searchsorted(own, (lower, end)).tolist()
            part = widths[namespace][first:last] / float(end - lower)
            rates[namespace][interval, first:last] = part[:, np.newaxis] * np.array(traffic)
            cells = topics[namespace][first:last]
            np.maximum(cells, part * count, out=cells)
    return Recording(
        times_ms=np.array(times, dtype=np.int64),
        namespaces={
            name: RecordedNamespace(
                edges=edges[name],
                rates=_bridged(rates[name]),
                topics=np.clip(np.rint(topics[name]), 1, TOPICS_MAX).astype(np.int64),
            )
            for name in edges
        },
    )


def _ranges_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, int, int]]:
    """Bundle → its namespace, lower edge and end."""
    found: dict[str, tuple[str, int, int]] = {}
    for row in rows:
        for bundle in row["bundles"]:
            if bundle in found:
                continue
            try:
                namespace, lower, upper = parse_bundle(bundle)
            except InvalidNameError:
                raise RecordingError(f"{bundle!r} is no bundle") from None
            found[bundle] = (namespace, lower, range_end(upper))
    return found


def _bridged(rates: Floats) -> Floats:
    """Return the rates with short gaps filled, in place.

    They have the value before (at the start: after), and long ones nothing.
    """
    for cell in range(rates.shape[1]):
        known = np.flatnonzero(~np.isnan(rates[:, cell, 0])).tolist()
        for before, after in pairwise([-1, *known, len(rates)]):
            source = before if before >= 0 else after
            last = min(after, before + 1 + KEPT_INTERVALS)
            if source < len(rates):
                rates[before + 1 : last, cell] = rates[source, cell]
    return np.nan_to_num(rates, copy=False, nan=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Distribution of the cells' load over a namespace's topics.

    Topic targets[i] gets cells[i] × parts[i].
    """

    targets: Ints
    cells: Ints
    parts: Floats

    def over(self, rates: Floats, topics: int) -> Floats:
        """float64[topics, 4] of float64[cells, 4]."""
        found = np.zeros((topics, rates.shape[1]))
        np.add.at(found, self.targets, rates[self.cells] * self.parts[:, np.newaxis])
        return found


def spread_over(space: RecordedNamespace, positions: Ints) -> Spread:
    """Each cell's load evenly over its topics; where it has none, on the next topic.

    positions: ascending hash positions, at least one.
    """
    firsts = np.searchsorted(positions, space.edges[:-1])
    lasts = np.searchsorted(positions, space.edges[1:])
    counts = np.maximum(lasts - firsts, 1)
    cells = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    targets = np.minimum(firsts[cells] + offsets, len(positions) - 1)
    return Spread(targets=targets, cells=cells, parts=1.0 / counts[cells])


def positions_of(space: RecordedNamespace) -> Ints:
    """Return the default positions of topics: evenly in each cell, as many as it had."""
    lowers, widths = space.edges[:-1], np.diff(space.edges)
    counts = np.minimum(space.topics, widths)
    cells = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    positions: Ints = lowers[cells] + (2 * numbers + 1) * widths[cells] // (2 * counts[cells])
    return positions
