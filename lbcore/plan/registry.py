"""All strategies by name: ours, or Pulsar's class with or without its package.

Decides which record a name means. Everything that asks for a strategy asks here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from lbcore.config.placement import PlacementConfig
from lbcore.config.strategies import (
    PLACEMENT,
    SHEDDING,
    short_name,
)
from lbcore.config.tree import Config
from lbcore.plan.decision import PlanState, Scope
from lbcore.plan.place.registry import PLACERS, PlacementStrategy
from lbcore.plan.shed.custom import custom_shedding
from lbcore.plan.shed.registry import SHEDDERS
from lbcore.plan.shed.strategy import ShedCycle, Shedding, ten_points
from lbcore.plan.strategy import Strategy

SHED, PLACE = "shedding", "placement"
_REPORTS = 2
"""Report intervals after which reports show a move: the first may have begun before it."""
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
    """Return a placement strategy's short name; an unknown one as it is."""
    return short_name(name, PLACEMENT)


def find_shedding(config: Config) -> Shedding | None:
    """Return the configured shedding strategy, built-in or custom; None without."""
    name = shedding_name(config.shedding.strategy)
    if name in config.own:
        return custom_shedding(config.own[name])
    return SHEDDING_STRATEGIES.get(name)


def hot_points(config: Config) -> float:
    """Points above the mean of its group from which a broker is shown as hot."""
    strategy = find_shedding(config)
    return ten_points(config) if strategy is None else strategy.hot_points(config)


def resting_ms(config: Config) -> int:
    """Return the time in which a bundle that was shed is not shed again, ms.

    The grace period. Under a strategy with `prices_moves` only until reports show the move: two
    report intervals and the lag of usages, within the grace period.
    """
    grace_ms, signals = config.shedding.grace_period_ms, config.signals
    strategy = find_shedding(config)
    if strategy is None or not strategy.prices_moves:
        return grace_ms
    return min(grace_ms, _REPORTS * signals.longest_silence_ms + signals.usage_lag_ms)


def observer(config: Config, scope: Scope) -> Callable[[ShedCycle], PlanState] | None:
    """Return the strategy's function for a cycle that may not shed.

    None: the strategy has none, or the cycle may shed.
    """
    is_between = scope.observes and not scope.sheds
    return shedding_strategy(config).observe if is_between else None


def shedding_strategy(config: Config) -> Shedding:
    """Return the configured shedding strategy. Raises ValueError for unknown names."""
    found = find_shedding(config)
    if found is None:
        message = (
            f"shedding strategy must be one of {', '.join(shedding_names(config))},"
            f" got {config.shedding.strategy!r}"
        )
        raise ValueError(message)
    return found


def shedding_names(config: Config) -> list[str]:
    """Every shedding strategy that there is: Ballast's, then your own."""
    return [*SHEDDING_STRATEGIES, *sorted(config.own)]


def placement_strategy(config: PlacementConfig) -> PlacementStrategy:
    """Return the configured placement strategy. Raises ValueError for unknown names."""
    name = placement_name(config.strategy)
    if name not in PLACEMENT_STRATEGIES:
        known = ", ".join(PLACEMENT_STRATEGIES)
        raise ValueError(f"placement strategy must be one of {known}, got {config.strategy!r}")
    return PLACEMENT_STRATEGIES[name]
