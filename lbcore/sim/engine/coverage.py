"""Actual server of each topic over time: outages, double service, true load.

Brokers report what they open and close, whatever the records say. All state is kept per topic, so
bundles may be split in between.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lbcore.model.names import parse_bundle
from lbcore.sim.engine.log import Clock
from lbcore.sim.load.load import Floats, Ints, TopicLayout, total

NOBODY = -1
_NEVER = -1


@dataclass(frozen=True, slots=True)
class Outage:
    """Topics that were without service. rate: their load, msg/s in + out.

    began_ms, ended_ms: times of the scenario. broker: the one that serves them now, NOBODY = none
    yet.
    """

    began_ms: int
    ended_ms: int
    topics: int
    rate: float
    broker: int = NOBODY


class Coverage:
    """Broker that serves each topic.

    server: of each topic, or NOBODY. rates: of the topics at the last sample, msg/s. version:
    number of opens and closes so far. unserved: number of topics. doubles: (ms, bundle) served
    twice. changes: (ms, unserved topics).
    """

    def __init__(self, layout: TopicLayout, topics: int, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self.server: NDArray[np.int32] = np.full(topics, NOBODY, dtype=np.int32)
        self._lost_from_ms: Ints = np.full(topics, _NEVER, dtype=np.int64)
        self._lost_ms: Ints = np.zeros(topics, dtype=np.int64)
        self._places: dict[str, tuple[int, int]] = {}
        self._served: dict[str, int] = {}
        self._edges: Ints | None = None
        self.rates: Floats = np.zeros(topics)
        self.version = 0
        self.unserved = topics
        self.outages: list[Outage] = []
        self.doubles: list[tuple[int, str]] = []
        self.changes: list[tuple[int, int]] = [(0, topics)]
        self._other_servers: list[tuple[int, set[int]]] = []
        self.when_double: Callable[[str, int, Iterable[int]], None] | None = None

    def open(self, bundle: str, broker: int) -> None:
        """Note that a running broker serves the bundle from now on."""
        self.version += 1
        first, last = self.rows_of(bundle)
        part = self.server[first:last]
        if np.any((part != NOBODY) & (part != broker)):
            self.doubles.append((self._clock.scenario_ms, bundle))
            self._note_other_servers(bundle, broker, first)
        is_new = part == NOBODY
        self._served[bundle] = self._served.get(bundle, 0) + 1
        self._edges = None
        if is_new.any():
            rows = first + np.flatnonzero(is_new)
            began = self._lost_from_ms[rows]
            rows = rows[(began != _NEVER) & (began < self._clock.scenario_ms)]
            self._lost_ms[rows] += self._clock.scenario_ms - self._lost_from_ms[rows]
            self.outages += self._outages(rows, broker)
            self._count(-int(np.count_nonzero(is_new)))
        part[:] = broker

    def close(self, bundle: str, broker: int) -> None:
        """Note that the broker no longer serves the bundle: closed, frozen or gone."""
        self.version += 1
        first, last = self.rows_of(bundle)
        part = self.server[first:last]
        is_own = part == broker
        self._served[bundle] = self._served.get(bundle, 0) - 1
        if self._served[bundle] <= 0:
            del self._served[bundle]
        self._edges = None
        part[is_own] = NOBODY
        if self._other_servers:
            self._return_to_others(broker, range(first, last), first + np.flatnonzero(is_own))
            is_own &= part == NOBODY
        self._lost_from_ms[first:last][is_own] = self._clock.scenario_ms
        self._count(int(np.count_nonzero(is_own)))

    def close_all(self, bundles: Iterable[str], broker: int) -> None:
        """Close all that a broker serves."""
        for bundle in sorted(bundles):
            self.close(bundle, broker)

    def loads(self, brokers: int, rates: Floats) -> Floats:
        """Return the sum of each broker's served topics, msg/s; float64[brokers]."""
        is_served = self.server != NOBODY
        served = rates[is_served]
        return np.bincount(self.server[is_served], weights=served, minlength=brokers).astype(float)

    def rate_of(self, bundle: str, rates: Floats) -> float:
        """Return the rate of a bundle's topics, msg/s in + out, served or not."""
        first, last = self.rows_of(bundle)
        return total(rates[first:last])

    def hottest_bundles(self, brokers: int) -> Floats:
        """Return the rate of each broker's hottest bundle, msg/s; float64[brokers]."""
        if self._edges is None:
            places = sorted(self._places[name] for name in self._served)
            edges = np.array(places, dtype=np.int64).reshape(-1, 2)
            self._edges = edges[edges[:, 0] < edges[:, 1]]
        first, last = self._edges.T
        sums = np.concatenate(([0.0], np.cumsum(self.rates)))
        server = self.server[first]
        found = np.zeros(brokers)
        np.maximum.at(found, server[server != NOBODY], (sums[last] - sums[first])[server != NOBODY])
        return found

    def lost_ms(self) -> Ints:
        """Return the time without service of each topic since it was first served; int64."""
        is_open = (self.server == NOBODY) & (self._lost_from_ms != _NEVER)
        return self._lost_ms + np.where(is_open, self._clock.scenario_ms - self._lost_from_ms, 0)

    def bundle_rates(self) -> dict[str, float]:
        """Return the rate of each served bundle, msg/s in + out."""
        sums = np.concatenate(([0.0], np.cumsum(self.rates)))
        places = {name: self._places[name] for name in sorted(self._served)}
        return {name: float(sums[last] - sums[first]) for name, (first, last) in places.items()}

    def open_outages(self) -> list[Outage]:
        """The outages that have not ended, of topics that were served once."""
        is_open = (self.server == NOBODY) & (self._lost_from_ms != _NEVER)
        return self._outages(np.flatnonzero(is_open))

    def _note_other_servers(self, bundle: str, broker: int, first: int) -> None:
        """Remember the other brokers that serve the bundle, for when this one closes it."""
        part = self.server[first : self.rows_of(bundle)[1]]
        others = sorted(set(part.tolist()) - {NOBODY, broker})
        self._other_servers += [
            (other, set((first + np.flatnonzero(part == other)).tolist())) for other in others
        ]
        if self.when_double is not None:
            self.when_double(bundle, broker, others)

    def _return_to_others(self, broker: int, bundle: range, closed: Ints) -> None:
        """Give rows that a broker closed to the newest one that still serves them.

        bundle: all rows of the closed bundle.
        """
        for other, rows in self._other_servers:
            if other == broker:
                rows.difference_update(bundle)
        self._other_servers = [entry for entry in self._other_servers if entry[1]]
        for row in closed.tolist():
            others = [entry for entry in self._other_servers if row in entry[1]]
            if others:
                self.server[row], rows = others[-1]
                rows.remove(row)

    def _outages(self, rows: Ints, broker: int = NOBODY) -> list[Outage]:
        began, index = np.unique(self._lost_from_ms[rows], return_inverse=True)
        if not len(began):
            return []
        rates = np.bincount(index, weights=self.rates[rows], minlength=len(began))
        counts = np.bincount(index, minlength=len(began))
        now_ms = self._clock.scenario_ms
        return [
            Outage(at, now_ms, n, rate, broker)
            for at, n, rate in zip(began.tolist(), counts.tolist(), rates.tolist(), strict=True)
        ]

    def _count(self, more: int) -> None:
        self.unserved += more
        now_ms = self._clock.scenario_ms
        if self.changes[-1][0] == now_ms:
            self.changes[-1] = (now_ms, self.unserved)
        else:
            self.changes.append((now_ms, self.unserved))

    def rows_of(self, bundle: str) -> tuple[int, int]:
        """Return the first row of a bundle's topics and the one after the last."""
        place = self._places.get(bundle)
        if place is None:
            namespace, lower, upper = parse_bundle(bundle)
            ends = self._layout.locate(namespace, np.array([lower]), np.array([upper]))[0]
            place = self._places[bundle] = (int(ends[0]), int(ends[1]))
        return place
