"""Weights: what a bundle counts for on the broker that gets it, and what a broker has room for.

The rules that place by load compare with it. All in msg/s. Source: Pulsar 4.0.8
LeastLongTermMessageRate counts a bundle's long-term rate; everything else is ours.
"""

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.message_rate import PresentRates
from lbcore.plan.place.request import PlaceRequest
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Floats, Snapshot

_IDLE_PART = 0.001  # of the floor: idle bundles of an idle cluster are spread, too


def least_rates(request: PlaceRequest, config: PlacementConfig) -> Floats:
    """Msg/s that each bundle of the request counts for at least: float64[k], at least 0.

    `planned_rate_floor_msg_per_s` and the mean of those whose load is known: the larger of them
    where nobody knows its load, else thousands that are made at once would go to whoever is a few
    mean ones below the others; the smaller where it is known, else in a cluster of small bundles a
    broker that came back empty would be full after a few.
    """
    floor, known = config.planned_rate_floor_msg_per_s, request.snapshot.bundles.is_load_known
    if not floor:
        return np.zeros(len(request.bundles))
    mean = _mean_known_rate(request.snapshot)
    least: Floats = np.full(len(request.bundles), max(floor, mean))
    if known is not None:
        least[known[request.bundles]] = min(floor, max(mean, floor * _IDLE_PART))
    return least


def awaited_rates(snapshot: Snapshot, config: PlacementConfig) -> Floats:
    """Msg/s for which each broker's bundles count that nobody could report yet; float64[n].

    Each as an unknown one of `least_rates`: else what is made in several batches goes to the same
    broker in each, until it reports. 0 without a floor, or where nothing planned is counted.
    """
    bundles, count = snapshot.bundles, len(snapshot.brokers.names)
    floor = config.planned_rate_floor_msg_per_s
    if bundles.is_awaited is None or not floor or not config.count_planned:
        return np.zeros(count)
    awaited = np.bincount(bundles.owner[bundles.is_awaited], minlength=count)
    return np.asarray(awaited * max(floor, _mean_known_rate(snapshot)), dtype=np.float64)


def room_below(request: PlaceRequest, threshold_percent: float, rates: Floats) -> Floats:
    """Msg/s that each broker may take on before its usage is above the threshold; float64[n].

    By what a message costs the cluster in the mean; endless where that is not known. Otherwise
    the one broker that was below the threshold got all of thousands of bundles.
    """
    capacity = request.snapshot.brokers.capacity
    total, used = float(rates.sum()), float((request.usage * capacity).sum())
    if total <= 0.0 or used <= 0.0:
        return np.full(len(rates), np.inf)
    left = threshold_percent / 100.0 - request.usage
    return np.asarray(left * capacity * (total / used), dtype=np.float64)


def _mean_known_rate(snapshot: Snapshot) -> float:
    """Msg/s, in plus out, of the bundles whose load is known, in the mean; 0 of none."""
    bundles = snapshot.bundles
    known = bundles.is_load_known
    if known is None or not known.any():
        return 0.0
    return float((bundles.short[known, RATE_IN] + bundles.short[known, RATE_OUT]).mean())


def bundle_rates(request: PlaceRequest, config: PlacementConfig) -> Floats:
    """Msg/s, in plus out, of each bundle of the request: long-term, or (ours) at least the present.

    What is hot now counts as hot where `count_planned` counts it on its new broker.
    """
    if config.count_planned:
        return PresentRates.of(request.snapshot).bundle[request.bundles]
    long = request.snapshot.bundles.long[request.bundles]
    rates: Floats = long[:, RATE_IN] + long[:, RATE_OUT]
    return rates
