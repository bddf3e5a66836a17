"""The placement strategies: one record each.

A new one is its rule, its record here, and its tests. Placement makes the rule of the one that is
set; `ballast strategies`, docs/strategies.md and the checks of settings read the rest. Source:
Pulsar 4.0.8's class names and rules; short names and advice are ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lbcore.config.filters import EXTENSIBLE
from lbcore.config.findings import ConfigFinding, UsageGaps, warning
from lbcore.config.strategies import (
    AVG,
    LEAST_LONG_TERM_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    PLACEMENT,
    ROUND_ROBIN,
)
from lbcore.config.tree import Config
from lbcore.plan.place.least_load import LeastLoadRule
from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings
from lbcore.plan.place.rules import (
    AvgRule,
    Draw,
    MessageRateRule,
    RoundRobinRule,
    Rule,
    UsageRule,
)
from lbcore.plan.strategy import SCORE_WEIGHTS, Strategy, keys

USAGE_DIFFERENCE_USUAL_MAX = 50.0
_OVERLOAD_LIMIT = "shedding.overloaded_threshold_percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStrategy(Strategy):
    """A placement strategy.

    rule_of: the request, what is remembered, settings and draw → the rule, ready for one plan.
    evens_counts: even distribution of bundles by number applies beside it.
    """

    rule_of: Callable[[PlaceRequest, PlacementState, PlaceSettings, Draw], Rule]
    evens_counts: bool = True


def _avg_rule(
    request: PlaceRequest, _state: PlacementState, settings: PlaceSettings, draw: Draw
) -> Rule:
    least = None
    if settings.placement.count_planned:
        least = MessageRateRule.of(request, settings.placement, draw)
    return AvgRule(planned=request.planned, draw=draw, otherwise=least)


def _usage_rule(
    request: PlaceRequest, state: PlacementState, settings: PlaceSettings, draw: Draw
) -> Rule:
    is_extensible = settings.filters.pipeline == EXTENSIBLE
    extensible = UsageRule.extensible(request, settings, draw) if is_extensible else None
    return extensible or UsageRule.modular(request, state, settings, draw)


def _check_usage_difference(config: Config, _gaps: UsageGaps) -> Iterator[ConfigFinding]:
    key, difference = (
        "placement.usage_difference_percent",
        config.placement.usage_difference_percent,
    )
    if difference < 0:
        yield warning(
            key, f"{difference:g} is negative: brokers above the average count as the best"
        )
    if difference > USAGE_DIFFERENCE_USUAL_MAX:
        yield warning(
            key, f"{difference:g} is hardly reached: then all brokers are equal, placed at random"
        )


PLACERS = (
    PlacementStrategy(
        name=AVG,
        pulsar_class=PLACEMENT[AVG],
        rule="The destination that the shedder chose; a bundle without one goes by least "
        "long-term message rate (Pulsar: anywhere).",
        use_when="Always and only with shedding by avg.",
        caveats="a bundle without a plan goes by message rate, in Pulsar anywhere",
        settings=keys("shedding", "is_pulsar_exact"),
        is_whole=True,
        rule_of=_avg_rule,
    ),
    PlacementStrategy(
        name=LEAST_LONG_TERM_MESSAGE_RATE,
        pulsar_class=PLACEMENT[LEAST_LONG_TERM_MESSAGE_RATE],
        rule="The broker with the least long-term message rate that is not overloaded.",
        use_when="Bundles are alike; Pulsar's default until 2026.",
        caveats="Pulsar gives all bundles of one plan to the same broker; "
        "with `shedding.is_pulsar_exact` off what the plan has placed counts",
        settings=(
            _OVERLOAD_LIMIT,
            *keys("shedding", "is_pulsar_exact"),
        ),
        rule_of=lambda request, _state, settings, draw: MessageRateRule.of(
            request, settings.placement, draw
        ),
    ),
    PlacementStrategy(
        name=LEAST_RESOURCE_USAGE_WITH_WEIGHT,
        pulsar_class=PLACEMENT[LEAST_RESOURCE_USAGE_WITH_WEIGHT],
        rule="Any broker whose smoothed usage is a difference below the average; without one, any "
        "at all.",
        use_when="Usage matters more than messages and differs between brokers.",
        caveats="`placement.usage_difference_percent` too small admits hot brokers, too large "
        "leaves nobody",
        settings=(
            "placement.usage_difference_percent",
            "shedding.is_pulsar_exact",
            "signals.history_weight",
            *SCORE_WEIGHTS,
        ),
        checks=(_check_usage_difference,),
        rule_of=_usage_rule,
    ),
    PlacementStrategy(
        name="ballast",
        rule="The destination that the shedder chose; a bundle without one goes where it leaves "
        "the least load, by the broker's size.",
        use_when="Always and only with shedding by ballast.",
        caveats="evens out load, not the number of bundles",
        settings=keys("shedding", "is_pulsar_exact"),
        is_whole=True,
        rule_of=lambda request, _state, settings, draw: LeastLoadRule.of(
            request, settings.placement, draw
        ),
        evens_counts=False,
    ),
    PlacementStrategy(
        name=ROUND_ROBIN,
        pulsar_class=PLACEMENT[ROUND_ROBIN],
        rule="One broker after the other.",
        use_when="Load reports can't be trusted; Pulsar's choice for excluded namespaces.",
        caveats="knows no load",
        rule_of=lambda request, state, _settings, _draw: RoundRobinRule.of(
            request, state.round_robin, is_for_excluded=False
        ),
    ),
)
