"""The traffic of a scenario: what every topic carries at a moment.

As in `load`, load belongs to topics and topics to hash positions, so children of a split inherit
what their parent carried. Pure numpy without transcendental functions (square roots are exact in
IEEE 754): the same scenario gives the same bits everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lbcore.model.bundles import HASH_SPACE
from lbcore.sim.load.load import (
    Floats,
    Ints,
    LoadField,
    TopicLayout,
    grained,
    total,
    uniform,
    uniforms,
    wave,
    zipf_weights,
)
from lbcore.sim.load.recording import MESSAGE_BYTES, spread_over
from lbcore.sim.scenario.model import AS_RECORDED, LoadSpec, NamespaceSpec, Scenario

LOAD_STEP_MS = 10_000
_PERCENT = 100.0
_FIELDS_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A load line of the scenario, ready to be evaluated.

    shape: msg/s in + out of each topic. replay: recorded load instead, by the time since its start:
    float64[topics, 4], rates and throughputs, in and out.
    """

    spec: LoadSpec
    total: float
    rows: slice
    shape: Floats
    replay: Callable[[int], Floats] | None = None


class Traffic:
    """All topics of a scenario, by namespace, in the order of their positions."""

    def __init__(self, scenario: Scenario) -> None:
        self._noise = scenario.noise
        self._per_point = scenario.full_rate / _PERCENT
        self._recordings = scenario.recordings
        self._seed = scenario.seed
        spaces = scenario.namespaces
        positions = {space.name: _positions(space, scenario.seed) for space in spaces}
        self.layout = TopicLayout(positions)
        self.topics = sum(len(column) for column in positions.values())
        points = sum(_PERCENT * b.capacity for b in scenario.brokers if not b.is_absent)
        self._brokers = len(scenario.brokers)
        by_name = {space.name: space for space in spaces}
        self._parts = [
            self._part(number, spec, by_name[spec.namespace], points)
            for number, spec in enumerate(scenario.loads)
        ]
        self._field_at = lru_cache(maxsize=_FIELDS_KEPT)(self._field)
        steps = [
            min(np.diff(recording.times_ms).tolist(), default=LOAD_STEP_MS)
            for recording in self._recordings.values()
        ]
        steps += [LOAD_STEP_MS] if any(map(_is_varying, self._parts)) else []
        steps += [self._noise.step_ms] if self._noise.traffic else []
        self._step_ms = min(steps, default=0)

    def at(self, now_ms: int) -> "TrafficField":
        """Return the field at a time; constant load is computed once."""
        return self._field_at(self.step_at(now_ms))

    def step_at(self, now_ms: int) -> int:
        """Return the number of the field at that time; equal numbers, equal load."""
        return now_ms // self._step_ms if self._step_ms else 0

    def rates_at(self, now_ms: int) -> Floats:
        """Return msg/s in + out of each topic; float64[topics]."""
        return self.at(now_ms).rates

    def _part(
        self, number: int, spec: LoadSpec, space: NamespaceSpec, cluster_points: float
    ) -> _Part:
        ends = np.array(space.edges, dtype=np.int64)
        lower, upper = ends[[spec.first]], ends[[spec.last + 1]]
        first, last = self.layout.locate(space.name, lower, upper)[0].tolist()
        count = last - first
        bundles = spec.last - spec.first + 1
        value = spec.rate.value * (bundles if spec.rate.is_each else 1)
        unit = {"msg/s": 1.0, "pt": self._per_point}.get(
            spec.rate.unit, cluster_points * self._per_point / _PERCENT
        )
        if spec.spread == "replay":
            return self._replayed(spec, space, value * unit)
        weights = self._weights(spec, count, f"{spec.spread} {space.name} {number} {spec.seed}")
        return _Part(
            spec=spec,
            total=value * unit,
            rows=slice(first, last),
            shape=weights * (value * unit / (total(weights) or 1.0)),
        )

    def _replayed(self, spec: LoadSpec, space: NamespaceSpec, wanted: float) -> _Part:
        """Return a recorded part. wanted: its mean in msg/s, unless unchanged."""
        recording = self._recordings[spec.recording]
        recorded = recording.namespaces[spec.of or space.name]
        mean = float(recorded.rates[:, :, :2].sum(axis=(1, 2)).mean())
        factor = 1.0 if spec.rate.unit == AS_RECORDED or not mean else wanted / mean
        start, hashes = self.layout.starts[space.name], self.layout.hashes[space.name]
        spread = spread_over(recorded, hashes)

        def replay(since_ms: int) -> Floats:
            rates = recorded.rates[recording.interval_at(since_ms)]
            return spread.over(rates, len(hashes)) * factor

        rows = slice(start, start + len(hashes))
        return _Part(spec=spec, total=0.0, rows=rows, shape=np.zeros(len(hashes)), replay=replay)

    def _weights(self, spec: LoadSpec, count: int, stream: str) -> Floats:
        if spec.spread == "topic":
            return np.array([1.0] + [0.0] * (count - 1)) if count else np.zeros(0)
        if spec.spread == "zipf":
            return zipf_weights(uniforms(self._seed, stream, count), self._brokers)
        if spec.spread == "pareto":
            # (1 - u)^(-1/alpha), by square roots alone
            inverse = 1.0 / (1.0 - uniforms(self._seed, stream, count))
            root = np.sqrt(inverse)
            by_alpha = {1.0: inverse, 2.0: root, 4.0: np.sqrt(root)}
            return by_alpha.get(spec.alpha, root * np.sqrt(root))
        return np.ones(count)

    def _field(self, step: int) -> "TrafficField":
        now_ms = step * self._step_ms
        rates = np.zeros(self.topics)
        recorded = np.zeros((self.topics, 4)) if self._recordings else None
        for number, part in enumerate(self._parts):
            if part.replay is None or recorded is None:
                rates[part.rows] += self._part_at(number, part, now_ms)
            else:
                replayed = part.replay(max(0, now_ms - part.spec.from_ms))
                recorded[part.rows] += replayed * _factor(part.spec, now_ms)
        if self._noise.traffic:
            drawn = uniforms(self._seed, f"traffic {now_ms // self._noise.step_ms}", self.topics)
            noise = 1.0 + self._noise.traffic * (2.0 * drawn - 1.0)
            rates *= noise
            recorded = None if recorded is None else recorded * noise[:, np.newaxis]
        return TrafficField(self.layout, _rows(rates, recorded))

    def _part_at(self, number: int, part: _Part, now_ms: int) -> Floats | float:
        factor = _factor(part.spec, now_ms)
        if factor == 0.0 or part.spec.spread != "hotspot":
            return part.shape * factor
        hashes = self.layout.hashes[part.spec.namespace]
        start = self.layout.starts[part.spec.namespace]
        hashes = hashes[part.rows.start - start : part.rows.stop - start]
        jump = (now_ms - part.spec.from_ms) // max(1, part.spec.jump_ms)
        begin = int(uniform(self._seed, f"hot {number} {part.spec.seed} {jump}") * HASH_SPACE)
        is_hot = (hashes - begin) % HASH_SPACE < int(part.spec.width * HASH_SPACE)
        hot = int(np.count_nonzero(is_hot))
        return np.where(is_hot, part.total * factor / hot, 0.0) if hot else 0.0


class TrafficField(LoadField):
    """Traffic of every topic at one moment. rates: float64[topics], msg/s in + out."""

    def __init__(self, layout: TopicLayout, rows: Floats) -> None:
        super().__init__(layout, rows)
        self.rates: Floats = rows[:, 0] + rows[:, 1]

    def served(self, rates: Floats) -> "TrafficField":
        """Return the field with only the served load. rates: float64[topics], msg/s.

        A topic without clients whose backlog is served has messages of the usual size.
        """
        rows = np.diff(self._sums, axis=0)
        part = np.where(self.rates > 0.0, rates / np.where(self.rates > 0.0, self.rates, 1.0), 0.0)
        late = np.where(self.rates > 0.0, 0.0, 0.5 * rates)
        traffic = rows[:, :4] * part[:, np.newaxis] + late[:, np.newaxis] * _PLAIN
        traffic = np.hstack((grained(traffic[:, :2]), np.rint(traffic[:, 2:])))
        is_changed = rates != self.rates
        rows[is_changed, :4] = traffic[is_changed]
        rows[is_changed, -1] = traffic[is_changed, 2]
        return TrafficField(self.layout, rows)


def _rows(rates: Floats, recorded: Floats | None) -> Floats:
    """Return float64[topics, 8], columns BUNDLE_COLUMNS.

    rates: drawn by the scenario, msg/s in + out; recorded: float64[topics, 4], added to it.
    """
    rate_in = rate_out = grained(0.5 * rates)
    bytes_in = bytes_out = rate_in * MESSAGE_BYTES
    if recorded is not None:
        rate_in, rate_out = rate_in + grained(recorded[:, 0]), rate_out + grained(recorded[:, 1])
        bytes_in = bytes_in + np.rint(recorded[:, 2])
        bytes_out = bytes_out + np.rint(recorded[:, 3])
    ones = np.ones(len(rates))
    columns = (rate_in, rate_out, bytes_in, bytes_out, ones, ones, ones, bytes_in)
    return np.stack(columns, axis=1)


_PLAIN = np.array([1.0, 1.0, MESSAGE_BYTES, MESSAGE_BYTES])


def _is_varying(part: _Part) -> bool:
    spec = part.spec
    last_ms = min(spec.to_ms, spec.from_ms + spec.length_ms)
    has_form = spec.grow_ms or spec.wave_ms or spec.every_ms or spec.spread == "hotspot"
    return bool(has_form or spec.from_ms or last_ms < 1 << 59)


def _factor(spec: LoadSpec, now_ms: int) -> float:
    """Return the share of its full load that a part has now."""
    if not spec.from_ms <= now_ms < spec.to_ms:
        return 0.0
    since_ms = now_ms - spec.from_ms
    if spec.every_ms:
        since_ms %= spec.every_ms
    if since_ms >= spec.length_ms:
        return 0.0
    factor = 1.0
    if spec.grow_ms:
        factor = min(1.0, since_ms / spec.grow_ms)
    if spec.wave_ms:
        factor *= 1.0 + spec.depth * wave((now_ms - spec.from_ms) / spec.wave_ms)
    return factor


def _positions(space: NamespaceSpec, seed: int) -> Ints:
    """Ascending hash positions of a namespace's topics."""
    if space.positions:
        return np.array(space.positions, dtype=np.int64)
    count = space.bundles * space.topics
    if space.is_hashed:
        drawn = uniforms(seed, f"positions {space.name}", count)
        return np.sort((drawn * HASH_SPACE).astype(np.int64))
    edges = np.array(space.edges, dtype=np.int64)
    lower, widths = edges[:-1], edges[1:] - edges[:-1]
    offsets = (2 * np.arange(space.topics) + 1)[np.newaxis, :] * widths[:, np.newaxis]
    positions: Ints = lower[:, np.newaxis] + offsets // (2 * space.topics)
    return positions.reshape(-1)
