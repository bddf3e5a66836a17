"""OverloadShedder: each broker at or above the threshold sheds its excess.

It knows no average: when every broker is above the threshold, every one sheds. Destinations are
placement's. Source: Pulsar 4.0.8 OverloadShedder; `multi_hit` is Ballast's.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lbcore.config.shedding import SheddingConfig
from lbcore.config.tree import Config
from lbcore.config.values import ConfigFinding, UsageGaps, warning
from lbcore.plan.shed.common import (
    MARGIN,
    Selection,
    Shed,
    ShedState,
    ShedView,
    TriggerStatus,
    after_acting,
    count_hits,
    eligible_by_traffic,
    multi_hit_levels,
    no_partners,
    sequential_sum,
    take_at_least,
    throughput,
)
from lbcore.plan.snapshot import Bools

PERCENT = 100.0


def shed_overload(view: ShedView, state: ShedState, config: SheddingConfig) -> Shed:
    """Return the bundles that leave overloaded brokers.

    A broker with usage u >= T gives bundles until (u − T + 0.05) of its throughput is gone, at
    least one; a broker with one bundle gives nothing. Worked: u = 0.95, T = 0.85, 100 MB/s: at
    least 15 MB/s go.
    """
    threshold = config.overloaded_threshold_percent / 100.0
    is_hot = ~(view.usage < threshold)
    ready, state = _gate(view, state, is_hot, config)
    traffic = throughput(view.snapshot.brokers.traffic)
    counts = view.snapshot.brokers.bundle_count
    selections, verdicts = [], {}
    for broker in np.flatnonzero(ready).tolist():
        if counts[broker] <= 1:
            verdicts[broker] = "sole_bundle" if counts[broker] else "no_bundles"
            continue
        share = float(view.usage[broker]) - threshold + MARGIN
        minimum = float(traffic[broker]) * share
        rows, busy = eligible_by_traffic(view, broker, by_rate=False)
        if not len(rows):
            verdicts[broker] = "no_eligible_bundle"
            continue
        numbers = {"usage": float(view.usage[broker]), "share": share, "minimum": minimum}
        selections.append(
            Selection(
                source=broker,
                candidates=rows,
                traffic=busy,
                is_taken=take_at_least(busy, minimum),
                reason="Overloaded",
                numbers=numbers,
            )
        )
    return Shed(
        selections=tuple(selections),
        state=state,
        reason="" if selections else _reason(is_hot, ready),
        columns={"usage": view.usage},
        numbers={"threshold": threshold},
        verdicts=verdicts,
    )


def _gate(
    view: ShedView, state: ShedState, is_hot: Bools, config: SheddingConfig
) -> tuple[Bools, ShedState]:
    if not config.multi_hit or not len(view.usage):
        return is_hot, state
    average = sequential_sum(view.usage) / len(view.usage)
    hits = count_hits(view, state, 100.0 * (view.usage - average), config)
    ready = is_hot & hits.is_ready
    names = view.snapshot.brokers.names
    low, high = after_acting(hits, [names[broker] for broker in np.flatnonzero(ready)])
    return ready, replace(state, hits_low=low, hits_high=high)


def _reason(is_hot: Bools, ready: Bools) -> str:
    if not is_hot.any():
        return "NoOverloadedBroker"
    return "NoBundles" if ready.any() else "HitCount"


def check_overload(config: Config, _gaps: UsageGaps) -> Iterator[ConfigFinding]:
    """Find a threshold that no broker reaches."""
    if config.shedding.overloaded_threshold_percent > PERCENT:
        detail = (
            f"{config.shedding.overloaded_threshold_percent:g} % is hardly reached: nothing is shed"
        )
        yield warning("shedding.overloaded_threshold_percent", detail)


def overload_trigger(view: ShedView, shed: Shed, config: SheddingConfig) -> TriggerStatus:
    """Return each broker's usage against the overload threshold, in percent."""
    usage, limit = 100.0 * view.usage, config.overloaded_threshold_percent
    average = sequential_sum(usage) / len(usage) if len(usage) else 0.0
    return TriggerStatus(
        measure="usage in percent",
        number=usage,
        partner=no_partners(len(usage)),
        levels=multi_hit_levels(view, shed.state, config, average, limit),
    )
