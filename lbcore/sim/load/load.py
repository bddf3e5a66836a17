"""The load model: the load of each topic, bundle and broker at a moment.

Used by `jobs.run_fleet` and by the simulator. Load belongs to topics, topics to hash positions: a
bundle's traffic is the sum over its range, so children of a split inherit what their parent
carried. Pure numpy without transcendental functions: the same arguments give the same bits
everywhere. Random numbers are a pure function of (seed, stream, index), by the splitmix64 finalizer
(Steele, Lea, Flood 2014).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from lbcore.model.bundles import HASH_SPACE, HashFunction, hash_topics
from lbcore.model.names import FULL_UPPER, format_topic, parse_bundle, range_end
from lbcore.model.resources import COUNT, complete

Floats: TypeAlias = NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mixed(word: Any) -> Any:
    """Return an int of 64 bits, or an array of uint64, by the finalizer."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def uniforms(seed: int, stream: str, count: int) -> Floats:
    """Return `count` numbers in [0, 1); different streams are independent."""
    start = (seed * _GOLDEN + (crc32(stream.encode()) << 17)) & _MASK
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    words = _mixed(_mixed(np.uint64(start) + steps))
    drawn: Floats = (words >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return drawn


def uniform(seed: int, stream: str) -> float:
    """One number in [0, 1)."""
    return float(uniforms(seed, stream, 1)[0])


class RandomStream:
    """A stream of random numbers; those of different seeds are independent."""

    def __init__(self, seed: int) -> None:
        self._state: int = _mixed((seed * _GOLDEN + 1) & _MASK)

    def next_number(self) -> float:
        """The next number in [0, 1)."""
        self._state = (self._state + _GOLDEN) & _MASK
        return float((_mixed(self._state) >> 11) / (1 << 53))

    def happens(self, chance: float) -> bool:
        """True if an event of this chance happens.

        Draws a number only if the chance is neither 0 nor 1.
        """
        return chance > 0.0 and (chance >= 1.0 or self.next_number() < chance)

    def between(self, shortest: int, longest: int) -> int:
        """A whole number from the shortest to the longest."""
        return shortest + int(self.next_number() * (longest - shortest + 1))


Ints: TypeAlias = NDArray[np.int64]

FULL_RATE_MSG_PER_S = 40_000.0
"""msg/s in + out at which a broker of capacity 1.0 reaches 100 % CPU."""

_GRAIN = 1024.0  # rates are multiples of 1/1024 msg/s, so that sums in float64 are exact


def grained(rates: Floats) -> Floats:
    """Round rates to multiples of 1/1024 msg/s."""
    rounded: Floats = np.rint(rates * _GRAIN) / _GRAIN
    return rounded


class LoadShape(str, Enum):
    """Distribution of traffic over topics and time.

    The value is the word on the command line.
    """

    EVEN = "even"
    ZIPF = "zipf"
    MOVING_HOTSPOT = "moving-hotspot"
    DAILY_WAVE = "daily-wave"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceLoad:
    """A namespace with load; bundles: at its creation."""

    name: str
    hash_function: HashFunction
    bundles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """The shape and its numbers; times are virtual (the caller applies `speed`).

    brokers: number that the total is sized for: evenly loaded, they run at `utilisation` of their
    CPU. hotspot_width: share of one namespace's hash range that is hot; hotspot_share: its share of
    all traffic, less where a hot bundle would outgrow `hottest_bundle` of a broker's mean load, so
    that moves can help; hotspot_period_ms: interval of its jumps, 0 = never. wave_depth: a
    namespace carries between 1 - depth and 1 + depth of its mean.
    """

    shape: LoadShape
    brokers: int
    seed: int = 2
    utilisation: float = 0.45
    topics_per_bundle: int = 5
    hotspot_width: float = 0.06
    hotspot_share: float = 0.5
    hottest_bundle: float = 0.2
    hotspot_period_ms: int = 600_000
    wave_period_ms: int = 86_400_000
    wave_depth: float = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topics:
    """One namespace's topics in the order of hashes; arrays have a row a topic."""

    hashes: Ints
    order: Ints
    fanout: Floats
    message_bytes: Floats
    producers: Ints
    consumers: Ints
    base: Floats
    heat: Floats


def topic_name(namespace: str, number: int) -> str:
    """Return the topic's full name; its hash decides its bundle."""
    return format_topic(namespace, f"topic-{number}")


def wave(phase: float) -> float:
    """Return a smooth wave of period 1 in [-1, 1], of two parabolas.

    It is 1 at a phase of 0.25.
    """
    phase -= int(phase)
    if phase < 0.5:  # noqa: PLR2004 - the first half of the period
        return 16.0 * phase * (0.5 - phase)
    return -16.0 * (phase - 0.5) * (1.0 - phase)


class TopicLayout:
    """Positions of each namespace's topics among all topics.

    Topics are ordered by namespace, then by hash.
    """

    def __init__(self, hashes: dict[str, Ints]) -> None:
        """hashes: namespace → ascending positions of its topics."""
        counts = [len(column) for column in hashes.values()]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64).tolist()
        self.starts: dict[str, int] = dict(zip(hashes, starts[:-1], strict=True))
        self.hashes = hashes

    def locate(self, namespace: str, lowers: Ints, uppers: Ints) -> Ints:
        """int64[n, 2]: the first row and the one after the last of n ranges.

        A range is [lower, upper), closed where upper is 0xffffffff. An unknown namespace has no
        rows. O(n log topics).
        """
        if namespace not in self.hashes:
            return np.zeros((len(lowers), 2), dtype=np.int64)
        ends = np.where(uppers == FULL_UPPER, HASH_SPACE, uppers)
        found = np.searchsorted(self.hashes[namespace], np.stack((lowers, ends), axis=1))
        rows: Ints = found + self.starts[namespace]
        return rows


class LoadField:
    """The traffic of every topic at one moment, ready to be summed over bundles.

    layout: the same in every field of a model.
    """

    def __init__(self, layout: TopicLayout, rows: Floats) -> None:
        """rows: float64[topics, 8], columns BUNDLE_COLUMNS."""
        self.layout = layout
        self._sums = np.zeros((len(rows) + 1, 8))  # row i is the sum over the first i topics
        np.cumsum(rows, axis=0, out=self._sums[1:])

    def located(self, rows: Ints) -> Floats:
        """Return float64[n, 8], columns BUNDLE_COLUMNS, for rows of `layout.locate`.

        Exact: disjoint ranges add up to their union. O(n).
        """
        found: Floats = self._sums[rows[:, 1]] - self._sums[rows[:, 0]]
        return found

    def bundles(self, namespace: str, lowers: Ints, uppers: Ints) -> Floats:
        """float64[n, 8] for n ranges of one namespace."""
        return self.located(self.layout.locate(namespace, lowers, uppers))

    def topics(self, namespace: str, lower: int, upper: int) -> Floats:
        """Return float64[topics, 8], the topics of one range in the order of hashes."""
        first, last = self.layout.locate(namespace, np.array([lower]), np.array([upper]))[0]
        return np.diff(self._sums[first : last + 1], axis=0)


def _stats(topics: _Topics, rates: Floats) -> Floats:
    """float64[topics, 8] in the order of BUNDLE_COLUMNS."""
    rate_in, rate_out = grained(rates), grained(rates * topics.fanout)
    bytes_in = np.rint(rate_in * topics.message_bytes)
    bytes_out = np.rint(rate_out * topics.message_bytes)
    columns = (
        rate_in,
        rate_out,
        bytes_in,
        bytes_out,
        np.ones(len(rates)),
        topics.consumers,
        topics.producers,
        bytes_in,  # a cache of one second's messages
    )
    return np.stack(columns, axis=1)


class LoadModel:
    """All namespaces under one profile."""

    def __init__(self, namespaces: Sequence[NamespaceLoad], profile: LoadProfile) -> None:
        """Lay the topics out; O(topics log topics), about 1 µs a topic."""
        self.profile = profile
        self.namespaces = tuple(sorted(namespaces, key=lambda namespace: namespace.name))
        self._topics = {
            namespace.name: _topics_of(namespace, profile) for namespace in self.namespaces
        }
        self._layout = TopicLayout({name: column.hashes for name, column in self._topics.items()})
        self._base = _base_rates(self._topics, profile)
        self._field_at = lru_cache(maxsize=2)(self._field)

    def at(self, virtual_ms: int) -> LoadField:
        """Return the field at a virtual time; constant shapes are computed once.

        A daily wave advances in steps of a thousandth of its period.
        """
        return self._field_at(self.step_at(virtual_ms))

    def topics_in(self, namespace: str, lower: int, upper: int) -> tuple[str, ...]:
        """Return names of topics in [lower, upper), by hash.

        Closed at 0xffffffff.
        """
        column = self._topics[namespace]
        first, last = np.searchsorted(column.hashes, (lower, range_end(upper)))
        return tuple(topic_name(namespace, int(number)) for number in column.order[first:last])

    def topics_of(self, bundle: str, virtual_ms: int) -> tuple[tuple[str, ...], Floats]:
        """Return the bundle's topics by hash, and their traffic, float64[topics, 4]."""
        namespace, lower, upper = parse_bundle(bundle)
        if namespace not in self._topics:
            return (), np.zeros((0, 4))
        rows = self.at(virtual_ms).topics(namespace, lower, upper)
        return self.topics_in(namespace, lower, upper), rows[:, :4]

    def step_at(self, virtual_ms: int) -> int:
        """Return the number of the field at that time; equal numbers, equal load."""
        profile = self.profile
        if profile.shape is LoadShape.DAILY_WAVE:
            return virtual_ms * 1000 // profile.wave_period_ms
        if profile.shape is LoadShape.MOVING_HOTSPOT and profile.hotspot_period_ms > 0:
            return virtual_ms // profile.hotspot_period_ms
        return 0

    def _field(self, step: int) -> LoadField:
        rates = self._base
        if self.profile.shape is LoadShape.DAILY_WAVE:
            rates = {}
            for index, name in enumerate(self._topics):
                phase = step / 1000.0 + index / len(self._topics)
                rates[name] = self._base[name] * (1.0 + self.profile.wave_depth * wave(phase))
        elif self.profile.shape is LoadShape.MOVING_HOTSPOT:
            rates = self._heated(step)
        rows = [_stats(topics, rates[name]) for name, topics in self._topics.items()]
        return LoadField(self._layout, np.concatenate(rows))

    def _window(self, step: int) -> tuple[NamespaceLoad, int, int]:
        """Return the hot namespace, and the start and the width of its hot range."""
        seed = self.profile.seed
        index = int(uniform(seed, f"hot namespace {step}") * len(self.namespaces))
        start = int(uniform(seed, f"hot start {step}") * HASH_SPACE)
        return self.namespaces[index], start, int(self.profile.hotspot_width * HASH_SPACE)

    def _heated(self, step: int) -> dict[str, Floats]:
        """Return the base with a hot window.

        All topics are scaled down by the share that the hot ones get in addition.
        """
        profile = self.profile
        space, start, width = self._window(step)
        column = self._topics[space.name]
        is_hot = (column.hashes - start) % HASH_SPACE < width
        heat = np.where(is_hot, column.heat, 0.0)
        total_heat = total(heat * (1.0 + column.fanout))
        if total_heat <= 0.0:
            return self._base
        hot_bundles = max(1.0, profile.hotspot_width * space.bundles)
        share = min(profile.hotspot_share, profile.hottest_bundle * hot_bundles / profile.brokers)
        rates = {name: base * (1.0 - share) for name, base in self._base.items()}
        rates[space.name] += heat * (share * _total_rate(profile) / total_heat)
        return rates


def total(column: Floats) -> float:
    """Sum from first to last; numpy's `sum` adds in an order that depends on the CPU."""
    return float(np.cumsum(column)[-1]) if len(column) else 0.0


def _total_rate(profile: LoadProfile) -> float:
    return profile.brokers * profile.utilisation * FULL_RATE_MSG_PER_S


def _topics_of(namespace: NamespaceLoad, profile: LoadProfile) -> _Topics:
    count = max(1, namespace.bundles * profile.topics_per_bundle)
    names = (topic_name(namespace.name, number) for number in range(count))
    hashes = hash_topics(namespace.hash_function, names)
    order = np.argsort(hashes, kind="stable")

    def drawn(what: str) -> Floats:
        return uniforms(profile.seed, f"{what} {namespace.name}", count)[order]

    return _Topics(
        hashes=hashes[order],
        order=order,
        fanout=1.0 + drawn("fanout"),
        message_bytes=512.0 + np.rint(drawn("bytes") * 1024.0),
        producers=1 + (drawn("producers") * 2.0).astype(np.int64),
        consumers=1 + (drawn("consumers") * 4.0).astype(np.int64),
        base=drawn("base"),
        # u^8 + 0.01: few topics carry most; the deviation is about 2 means
        heat=np.square(np.square(np.square(drawn("heat")))) + 0.01,
    )


def _base_rates(topics: dict[str, _Topics], profile: LoadProfile) -> dict[str, Floats]:
    """Return msg/s into each topic; in + out add up to the profile's total rate."""
    weights = _weights(np.concatenate([column.base for column in topics.values()]), profile)
    fanouts = np.concatenate([column.fanout for column in topics.values()])
    rates = weights * (_total_rate(profile) / total(weights * (1.0 + fanouts)))
    ends = np.cumsum([len(column.hashes) for column in topics.values()])
    return dict(zip(topics, np.split(rates, ends[:-1]), strict=True))


def _weights(drawn: Floats, profile: LoadProfile) -> Floats:
    """Return the topics' weights; but for even and zipf, within a factor of three."""
    if profile.shape is LoadShape.EVEN:
        return np.ones(len(drawn))
    if profile.shape is LoadShape.ZIPF:
        return zipf_weights(drawn, profile.brokers)
    return 0.5 + drawn


def zipf_weights(drawn: Floats, brokers: int) -> Floats:
    """Return 1 / (rank + 4 × brokers); the ranks are those of the drawn numbers.

    The offset keeps the hottest topic well below a broker's mean.
    """
    ranks = np.empty(len(drawn))
    ranks[np.argsort(drawn, kind="stable")] = np.arange(1, len(drawn) + 1)
    return 1.0 / (ranks + 4.0 * brokers)


_CPU_IDLE_PERCENT = 3.0
_NIC_KBIT_PER_S = 1_000_000.0
_HEAP_MB, _HEAP_IDLE_MB, _HEAP_MB_PER_TOPIC = 4096.0, 256.0, 0.05
_DIRECT_MB, _DIRECT_IDLE_MB = 8192.0, 128.0


def usage_of(stats: Floats, capacity: float, noise: float) -> tuple[Floats, Floats]:
    """Usage and limits of a broker for the sum of its bundles' rows (float64[8]).

    cpu = 3 % + 97 % × (msg/s in + out) / (40,000 × capacity) + noise, 100 % at most; bandwidth in
    kbit/s of 1 Gbit × capacity; heap 256 MB + 0.05 a topic of 4,096 × capacity; direct memory
    128 MB + two seconds of input. Example: 20,000 msg/s, capacity 1, noise 0: cpu 51.5.
    noise: percentage points on cpu, see `cpu_noise`. stats: in the order of BUNDLE_COLUMNS.
    Returned: a number per resource; a limit of -1 = unknown.
    """
    rate = float(stats[0] + stats[1])
    cpu = _CPU_IDLE_PERCENT + (100.0 - _CPU_IDLE_PERCENT) * rate / (FULL_RATE_MSG_PER_S * capacity)
    usage = (
        min(max(0.0, cpu + noise), 100.0),
        _HEAP_IDLE_MB + _HEAP_MB_PER_TOPIC * float(stats[4]),
        _DIRECT_IDLE_MB + float(stats[2]) * 2.0 / 1e6,
        float(stats[2]) * 8.0 / 1000.0,
        float(stats[3]) * 8.0 / 1000.0,
    )
    nic = _NIC_KBIT_PER_S * capacity
    limit = (100.0, _HEAP_MB * capacity, _DIRECT_MB * capacity, nic, nic)
    unknown = (-1.0,) * (COUNT - len(limit))
    return np.array(complete(usage)), np.array((*limit, *unknown))


def cpu_noise(seed: int, broker: str, step: int, amplitude: float = 0.5) -> float:
    """Percentage points in [-amplitude, amplitude) for one broker at one time step."""
    return (2.0 * uniform(seed, f"cpu {broker} {step}") - 1.0) * amplitude
