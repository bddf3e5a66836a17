"""Least long-term message rate: the broker whose bundles have the fewest messages.

Decides which brokers are equally best; `choice` picks one. Source: Pulsar 4.0.8
LeastLongTermMessageRate. Spreading over overloaded brokers by their rate is ours.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Bools, Floats, Ints, Snapshot


@dataclass(slots=True, kw_only=True)
class MessageRates:
    """Scores that grow with every placement.

    base: float64[n], long-term msg/s of each broker's own bundles. planned: float64[n], of those
    promised to it. is_overloaded: bool[n], weighted usage strictly above the threshold.
    """

    base: Floats
    planned: Floats
    is_overloaded: Bools
    scores: Floats

    @staticmethod
    def of(base: Floats, usage: Floats, threshold_percent: float) -> "MessageRates":
        """Nothing is planned yet. usage: float64[n], weighted, 1.0 = 100 %."""
        is_overloaded = usage > threshold_percent / 100.0
        return MessageRates(
            base=base,
            planned=np.zeros(len(base)),
            is_overloaded=is_overloaded,
            scores=np.where(is_overloaded, np.inf, 0.0 + base),
        )

    def add(self, broker: int, rate: float) -> None:
        """Count `rate` msg/s more on a broker; sums in the order of the calls, as Pulsar's loop."""
        self.planned[broker] += rate
        if not self.is_overloaded[broker]:
            self.scores[broker] = self.planned[broker] + self.base[broker]

    def best(self, candidates: Ints, *, spread_overloaded: bool) -> Ints:
        """The candidates with the least score; when all are overloaded, all of them.

        spread_overloaded: then the ones with the least rate instead (ours).
        """
        if not len(candidates):
            return candidates
        own = self.scores[candidates]
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
