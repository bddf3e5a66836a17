"""All strategies by name: ours, or Pulsar's class with or without its package.

Decides which record a name means. Everything that asks for a strategy asks here. Source: ours.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from lbcore.config.placement import PlacementConfig
from lbcore.config.strategies import (
    LEAST_LONG_TERM_MESSAGE_RATE,
    PLACEMENT,
    SHEDDING,
    short_name,
)
from lbcore.plan.decision import PlanConfig, PlanState, Scope
from lbcore.plan.place.registry import PLACERS, PlacementStrategy
from lbcore.plan.shed.own import own_shedding
from lbcore.plan.shed.registry import SHEDDERS
from lbcore.plan.shed.strategy import ShedCycle, Shedding
from lbcore.plan.strategy import Strategy

SHED, PLACE = "shedding", "placement"
Kind = TypeVar("Kind", bound=Strategy)


def _by_name(records: Iterable[Kind]) -> Mapping[str, Kind]:
    return {one.name: one for one in records}


SHEDDING_STRATEGIES: Mapping[str, Shedding] = _by_name(SHEDDERS)
PLACEMENT_STRATEGIES: Mapping[str, PlacementStrategy] = _by_name(PLACERS)
STRATEGIES: Mapping[str, tuple[Strategy, ...]] = {SHED: SHEDDERS, PLACE: PLACERS}
"""Kind → its strategies, in the order in which they are told."""


def shedding_name(name: str) -> str:
    """The short name of a shedding strategy; one that isn't known comes back as it is."""
    return short_name(name, SHEDDING)


def placement_name(name: str) -> str:
    """The short name of a placement strategy; one that isn't known comes back as it is."""
    return short_name(name, PLACEMENT)


def find_shedding(config: PlanConfig) -> Shedding | None:
    """The shedding strategy that is set, Ballast's or one of your own; None = there is none."""
    name = shedding_name(config.shedding.strategy)
    if name in config.own:
        return own_shedding(config.own[name])
    return SHEDDING_STRATEGIES.get(name)


def observer(config: PlanConfig, scope: Scope) -> Callable[[ShedCycle], PlanState] | None:
    """What the strategy does with a cycle that may not shed; None: nothing, or it may shed."""
    is_between = scope.observes and not scope.sheds
    return shedding_strategy(config).observe if is_between else None


def shedding_strategy(config: PlanConfig) -> Shedding:
    """The shedding strategy that is set; raises ValueError for a name that there isn't."""
    found = find_shedding(config)
    if found is None:
        message = (
            f"shedding strategy must be one of {', '.join(shedding_names(config))},"
            f" got {config.shedding.strategy!r}"
        )
        raise ValueError(message)
    return found


def placement_beside(shedding: Shedding, placement: str) -> str:
    """The placement that a shedding strategy goes with: this one, unless one of them is whole.

    Worked: beside `least_resource_usage_with_weight`, `ballast` takes `ballast` and `threshold`
    keeps it; beside `avg`, `threshold` takes `least_long_term_message_rate`.
    """
    if shedding.is_whole:
        return shedding.name
    found = PLACEMENT_STRATEGIES.get(placement_name(placement))
    is_other_half = found is not None and found.is_whole
    return LEAST_LONG_TERM_MESSAGE_RATE if is_other_half else placement


def shedding_names(config: PlanConfig) -> list[str]:
    """Every shedding strategy that there is: Ballast's, then your own."""
    return [*SHEDDING_STRATEGIES, *sorted(config.own)]


def placement_strategy(config: PlacementConfig) -> PlacementStrategy:
    """The placement strategy that is set; raises ValueError for a name that there isn't."""
    name = placement_name(config.strategy)
    if name not in PLACEMENT_STRATEGIES:
        known = ", ".join(PLACEMENT_STRATEGIES)
        raise ValueError(f"placement strategy must be one of {known}, got {config.strategy!r}")
    return PLACEMENT_STRATEGIES[name]
