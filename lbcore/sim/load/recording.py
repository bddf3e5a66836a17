"""Recorded load: the load of each part of the hash space, by intervals.

Decides how rows of `load_history` become load that belongs to hash positions, so that it goes with
a bundle to whoever owns it next and with the children of a split. Knows nothing of owners. Between
two boundaries that any bundle ever had lies a *cell*: a bundle's load is spread over its cells by
their width. A bundle that had no row for a moment (it was on its way) keeps its last load.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from lbcore.model.hashing import HASH_SPACE
from lbcore.model.names import FULL_UPPER, InvalidNameError, parse_bundle
from lbcore.sim.load.load import Floats, Ints

COLUMNS = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
KEPT_INTERVALS = 5
"""So many intervals without a row are bridged; longer, and the bundle carries nothing."""
TOPICS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedNamespace:
    """A namespace's load. edges: int64[cells + 1], ascending, of the whole hash space.

    rates: float64[intervals, cells, 4], as COLUMNS. topics: int64[cells], from 1.
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
        """The interval so long after the start; past its end the recording begins again."""
        at_ms = int(self.times_ms[0]) + since_ms % self.length_ms
        return int(np.searchsorted(self.times_ms, at_ms, side="right")) - 1


class RecordingError(ValueError):
    """Rows that no recording can be made of; the text says why."""


def make_recording(rows: Iterable[Mapping[str, Any]]) -> Recording:
    """Return the recording of rows. Raises RecordingError. O(intervals × bundles).

    Rows of `load_history`.
    """
    known = sorted(rows, key=lambda row: (row["minute_ms"], row["broker"]))
    times = sorted({int(row["minute_ms"]) for row in known})
    if not times:
        raise RecordingError("there is not one row")
    for row in known:
        _check_lengths(row)
    ranges = _ranges_of(known)
    if not ranges:
        raise RecordingError("no row names a bundle")
    ends: dict[str, set[int]] = {}
    for namespace, lower, end in ranges.values():
        ends.setdefault(namespace, {0, HASH_SPACE}).update((lower, end))
    spaces = {name: _NamespaceLoads(ends[name], len(times)) for name in sorted(ends)}
    by_time = groupby(known, key=lambda row: int(row["minute_ms"]))
    for interval, (_, found) in enumerate(by_time):
        loads = [load for row in found for load in _loads_of(row)]
        for name, topics, rates in sorted(loads, key=lambda load: ranges[load[0]][:2]):
            namespace, lower, end = ranges[name]
            spaces[namespace].take((lower, end), interval, topics, rates)
    return Recording(
        times_ms=np.array(times, dtype=np.int64),
        namespaces={name: space.finished() for name, space in spaces.items()},
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
            found[bundle] = (namespace, lower, HASH_SPACE if upper == FULL_UPPER else upper)
    return found


def _check_lengths(row: Mapping[str, Any]) -> None:
    lengths = {len(row[name]) for name in ("bundles", "topics", *COLUMNS)}
    if len(lengths) > 1:
        raise RecordingError(f"the arrays of {row['broker']} differ in length: {sorted(lengths)}")


def _loads_of(row: Mapping[str, Any]) -> Iterator[tuple[str, float, list[float]]]:
    """Each bundle of a row, its topics and its rates."""
    columns = [row[name] for name in COLUMNS]
    for bundle, topics, *rates in zip(row["bundles"], row["topics"], *columns, strict=True):
        yield bundle, topics, rates


class _NamespaceLoads:
    """A namespace's load, filled bundle by bundle."""

    def __init__(self, ends: Iterable[int], intervals: int) -> None:
        self._edges = np.array(sorted(ends), dtype=np.int64)
        self._widths = np.diff(self._edges).astype(float)
        self._rates = np.full((intervals, len(self._widths), len(COLUMNS)), np.nan)
        self._topics = np.zeros(len(self._widths))

    def take(
        self, span: tuple[int, int], interval: int, topics: float, rates: Sequence[float]
    ) -> None:
        first, last = np.searchsorted(self._edges, span).tolist()
        part = self._widths[first:last] / float(span[1] - span[0])
        self._rates[interval, first:last] = part[:, np.newaxis] * np.array(rates)
        self._topics[first:last] = np.maximum(self._topics[first:last], part * topics)

    def finished(self) -> RecordedNamespace:
        _bridge(self._rates)
        counts = np.clip(np.rint(self._topics), 1, TOPICS_MAX).astype(np.int64)
        return RecordedNamespace(edges=self._edges, rates=self._rates, topics=counts)


def _bridge(rates: Floats) -> None:
    """Fill short gaps with the value before (at the start: after).

    Long ones have nothing.
    """
    for cell in range(rates.shape[1]):
        known = np.flatnonzero(~np.isnan(rates[:, cell, 0])).tolist()
        for before, after in pairwise([-1, *known, len(rates)]):
            source = before if before >= 0 else after
            last = min(after, (before if before >= 0 else -1) + 1 + KEPT_INTERVALS)
            if source < len(rates):
                rates[before + 1 : last, cell] = rates[source, cell]
    np.nan_to_num(rates, copy=False, nan=0.0)


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
