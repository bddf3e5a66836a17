"""The modular shedders by name, called alike.

Decides nothing. The plan's shed phase and the conformance runner call strategies through this.
Source: Pulsar 4.0.8's class names; the short names are ours.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from lbcore.config.shedding import SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.plan.shed.avg import shed_avg
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.shed.overload import shed_overload
from lbcore.plan.shed.threshold import shed_threshold
from lbcore.plan.shed.uniform import shed_uniform

TRANSFER = "transfer"

Shedder: TypeAlias = Callable[[ShedView, ShedState, SheddingConfig, SignalsConfig], Shed]


def modular_shedder(name: str) -> Shedder:
    """The shedder of a short name or a Pulsar class name; raises KeyError for another one."""
    return _BY_NAME[_simple(name)]


def forget_brokers(name: str, state: ShedState, active: Collection[str]) -> ShedState:
    """The state after the set of active brokers changed.

    Pulsar 4.0.8: ThresholdShedder forgets departed brokers' averages; AvgShedder forgets nothing.
    """
    if modular_shedder(name) is not _threshold:
        return state
    kept = set(active)
    return replace(
        state, ema={broker: value for broker, value in state.ema.items() if broker in kept}
    )


def _avg(view: ShedView, state: ShedState, config: SheddingConfig, _signals: SignalsConfig) -> Shed:
    return shed_avg(view, state, config)


def _threshold(
    view: ShedView, state: ShedState, config: SheddingConfig, signals: SignalsConfig
) -> Shed:
    return shed_threshold(view, state, config, signals.history_weight)


def _overload(
    view: ShedView, state: ShedState, config: SheddingConfig, _signals: SignalsConfig
) -> Shed:
    return shed_overload(view, state, config)


def _uniform(
    view: ShedView, state: ShedState, config: SheddingConfig, _signals: SignalsConfig
) -> Shed:
    return shed_uniform(view, state, config)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


_BY_NAME: dict[str, Shedder] = {
    "avg": _avg,
    "AvgShedder": _avg,
    "threshold": _threshold,
    "ThresholdShedder": _threshold,
    "overload": _overload,
    "OverloadShedder": _overload,
    "uniform": _uniform,
    "UniformLoadShedder": _uniform,
}
