"""ThresholdShedder: brokers whose smoothed usage is a threshold above the average.

Destinations are placement's. Source: Pulsar 4.0.8 ThresholdShedder with its lower boundary.
`multi_hit` is Ballast's: it judges plain usage, because smoothed usage sheds too much.
"""

from collections.abc import Collection, Iterator
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
    multi_hit_gate,
    multi_hit_levels,
    no_partners,
    reason_for_none,
    select_at_least,
)
from lbcore.plan.snapshot import Bools, Floats, sequential_sum, throughput
from lbcore.signals.averages import ema_step

MIB = 1024.0 * 1024.0
LOWER_BOUNDARY_MARGIN = 0.5


def shed_threshold(
    view: ShedView, state: ShedState, config: SheddingConfig, history_weight: float
) -> Shed:
    """Return bundles to shed above average + threshold, or by the lower boundary.

    A broker of smoothed usage c >= avg + t gives bundles until (c − avg − t + 0.05) of its
    throughput is gone, unless that is less than `min_throughput_mib_per_s`. Worked: c = 0.90, avg =
    0.50, t = 0.10: 35 percent. The lower boundary smooths a second time.
    """
    usage, average, is_ready, state = _judge(view, state, config, history_weight)
    if average == 0:
        return Shed(selections=(), state=state, reason="NoLoadData")
    threshold = config.threshold_percent / 100.0
    floor = config.min_throughput_mib_per_s * MIB
    is_hot = ~(usage < average + threshold)
    share = usage - average - threshold + MARGIN
    minimum = throughput(view.snapshot.brokers.traffic) * share
    chosen = {
        broker: "below_min_throughput"
        if minimum[broker] < floor
        else select_at_least(
            view,
            broker,
            float(minimum[broker]),
            {"usage": float(usage[broker]), "average": average},
        )
        for broker in np.flatnonzero(is_hot & is_ready).tolist()
    }
    selections = tuple(one for one in chosen.values() if isinstance(one, Selection))
    shed = Shed(
        selections=selections,
        state=state,
        reason="" if selections else reason_for_none(is_hot, is_ready),
        columns={"usage": view.usage, "average_usage": usage},
        numbers={"average": average, "threshold": threshold},
        verdicts={broker: one for broker, one in chosen.items() if isinstance(one, str)},
    )
    if shed.selections or not config.lower_boundary:
        return shed
    return _lower_boundary(view, shed, config, history_weight)


def _judge(
    view: ShedView, state: ShedState, config: SheddingConfig, history_weight: float
) -> tuple[Floats, float, Bools, ShedState]:
    """Return the usages to judge, float64[n], their mean, who may act, and the state."""
    if config.multi_hit and len(view.usage):
        average = sequential_sum(view.usage) / len(view.usage)
        excess = 100.0 * (view.usage - average)
        is_hot = ~(view.usage < average + config.threshold_percent / 100.0)
        is_ready, state = multi_hit_gate(view, state, excess, is_hot, config)
        return view.usage, average, is_ready, state
    ema, state = _advance(view, state, history_weight)
    average = sequential_sum(ema) / len(ema) if len(ema) else 0.0
    return ema, average, np.ones(len(ema), dtype=np.bool_), state


def _advance(view: ShedView, state: ShedState, history_weight: float) -> tuple[Floats, ShedState]:
    """Advance each due broker's average by one step, or begin it with the observation."""
    names = view.snapshot.brokers.names
    known = [state.ema.get(name) for name in names]
    history = np.array([np.nan if value is None else value for value in known], dtype=np.float64)
    is_first = np.array([value is None for value in known], dtype=np.bool_)
    stepped = ema_step(history, view.usage, history_weight)
    ema: Floats = np.where(is_first, view.usage, np.where(view.has_new_report, stepped, history))
    return ema, replace(state, ema={**state.ema, **dict(zip(names, ema.tolist(), strict=True))})


def _lower_boundary(
    view: ShedView, shed: Shed, config: SheddingConfig, history_weight: float
) -> Shed:
    """Return one broker's bundles if another is far below the average, none far above."""
    ema, state = _advance(view, shed.state, history_weight)
    average = sequential_sum(ema) / len(ema)
    threshold = config.threshold_percent / 100.0
    lower = average - threshold
    nothing = replace(shed, state=state, reason="NoBrokerBelowLowerBoundary")
    may_give = (view.snapshot.brokers.bundle_count > 1) & (ema > lower)
    if not may_give.any() or not (ema < lower).any():
        return nothing
    broker = int(np.argmax(np.where(may_give, ema, -np.inf)))
    total = float(throughput(view.snapshot.brokers.traffic[broker : broker + 1])[0])
    minimum = total * threshold * LOWER_BOUNDARY_MARGIN
    if config.min_throughput_mib_per_s * MIB > minimum:
        return replace(nothing, verdicts={broker: "below_min_throughput"})
    numbers = {"usage": float(ema[broker]), "average": average, "lower_boundary": lower}
    chosen = select_at_least(view, broker, minimum, numbers)
    if isinstance(chosen, str):
        return replace(nothing, verdicts={broker: chosen})
    selection = replace(chosen, reason="Underloaded")
    return replace(nothing, selections=(selection,), reason="")


def without_averages(state: ShedState, active: Collection[str]) -> ShedState:
    """Return the state without averages of departed brokers, as in Pulsar 4.0.8."""
    kept = set(active)
    ema = {broker: value for broker, value in state.ema.items() if broker in kept}
    return replace(state, ema=ema)


def check_threshold(config: Config, _gaps: UsageGaps) -> Iterator[ConfigFinding]:
    """Find a threshold that lets bundles never rest."""
    if config.shedding.threshold_percent <= 0:
        detail = "is not positive: brokers below the average shed, bundles move for ever"
        yield warning("shedding.threshold_percent", detail)


def threshold_trigger(view: ShedView, shed: Shed, config: SheddingConfig) -> TriggerStatus:
    """Return smoothed usage, and the levels at which a broker sheds."""
    smoothed = shed.columns.get("average_usage", view.usage)
    average = 100.0 * (sequential_sum(smoothed) / len(smoothed) if len(smoothed) else 0.0)
    floor = average + config.threshold_percent
    return TriggerStatus(
        measure="smoothed usage in percent",
        number=100.0 * smoothed,
        partner=no_partners(len(smoothed)),
        levels=multi_hit_levels(view, shed.state, config, average, floor),
    )
