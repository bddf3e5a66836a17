"""OverloadShedder: each broker at or above the threshold sheds its excess.

It knows no average: when every broker is above the threshold, every one sheds. Destinations are
placement's. Source: Pulsar 4.0.8 OverloadShedder; `multi_hit` is Ballast's.
"""

from collections.abc import Iterator

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
    multi_hit_gate,
    multi_hit_levels,
    no_partners,
    reason_for_none,
    select_at_least,
)
from lbcore.plan.snapshot import sequential_sum, throughput

PERCENT = 100.0


def shed_overload(view: ShedView, state: ShedState, config: SheddingConfig) -> Shed:
    """Return the bundles that leave overloaded brokers.

    A broker with usage u >= T gives bundles until (u − T + 0.05) of its throughput is gone, at
    least one; a broker with one bundle gives nothing. Worked: u = 0.95, T = 0.85, 100 MB/s: at
    least 15 MB/s go.
    """
    threshold = config.overloaded_threshold_percent / 100.0
    is_hot = ~(view.usage < threshold)
    is_ready = np.ones(len(view.usage), dtype=np.bool_)
    if config.multi_hit and len(view.usage):
        average = sequential_sum(view.usage) / len(view.usage)
        excess = 100.0 * (view.usage - average)
        is_ready, state = multi_hit_gate(view, state, excess, is_hot, config)
    share = view.usage - threshold + MARGIN
    minimum = throughput(view.snapshot.brokers.traffic) * share
    chosen = {
        broker: select_at_least(
            view,
            broker,
            float(minimum[broker]),
            {"usage": float(view.usage[broker]), "share": float(share[broker])},
        )
        for broker in np.flatnonzero(is_hot & is_ready).tolist()
    }
    selections = tuple(one for one in chosen.values() if isinstance(one, Selection))
    return Shed(
        selections=selections,
        state=state,
        reason="" if selections else reason_for_none(is_hot, is_ready),
        columns={"usage": view.usage},
        numbers={"threshold": threshold},
        verdicts={broker: one for broker, one in chosen.items() if isinstance(one, str)},
    )


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
