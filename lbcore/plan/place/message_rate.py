"""Least long-term message rate: the broker whose bundles have the fewest messages.

Decides which brokers are equally best; `choice` picks one. Source: Pulsar 4.0.8
LeastLongTermMessageRate. Spreading over overloaded brokers by their rate is ours, and so are
counting a bundle that is hotter now than on the long run as it is now, and that a broker is
overloaded as soon as what it has been promised would make it so.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    Bools,
    Floats,
    Ints,
    Snapshot,
)


@dataclass(slots=True, kw_only=True)
class MessageRates:
    """Rates that grow with every placement.

    base: float64[n], long-term msg/s of each broker's own bundles. planned: float64[n], of those
    promised to it. is_overloaded: bool[n], weighted usage strictly above the threshold, or more
    promised than there is room. counted: float64[n], both together, infinite where overloaded.
    room: float64[n], msg/s that may be promised.
    """

    base: Floats
    planned: Floats
    is_overloaded: Bools
    counted: Floats
    room: Floats

    @staticmethod
    def of(
        base: Floats, usage: Floats, threshold_percent: float, room: Floats | None = None
    ) -> "MessageRates":
        """Nothing is planned yet. usage: float64[n], weighted, 1.0 = 100 %. No room: endless."""
        if room is None:
            room = np.full(len(base), np.inf)
        is_overloaded = (usage > threshold_percent / 100.0) | (room < 0.0)
        return MessageRates(
            base=base,
            planned=np.zeros(len(base)),
            is_overloaded=is_overloaded,
            counted=np.where(is_overloaded, np.inf, 0.0 + base),
            room=room,
        )

    def add(self, broker: int, rate: float) -> None:
        """Count `rate` msg/s more on a broker; sums in the order of the calls, as Pulsar's loop."""
        self.planned[broker] += rate
        if self.planned[broker] > self.room[broker]:
            self.is_overloaded[broker] = True
            self.counted[broker] = np.inf
        if not self.is_overloaded[broker]:
            self.counted[broker] = self.planned[broker] + self.base[broker]

    def best(self, candidates: Ints, *, spread_overloaded: bool) -> Ints:
        """The candidates with the least rate; when all are overloaded, all of them.

        spread_overloaded: then the ones with the least rate instead (ours).
        """
        if not len(candidates):
            return candidates
        own = self.counted[candidates]
        least = own[own.argmin()]
        if spread_overloaded and least == np.inf:
            own = self.planned[candidates] + self.base[candidates]
            least = own[own.argmin()]
        best: Ints = candidates[own == least]
        return best


def long_term_rates(snapshot: Snapshot) -> Floats:
    """TimeAverageBrokerData's long-term msg/s, in plus out, of each broker's bundles; float64[n].

    In and out are summed apart, bundle after bundle in table order, as Pulsar does.
    """
    bundles = snapshot.bundles
    brokers = len(snapshot.brokers.names)
    is_owned = bundles.owner >= 0
    owner = bundles.owner[is_owned]
    rate_in = np.bincount(owner, weights=bundles.long[is_owned, RATE_IN], minlength=brokers)
    rate_out = np.bincount(owner, weights=bundles.long[is_owned, RATE_OUT], minlength=brokers)
    return np.asarray(rate_in + rate_out, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentRates:
    """Present rates of brokers and bundles, msg/s in plus out (ours).

    At least the long-term rate. broker: float64[n]; bundle: float64[m]. A bundle that turned hot a
    minute ago has a low long-term rate for long, and averages of ten reports lag as well. By these
    alone, a drain would send all of the hot ones to one broker. The rate that a broker reports is
    spread over its bundles.
    """

    broker: Floats
    bundle: Floats

    @staticmethod
    def of(snapshot: Snapshot) -> "PresentRates":
        """Worked: a broker reports 900 msg/s, its bundles 100 and 200: they count 300 and 600."""
        bundles, traffic = snapshot.bundles, snapshot.brokers.traffic
        count = len(snapshot.brokers.names)
        long = bundles.long[:, RATE_IN] + bundles.long[:, RATE_OUT]
        short = bundles.short[:, RATE_IN] + bundles.short[:, RATE_OUT]
        rates = np.maximum(long, short)
        is_owned = bundles.owner >= 0
        owner = bundles.owner[is_owned]
        total = np.bincount(owner, weights=rates[is_owned], minlength=count)
        reported = traffic[:, RATE_IN] + traffic[:, RATE_OUT]
        broker = np.maximum(total, reported)
        factor = np.divide(broker, total, out=np.ones(count), where=total > 0.0)
        rates[is_owned] *= factor[owner]
        return PresentRates(broker=np.asarray(broker, dtype=np.float64), bundle=rates)
