"""Distance of each broker from shedding: judged number, thresholds and hits.

The shed phase makes one per cycle when it is traced. The decision log keeps the brokers that are
near, so that "why is this one not relieved?" has numbers. The thresholds are those of the
strategies beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.transfer import TransferConfig
from lbcore.plan.shed.common import Shed, ShedView, sequential_sum
from lbcore.plan.shed.transfer_types import TransferState
from lbcore.plan.snapshot import Floats, Ints

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Condition to act: the number reaches `threshold` in `needed` reports in a row.

    threshold: float64[n], each broker's, in the measure's unit. hits: int64[n], in a row so far.
    """

    threshold: Floats
    needed: int
    hits: Ints

    def spread(self, original: Ints, brokers: int) -> "Level":
        """The level of all brokers; see `Gauge.spread`."""
        hits, threshold = np.zeros(brokers, dtype=np.int64), np.full(brokers, np.inf)
        hits[original], threshold[original] = self.hits, self.threshold
        return Level(threshold=threshold, needed=self.needed, hits=hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """n brokers under one strategy.

    measure: what the number is. number: float64[n], NaN = this broker is not judged. partner:
    int64[n], the broker that it is compared with, -1 = none. levels: any one of them suffices.
    """

    measure: str
    number: Floats
    partner: Ints
    levels: tuple[Level, ...]

    def nearness(self) -> Floats:
        """Return the part of the way to the nearest level, float64[n]; NaN = none.

        The number's share of the threshold up to 1, and the hits' share of those needed above it.
        """
        found = np.full(len(self.number), np.nan)
        for level in self.levels:
            share = np.clip(self.number / np.maximum(level.threshold, 1e-9), 0.0, 1.0)
            found = np.fmax(found, share + level.hits / max(level.needed, 1))
        return np.where(np.isnan(self.number), np.nan, found)

    def spread(self, original: Ints, brokers: int) -> "Gauge":
        """Return the gauge of all brokers, of which these n are judged.

        original: int64[n], ascending, each broker's index among all.
        """
        number = np.full(brokers, np.nan)
        number[original] = self.number
        partner = np.full(brokers, NOBODY, dtype=np.int64)
        partner[original] = np.append(original, NOBODY)[self.partner]
        return Gauge(
            measure=self.measure,
            number=number,
            partner=partner,
            levels=tuple(level.spread(original, brokers) for level in self.levels),
        )

    def of(self, broker: int) -> Iterator[Mapping[str, float]]:
        """Each level's numbers for one broker."""
        for level in self.levels:
            yield {
                "threshold": float(level.threshold[broker]),
                "hits": int(level.hits[broker]),
                "needed": level.needed,
            }


def gauge_transfer(view: ShedView, state: TransferState, config: TransferConfig) -> Gauge:
    """Return the gauge of the transfer shedder.

    It is the deviation of all, shown at the hottest broker.
    """
    load = view.snapshot.brokers.weighted_max_ema
    hits = np.full(len(load), state.hits, dtype=np.int64)
    needed = config.hit_count_threshold + 1
    return Gauge(
        measure="deviation of all brokers' scores, in points",
        number=_at(load, 100.0 * state.load_std),
        partner=_partner_of_ends(load),
        levels=(_level(100.0 * config.target_std, needed, hits),),
    )


def gauge_ballast(view: ShedView, shed: Shed, config: IdealLoadConfig) -> Gauge:
    """Return the gauge of ballast: each broker's distance from the ideal load."""
    levels = (
        (shed.numbers["tolerance"], config.low_hits, shed.state.hits_low),
        (config.high_points, config.high_hits, shed.state.hits_high),
    )
    return Gauge(
        measure="points above or below the ideal load",
        number=np.abs(shed.columns["deviation"]),
        partner=np.full(len(view.usage), NOBODY, dtype=np.int64),
        levels=tuple(
            _level(threshold, needed, np.abs(_counts(view, hits)))
            for threshold, needed, hits in levels
        ),
    )


def gauge_avg(view: ShedView, shed: Shed, config: SheddingConfig) -> Gauge:
    """The gauge of avg: the difference to the broker that it is paired with."""
    usage_points = 100.0 * view.usage
    order = np.argsort(usage_points, kind="stable")
    partner = np.full(len(order), NOBODY, dtype=np.int64)
    partner[order] = order[::-1]
    partner[partner == np.arange(len(order))] = NOBODY
    number = np.where(partner == NOBODY, np.nan, np.abs(usage_points - usage_points[partner]))

    def level(hits: Mapping[str, int], threshold: float, needed: int) -> Level:
        own = _counts(view, hits)
        both = np.where(partner == NOBODY, own, np.maximum(own, own[partner]))
        return _level(threshold, needed, both)

    return Gauge(
        measure="points of usage between it and its partner",
        number=number,
        partner=partner,
        levels=(
            level(shed.state.hits_low, config.avg_low_threshold, config.avg_low_hits),
            level(shed.state.hits_high, config.avg_high_threshold, config.avg_high_hits),
        ),
    )


def gauge_threshold(view: ShedView, shed: Shed, config: SheddingConfig) -> Gauge:
    """The gauge of threshold: smoothed usage above the average."""
    judged = shed.columns.get("average_usage", view.usage)
    average = 100.0 * (sequential_sum(judged) / len(judged) if len(judged) else 0.0)
    measure = "smoothed usage in percent"
    floor = average + config.threshold_percent
    measured = _Measured(name=measure, number=100.0 * judged, average=average, floor=floor)
    return _above(view, shed, config, measured)


def gauge_usage(view: ShedView, shed: Shed, config: SheddingConfig, limit: float) -> Gauge:
    """The gauge of rules that hold a broker's usage against one limit, in percent."""
    usage = 100.0 * view.usage
    average = sequential_sum(usage) / len(usage) if len(usage) else 0.0
    measured = _Measured(name="usage in percent", number=usage, average=average, floor=limit)
    return _above(view, shed, config, measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A number of each broker, their average, and above what a broker gives."""

    name: str
    number: Floats
    average: float
    floor: float


def _above(view: ShedView, shed: Shed, config: SheddingConfig, measured: _Measured) -> Gauge:
    """Compare every broker with one number.

    At once or, with multi_hit, after hits in a row.
    """
    average, floor = measured.average, measured.floor
    nothing = np.zeros(len(measured.number), dtype=np.int64)
    levels: tuple[Level, ...] = (_level(floor, 1, nothing),)
    if config.multi_hit:
        low, high = config.multi_hit_low_percent, config.multi_hit_high_percent
        levels = (
            _level(
                max(floor, average + low),
                config.multi_hit_low_hits,
                _counts(view, shed.state.hits_low),
            ),
            _level(
                max(floor, average + high),
                config.multi_hit_high_hits,
                _counts(view, shed.state.hits_high),
            ),
        )
    nobody = np.full(len(measured.number), NOBODY, dtype=np.int64)
    return Gauge(measure=measured.name, number=measured.number, partner=nobody, levels=levels)


def gauge_uniform(view: ShedView, shed: Shed, config: SheddingConfig) -> Gauge:
    """The gauge of uniform: traffic of the busiest over the idlest."""
    traffic = shed.columns["traffic"]
    hits = _counts(view, shed.state.hits_low)
    needed = config.multi_hit_low_hits if config.multi_hit else 1
    number, threshold = shed.numbers["rate_difference_percent"], config.rate_difference_percent
    measure = "percent of message rate above the idlest broker"
    ratio = shed.numbers["throughput_ratio"]
    if number <= threshold and 0 < config.throughput_ratio < ratio:
        number, threshold = ratio, config.throughput_ratio
        measure = "times the throughput of the idlest broker"
    return Gauge(
        measure=measure,
        number=_at(traffic, number),
        partner=_partner_of_ends(traffic),
        levels=(_level(threshold, needed, hits),),
    )


def _level(threshold: float, needed: int, hits: Ints) -> Level:
    """A level that is the same for all brokers."""
    return Level(threshold=np.full(len(hits), threshold), needed=needed, hits=hits)


def _counts(view: ShedView, hits: Mapping[str, int]) -> Ints:
    return np.array([hits.get(name, 0) for name in view.snapshot.brokers.names], dtype=np.int64)


def _at(load: Floats, number: float) -> Floats:
    """The number at the broker with most load; nobody else is judged."""
    found = np.full(len(load), np.nan)
    if len(load):
        found[int(np.argmax(load))] = number
    return found


def _partner_of_ends(load: Floats) -> Ints:
    """The broker with least load, as partner of the one with most."""
    found = np.full(len(load), NOBODY, dtype=np.int64)
    if len(load) > 1:
        found[int(np.argmax(load))] = int(np.argmin(load))
    return found
