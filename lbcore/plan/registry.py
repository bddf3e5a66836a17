"""All strategies by name: Ballast's, Pulsar's and custom ones, one record each.

A name is the short one, or Pulsar's class with or without its package. The planner runs what the
records name; `ballast strategies`, docs/strategies.md, the checks of settings, simulations and
metrics read the rest. docs/contributing.md says what a new one needs. Source: Pulsar 4.0.8's class
names and rules.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lbcore.config.placement import (
    AVG,
    LEAST_LONG_TERM_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    OVERLOAD,
    PLACEMENT,
    ROUND_ROBIN,
    SHEDDING,
    THRESHOLD,
    TRANSFER,
    UNIFORM,
    PlacementConfig,
    short_name,
)
from lbcore.config.shedding import IdealLoadConfig, TransferConfig
from lbcore.config.tree import Config
from lbcore.config.values import ConfigFinding, UsageGaps, warning
from lbcore.plan.decision import PlanState, Scope
from lbcore.plan.place.least_load import LeastLoadRule
from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings
from lbcore.plan.place.rules import AvgRule, MessageRateRule, RoundRobinRule, Rule, UsageRule
from lbcore.plan.shed.avg import avg_trigger, check_avg, shed_avg
from lbcore.plan.shed.ballast import ballast_trigger, observe_ballast, shed_ballast
from lbcore.plan.shed.ballast_problem import divisible, learn_costs
from lbcore.plan.shed.common import Shed
from lbcore.plan.shed.custom import custom_shedding
from lbcore.plan.shed.overload import check_overload, overload_trigger, shed_overload
from lbcore.plan.shed.threshold import (
    check_threshold,
    shed_threshold,
    threshold_trigger,
    without_averages,
)
from lbcore.plan.shed.transfer import run_transfer, transfer_trigger
from lbcore.plan.shed.uniform import check_uniform, shed_uniform, uniform_trigger
from lbcore.plan.strategy import (
    SCORE_WEIGHTS,
    WEIGHTS,
    Destinations,
    Grouping,
    ShedCycle,
    Shedding,
    Strategy,
    default_hot_points,
    keys,
    modular,
    multi_hits,
)

USAGE_DIFFERENCE_USUAL_MAX = 50.0
_OVERLOAD_LIMIT = "shedding.overloaded_threshold_percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStrategy(Strategy):
    """A placement strategy.

    rule_of: request, state, settings and seed → the rule of one plan. evens_counts: even
    distribution by count applies beside it.
    """

    rule_of: Callable[[PlaceRequest, PlacementState, PlaceSettings, int], Rule]
    evens_counts: bool = True


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
        caveats="a bundle that avg has not planned goes to the lowest message rate; Pulsar "
        "places it by hash",
        settings=keys("shedding", "is_pulsar_exact"),
        plans_destinations=True,
        rule_of=AvgRule.of,
    ),
    PlacementStrategy(
        name=LEAST_LONG_TERM_MESSAGE_RATE,
        pulsar_class=PLACEMENT[LEAST_LONG_TERM_MESSAGE_RATE],
        rule="The broker with the least long-term message rate that is not overloaded.",
        use_when="Bundles are alike; Pulsar's default until 2026.",
        caveats="Pulsar gives all bundles of one plan to the same broker; "
        "with `shedding.is_pulsar_exact` off, what the plan has placed is counted",
        settings=(_OVERLOAD_LIMIT, *keys("shedding", "is_pulsar_exact")),
        rule_of=MessageRateRule.of,
    ),
    PlacementStrategy(
        name=LEAST_RESOURCE_USAGE_WITH_WEIGHT,
        pulsar_class=PLACEMENT[LEAST_RESOURCE_USAGE_WITH_WEIGHT],
        rule="Any broker whose smoothed usage is at least the usage difference below the average; "
        "if there is none, any broker.",
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
        rule_of=UsageRule.of,
    ),
    PlacementStrategy(
        name="ballast",
        rule="The destination that the shedder chose; a bundle without one goes where it leaves "
        "the least load, by the broker's size.",
        use_when="Always and only with shedding by ballast.",
        caveats="evens out load, not the number of bundles",
        settings=keys("shedding", "is_pulsar_exact"),
        plans_destinations=True,
        rule_of=LeastLoadRule.of,
        evens_counts=False,
    ),
    PlacementStrategy(
        name=ROUND_ROBIN,
        pulsar_class=PLACEMENT[ROUND_ROBIN],
        rule="One broker after the other.",
        use_when="Load reports can't be trusted; Pulsar's choice for namespaces excluded from"
        " shedding.",
        caveats="knows no load",
        rule_of=RoundRobinRule.of,
    ),
)


def _settings(declaring: Any) -> list[str]:
    """Return the settings of a section, without constants."""
    return [one.name for one in fields(declaring) if "setting" in one.metadata]


_LEAST_MOVES = ("min_unload_rate_msg_per_s", "min_unload_throughput_bytes_per_s")


def _run_ballast(cycle: ShedCycle) -> tuple[Shed, PlanState]:
    config, state = cycle.config, cycle.state
    can_divide = divisible(cycle.view.snapshot, config.splitting, state.split.unsplittable)
    answer = shed_ballast(cycle.view, state.shed, config.ideal_load, can_divide)
    return answer, replace(state, shed=answer.state)


SHEDDERS = (
    Shedding(
        name=AVG,
        pulsar_class=SHEDDING[AVG],
        rule="Pairs the hottest broker with the coldest and so on; a pair that differs by a low or "
        "a high threshold for enough cycles evens out its traffic between the two.",
        use_when="Pulsar's AvgShedder is wanted as it is, without isolation policies.",
        caveats="Brokers are selected by usage, bundles by traffic: usage by another "
        "process makes it try again and again, with nothing to move; under Pulsar's overlays it "
        "pairs brokers of different isolation groups",
        settings=(
            *keys(
                "shedding",
                "avg_low_threshold",
                "avg_high_threshold",
                "avg_low_hits",
                "avg_high_hits",
                "max_unload_fraction",
                *_LEAST_MOVES,
                "is_pulsar_exact",
            ),
            *WEIGHTS,
        ),
        plans_destinations=True,
        checks=(check_avg,),
        seen_in="[G3](golden/pathologies/G3_avg.txt) fills a new broker, "
        "[G7](golden/pathologies/G7_AvgShedder.txt) is blinded by another process's load",
        grouping=Grouping.UNLESS_EXACT,
        run=modular(lambda view, state, config: shed_avg(view, state, config.shedding)),
        trigger=lambda cycle, shed: avg_trigger(cycle.view, shed, cycle.config.shedding),
        hits_needed=lambda config: (config.shedding.avg_low_hits, config.shedding.avg_high_hits),
        destinations=lambda config: (
            Destinations.KEPT if config.shedding.keep_destination else Destinations.OPEN
        ),
        usual_placement=AVG,
    ),
    Shedding(
        name=THRESHOLD,
        pulsar_class=SHEDDING[THRESHOLD],
        rule="Every broker whose smoothed usage is a threshold above the average gives up the "
        "excess and five points; with the lower boundary, the hottest one when a broker idles.",
        use_when="Pulsar's default until 2026; many similar brokers. Turn `multi_hit` on, or the "
        "lower boundary when brokers are added.",
        caveats="smoothed scores lag behind, so Pulsar's rule unloads past the balance "
        "(`shedding.is_pulsar_exact` off cures it); a new empty broker among many full ones "
        "hardly changes the mean, so none exceeds the threshold "
        "(`shedding.lower_boundary` cures it)",
        settings=(
            *keys("shedding", "threshold_percent", "lower_boundary", "min_throughput_mib_per_s"),
            "signals.history_weight",
            *WEIGHTS,
            "shedding.multi_hit",
        ),
        checks=(check_threshold,),
        seen_in="[fails](golden/pathologies/smoothed_scores_threshold_pulsar.txt), "
        "[cured](golden/pathologies/smoothed_scores_threshold_ours.txt); "
        "[G4 fails](golden/pathologies/G4_threshold.txt), "
        "[G4 cured](golden/pathologies/G4_threshold_lower_boundary.txt)",
        grouping=Grouping.UNLESS_EXACT,
        run=modular(
            lambda view, state, config: shed_threshold(
                view, state, config.shedding, config.signals.history_weight
            )
        ),
        trigger=lambda cycle, shed: threshold_trigger(cycle.view, shed, cycle.config.shedding),
        hot_points=lambda config: config.shedding.threshold_percent,
        hits_needed=multi_hits,
        forget=without_averages,
    ),
    Shedding(
        name=OVERLOAD,
        pulsar_class=SHEDDING[OVERLOAD],
        rule="Every broker at or above the overload threshold gives up the excess and five points.",
        use_when="Brokers may be uneven as long as none is full. Harmful when all are full: turn "
        "`multi_hit` on.",
        caveats="knows no average: when all are overloaded, all shed for nothing "
        "(`shedding.multi_hit` cures it)",
        settings=("shedding.overloaded_threshold_percent", *WEIGHTS, "shedding.multi_hit"),
        checks=(check_overload,),
        seen_in="[all at 90](golden/pathologies/all_at_90_overload.txt)",
        grouping=Grouping.UNLESS_EXACT,
        run=modular(lambda view, state, config: shed_overload(view, state, config.shedding)),
        trigger=lambda cycle, shed: overload_trigger(cycle.view, shed, cycle.config.shedding),
        hits_needed=multi_hits,
    ),
    Shedding(
        name=UNIFORM,
        pulsar_class=SHEDDING[UNIFORM],
        rule="The broker with most traffic gives part of its lead over the idlest one, by message "
        "rate, else by bytes; usage does not count.",
        use_when="You want even traffic, whatever the brokers' usage.",
        caveats="one broker a round; blind to usage that traffic does not explain",
        settings=(
            *keys(
                "shedding",
                "rate_difference_percent",
                "throughput_ratio",
                "rules",
                "max_unload_fraction",
                "max_unload_bundles",
                *_LEAST_MOVES,
            ),
            "shedding.multi_hit",
        ),
        checks=(check_uniform,),
        seen_in="[G2](golden/pathologies/G2_uniform.txt), "
        "[G7](golden/pathologies/G7_uniform.txt) evens out traffic, even onto a "
        "broker that another process loads",
        grouping=Grouping.UNLESS_EXACT,
        run=modular(lambda view, state, config: shed_uniform(view, state, config.shedding)),
        trigger=lambda cycle, shed: uniform_trigger(cycle.view, shed, cycle.config.shedding),
        hits_needed=lambda config: (multi_hits(config)[0], multi_hits(config)[0]),
    ),
    Shedding(
        name=TRANSFER,
        pulsar_class=SHEDDING[TRANSFER],
        rule="Moves bundles from the hottest to the coldest brokers until the deviation of the "
        "scores is below a target, swapping where a plain move doesn't fit.",
        use_when="Migrating from the extensible load manager, or the standard deviation of loads "
        "is to be limited.",
        caveats="knows a broker's heaviest bundles only; waits `transfer.shedding_delay_ms` after "
        "each move",
        settings=(
            *keys("transfer", *_settings(TransferConfig)),
            "shedding.overloaded_threshold_percent",
            *SCORE_WEIGHTS,
        ),
        seen_in="[cases](conformance/cases/transfer.jsonl)",
        run=run_transfer,
        trigger=lambda cycle, _shed: transfer_trigger(
            cycle.view, cycle.state.transfer, cycle.config.transfer
        ),
        hits_needed=lambda config: (config.transfer.hit_count_threshold + 1,) * 2,
        destinations=lambda config: (
            Destinations.SETTLED
            if config.transfer.is_destination_planned
            else Destinations.UNPLANNED
        ),
        usual_placement=LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    ),
    Shedding(
        name="ballast",
        rule="Brings each broker to the ideal load by moves and exchanges that win more than they "
        "cost, within a budget a round; a bundle that no broker can take is divided.",
        use_when="The default. Loads are skewed, hot spots jump, brokers differ in size, or "
        "isolation policies divide the cluster.",
        caveats="usage that traffic doesn't explain stays where it is; "
        "[the scoreboard](scoreboard.md) names what it is worse in",
        settings=(*keys("ideal_load", *_settings(IdealLoadConfig)), *WEIGHTS),
        plans_destinations=True,
        seen_in="[G2](golden/pathologies/G2_ballast.txt), [G4](golden/pathologies/G4_ballast.txt), "
        "[G7](golden/pathologies/G7_ballast.txt) evens out the others when another "
        "process loads one",
        grouping=Grouping.ALWAYS,
        learn=lambda cycle: replace(cycle.state, shed=learn_costs(cycle.view, cycle.state.shed)),
        run=_run_ballast,
        observe=lambda cycle: replace(
            cycle.state, shed=observe_ballast(cycle.view, cycle.state.shed, cycle.config.ideal_load)
        ),
        trigger=lambda cycle, shed: ballast_trigger(cycle.view, shed, cycle.config.ideal_load),
        hot_points=lambda config: config.ideal_load.high_points,
        hits_needed=lambda config: (config.ideal_load.low_hits, config.ideal_load.high_hits),
        destinations=lambda _config: Destinations.KEPT,
        prices_moves=True,
        usual_placement="ballast",
    ),
)


SHED, PLACE = "shedding", "placement"
_REPORTS = 2
"""Report intervals until reports show a move; the first may have begun before it."""


SHEDDING_STRATEGIES: Mapping[str, Shedding] = {one.name: one for one in SHEDDERS}
PLACEMENT_STRATEGIES: Mapping[str, PlacementStrategy] = {one.name: one for one in PLACERS}
STRATEGIES: Mapping[str, tuple[Strategy, ...]] = {SHED: SHEDDERS, PLACE: PLACERS}
"""Kind → its strategies, in the order of the documentation."""


def shedding_name(name: str) -> str:
    """Return the short name of a shedding strategy; an unknown name as it is."""
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
    """Return the points above its group's mean from which a broker is shown as hot."""
    strategy = find_shedding(config)
    return default_hot_points(config) if strategy is None else strategy.hot_points(config)


def effective_grace_ms(config: Config) -> int:
    """Return the time in which a shed bundle is not shed again, ms.

    The grace period; under a strategy with `prices_moves` only until reports show the move: two of
    the longest intervals between load reports and the lag of usages, at most the grace period.
    """
    grace_ms, signals = config.shedding.grace_period_ms, config.signals
    strategy = find_shedding(config)
    if strategy is None or not strategy.prices_moves:
        return grace_ms
    return min(grace_ms, _REPORTS * signals.longest_silence_ms + signals.usage_lag_ms)


def observer(config: Config, scope: Scope) -> Callable[[ShedCycle], PlanState] | None:
    """Return the strategy's function for a cycle that may not shed, None = none."""
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
    """Return the names of all shedding strategies, built-in ones first, then custom."""
    return [*SHEDDING_STRATEGIES, *sorted(config.own)]


def placement_strategy(config: PlacementConfig) -> PlacementStrategy:
    """Return the configured placement strategy. Raises ValueError for unknown names."""
    name = placement_name(config.strategy)
    if name not in PLACEMENT_STRATEGIES:
        known = ", ".join(PLACEMENT_STRATEGIES)
        raise ValueError(f"placement strategy must be one of {known}, got {config.strategy!r}")
    return PLACEMENT_STRATEGIES[name]
