"""All strategies by name: ours, or Pulsar's class with or without its package.

Decides which record a name means. Everything that asks for a strategy asks here. Source: ours.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.strategies import PLACEMENT, SHEDDING, short_name
from lbcore.plan.place.registry import PLACERS, PlacementStrategy
from lbcore.plan.shed.registry import SHEDDERS
from lbcore.plan.shed.strategy import Shedding
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


def shedding_strategy(config: SheddingConfig) -> Shedding:
    """The shedding strategy that is set; raises ValueError for a name that there isn't."""
    name = shedding_name(config.strategy)
    return _found(name, SHED, SHEDDING_STRATEGIES)


def placement_strategy(config: PlacementConfig) -> PlacementStrategy:
    """The placement strategy that is set; raises ValueError for a name that there isn't."""
    name = placement_name(config.strategy)
    return _found(name, PLACE, PLACEMENT_STRATEGIES)


def _found(name: str, kind: str, known: Mapping[str, Kind]) -> Kind:
    if name not in known:
        message = f"{kind} strategy must be one of {', '.join(known)}, got {name!r}"
        raise ValueError(message)
    return known[name]
