"""Full brokers: what they serve of the offered load, and what waits.

A broker serves no more messages than its capacity, less what other processes take of its CPU. The
rest waits, topic by topic, and moves with the topic; beyond `BACKLOG_S` seconds of the topic's own
rate it is rejected. Opening or closing a bundle costs a broker `MOVE_S` seconds of its messages,
worked off with at most `MOVE_SHARE` of the capacity. While no broker is full, nothing here changes
a number. Topics without service gain no backlog: their clients are away.
"""

import numpy as np

from lbcore.sim.engine.coverage import NOBODY, Coverage
from lbcore.sim.engine.traffic import Traffic, TrafficField
from lbcore.sim.load.load import Floats, total

BACKLOG_S = 10.0
DRAIN_S = 60.0
"""Time constant of working off a backlog: each second 1/DRAIN_S of what is left."""
MOVE_S = 1.0
MOVE_SHARE = 0.1
_STEP_MS = 1_000
_LEAST_BACKLOG = 1.0
_UNKNOWN = (-1, -1)


class Saturation:
    """The backlogs of a cluster.

    backlog: float64[topics], waiting messages. rejected: messages so far. moment: time of the
    served rates, 0 = every broker serves all that is offered.
    """

    def __init__(self, traffic: Traffic, coverage: Coverage) -> None:
        self._traffic = traffic
        self._coverage = coverage
        self._at_ms = 0
        self._clear_key = _UNKNOWN
        self._room: Floats = np.zeros(0)  # of each broker, msg/s that it can serve
        self._work: Floats = np.zeros(0)  # of each broker, what its moves still cost, in messages
        self._served: Floats = np.zeros(traffic.topics)
        self.backlog: Floats = np.zeros(traffic.topics)
        self.rejected = 0.0
        self.moment = 0

    def add_broker(self, room: float) -> None:
        """Add the next broker by number. room: msg/s that it can serve."""
        self._room = np.append(self._room, max(0.0, room))
        self._work = np.append(self._work, 0.0)

    def charge(self, broker: int, bundle: str) -> None:
        """Add the cost of opening or closing a bundle to a broker."""
        self._clear_key = _UNKNOWN
        rates = self._traffic.rates_at(self._at_ms)
        self._work[broker] += MOVE_S * self._coverage.rate_of(bundle, rates)

    def advance(self, now_ms: int) -> None:
        """Advance time: load is served, waits or is rejected. O(topics) a second."""
        rates = self._traffic.rates_at(now_ms)
        while self._at_ms < now_ms and not self._is_clear(now_ms, rates):
            step_ms = min(_STEP_MS, now_ms - self._at_ms)
            self._at_ms += step_ms
            served = self._serve(rates)
            seconds = step_ms / 1_000.0
            is_served = self._coverage.server != NOBODY
            more = np.where(is_served, (rates - served) * seconds, 0.0)
            limit = np.maximum(self.backlog, BACKLOG_S * rates)
            waiting = np.maximum(self.backlog + more, 0.0)
            self.rejected += total(np.maximum(waiting - limit, 0.0))
            waiting = np.minimum(waiting, limit)
            self.backlog = np.where(waiting < _LEAST_BACKLOG, 0.0, waiting)
            self._work_off(seconds)
        if self._at_ms < now_ms:
            self._work_off((now_ms - self._at_ms) / 1_000.0)
            self._at_ms = now_ms
        self.moment = 0
        if not self._is_clear(now_ms, rates):
            self._served, self.moment = self._serve(rates), now_ms

    def field_at(self, now_ms: int) -> TrafficField:
        """Return the served traffic of each topic, as of the last `advance`."""
        field = self._traffic.at(now_ms)
        return field.served(self._served) if self.moment else field

    def _is_clear(self, now_ms: int, rates: Floats) -> bool:
        """Return True if nothing waits and no broker is full."""
        if self.backlog.any():
            return False
        key = (self._traffic.step_at(now_ms), self._coverage.version)
        if key != self._clear_key:
            busy = np.where(self._work > 0.0, MOVE_SHARE * self._room, 0.0)
            if (self._coverage.loads(len(self._room), rates) + busy > self._room).any():
                return False
            self._clear_key = key
        return True

    def _serve(self, rates: Floats) -> Floats:
        """Return the served msg/s, float64[topics].

        A broker's topics all get the same share of what they offer.
        """
        wanted = rates + self.backlog / DRAIN_S
        demand = self._coverage.loads(len(self._room), wanted)
        room = np.where(self._work > 0.0, (1.0 - MOVE_SHARE) * self._room, self._room)
        part = np.where(demand > room, room / np.maximum(demand, 1e-9), 1.0)
        server = self._coverage.server
        served: Floats = np.where(server == NOBODY, 0.0, wanted * part[server])
        return served

    def _work_off(self, seconds: float) -> None:
        self._work = np.maximum(self._work - MOVE_SHARE * self._room * seconds, 0.0)
