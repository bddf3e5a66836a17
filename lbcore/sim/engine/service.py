"""A sharded service in miniature: its bundles, and the load that it reads.

Decides what a callback of the agent's protocol does to the set of served bundles (the contract is
in `ownership.holding`), and answers ReadLoad from the load model. Delays and failures are the
driver's: the fleet's in real time, the simulator's in virtual time.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.model.hashing import HASH_SPACE
from lbcore.model.names import FULL_UPPER, parse_bundle
from lbcore.ownership.holding import Call, Callback
from lbcore.sim.load.load import Floats, Ints, LoadField
from lbcore.sim.load.noise import uniform
from lbcore.sim.load.usage import usage_of

_CONSUMERS, _PRODUCERS, _TOPICS, _TRAFFIC = 5, 6, 4, 4

_Range: TypeAlias = tuple[int, int, str]

parse_bundle_once = lru_cache(maxsize=1 << 20)(parse_bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackChange:
    """Result of a callback.

    opened: tokens of the opened bundles, by name.
    """

    opened: Mapping[str, int]
    closed: tuple[str, ...]


class ServedBundles:
    """The bundles that one broker serves, each under its fencing token."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._ranges: dict[str, list[_Range]] = {}  # by namespace: disjoint, ascending
        self._names: tuple[str, ...] = ()
        self._rows: Ints | None = None

    @property
    def tokens(self) -> Mapping[str, int]:
        """Bundle → token, of everything that is served now."""
        return self._tokens

    def carry_out(self, call: Call) -> CallbackChange:
        """Open, close, split or merge, as the contract says; repeatable, never fails."""
        if call.callback is Callback.MERGE:
            return CallbackChange(opened={}, closed=())
        overlapped = self._overlapped(call.bundle)
        for bundle in overlapped:
            self._remove(bundle)
        opened: dict[str, int] = {}
        if call.callback is Callback.OPEN:
            opened = {call.bundle: call.version_id}
        elif call.callback is Callback.SPLIT:
            opened = dict.fromkeys(call.children, call.version_id)
        for bundle, token in opened.items():
            self._add(bundle, token)
        self._rows = None
        return CallbackChange(
            opened=opened, closed=tuple(name for name in overlapped if name not in opened)
        )

    def load_at(
        self, field: LoadField, capacity: float, cpu_noise: float, full_rate: float = math.inf
    ) -> LoadRead:
        """The answer to ReadLoad; cpu_noise: percentage points, see `load_usage`.

        full_rate: msg/s that a broker of capacity 1 serves; of more each bundle gets its part.
        """
        stats = self.stats_at(field)
        total = stats.sum(axis=0)
        if total[:2].sum() > full_rate * capacity:
            stats[:, :_TRAFFIC] *= full_rate * capacity / total[:2].sum()
            total = stats.sum(axis=0)
        usage = usage_of(total, capacity, cpu_noise)
        return LoadRead(
            usage=usage.usage,
            limit=usage.limit,
            traffic=total[:_TRAFFIC],
            bundles=self._names,
            stats=stats,
            topic_count=int(total[_TOPICS]),
            consumer_count=int(total[_CONSUMERS]),
            producer_count=int(total[_PRODUCERS]),
        )

    def stats_at(self, field: LoadField) -> Floats:
        """float64[bundles, 8] in the order of BUNDLE_COLUMNS, the bundles in name order.

        All fields must be of one model: where bundles stand in it is looked up once.
        """
        if self._rows is None:
            self._names = tuple(sorted(self._tokens))
            self._rows = _locate(field, self._names)
        return field.located(self._rows)

    def _overlapped(self, bundle: str) -> list[str]:
        """The served bundles that share a hash with this one, itself included; ascending."""
        namespace, lower, upper = parse_bundle_once(bundle)
        ranges = self._ranges.get(namespace, [])
        first = bisect_left(ranges, (lower, 0, ""))
        if first > 0 and ranges[first - 1][1] > lower:
            first -= 1
        last = bisect_left(ranges, (_end(upper), 0, ""))
        return [name for _, _, name in ranges[first:last]]

    def _add(self, bundle: str, token: int) -> None:
        namespace, lower, upper = parse_bundle_once(bundle)
        insort(self._ranges.setdefault(namespace, []), (lower, _end(upper), bundle))
        self._tokens[bundle] = token

    def _remove(self, bundle: str) -> None:
        namespace, lower, upper = parse_bundle_once(bundle)
        ranges = self._ranges[namespace]
        del ranges[bisect_left(ranges, (lower, _end(upper), bundle))]
        del self._tokens[bundle]


def callback_ms(seed: int, broker: str, call: Call, between_ms: tuple[int, int]) -> int:
    """Return a callback's duration, drawn once per call.

    between_ms: the shortest and the longest duration.
    """
    shortest, longest = between_ms
    drawn = uniform(seed, f"{broker} {call.callback.value} {call.bundle} {call.version_id}")
    return shortest + int(drawn * (longest - shortest))


def _end(upper: int) -> int:
    """The hash after the range's last one."""
    return HASH_SPACE if upper == FULL_UPPER else upper


def _locate(field: LoadField, names: Sequence[str]) -> Ints:
    """Return the positions of bundles in the field, namespace by namespace.

    names: bundles in name order.
    """
    rows: list[Ints] = [np.zeros((0, 2), dtype=np.int64)]
    parsed = map(parse_bundle_once, names)
    for namespace, bundles in groupby(parsed, key=lambda bundle: bundle[0]):
        lowers, uppers = np.array([ends for _, *ends in bundles], dtype=np.int64).T
        rows.append(field.locate(namespace, lowers, uppers))
    return np.concatenate(rows)
