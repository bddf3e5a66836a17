"""A sharded service in miniature: what one simulated broker serves, and the load that it reads.

Decides what a callback of the agent's protocol does to the set of served bundles (the contract is
in `ownership.holding`), and answers ReadLoad from the load model. Delays and failures are the
driver's: the fleet's in real time, the simulator's in virtual time. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from lbcore.machines.agent_reporting import LoadRead
from lbcore.model.names import parse_bundle
from lbcore.ownership.holding import Call, Callback
from lbcore.sim.load import Floats, Ints, LoadField
from lbcore.sim.load_usage import usage_of

_CONSUMERS, _PRODUCERS, _TOPICS, _TRAFFIC = 5, 6, 4, 4

parse_bundle_once = lru_cache(maxsize=1 << 20)(parse_bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a callback did. tokens: of the opened ones, by name."""

    opened: Mapping[str, int]
    closed: tuple[str, ...]


class ServedBundles:
    """The bundles that one broker serves, each under its fencing token."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._rows: Ints | None = None

    @property
    def tokens(self) -> Mapping[str, int]:
        """Bundle → token, of everything that is served now."""
        return self._tokens

    def carry_out(self, call: Call) -> Change:
        """Open, close or split, as the contract says; repeatable, never fails."""
        overlapped = self._overlapped(call.bundle)
        for bundle in overlapped:
            del self._tokens[bundle]
        opened: dict[str, int] = {}
        if call.callback is Callback.OPEN:
            opened = {call.bundle: call.version_id}
        elif call.callback is Callback.SPLIT:
            opened = dict.fromkeys(call.children, call.version_id)
        self._tokens.update(opened)
        self._rows = None
        return Change(
            opened=opened, closed=tuple(name for name in overlapped if name not in opened)
        )

    def load_at(self, field: LoadField, capacity: float, cpu_noise: float) -> LoadRead:
        """The answer to ReadLoad; cpu_noise: percentage points, see `load_usage`."""
        stats = self.stats_at(field)
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
        """The served bundles that share a hash with this one, itself included; sorted."""
        if bundle in self._tokens:
            return [bundle]
        namespace, lower, upper = parse_bundle_once(bundle)
        return sorted(
            name
            for name in self._tokens
            if _overlaps(parse_bundle_once(name), (namespace, lower, upper))
        )


def _locate(field: LoadField, names: Sequence[str]) -> Ints:
    """Where bundles in name order stand in the field: namespace by namespace."""
    rows = [np.zeros((0, 2), dtype=np.int64)]
    parsed = map(parse_bundle_once, names)
    for namespace, bundles in groupby(parsed, key=lambda bundle: bundle[0]):
        lowers, uppers = np.array([ends for _, *ends in bundles], dtype=np.int64).T
        rows.append(field.locate(namespace, lowers, uppers))
    return np.concatenate(rows)


def _overlaps(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    if one[0] != other[0]:
        return False
    low, high = max(one[1], other[1]), min(one[2], other[2])
    return low < high or one[1:] == other[1:]
