"""The shedding strategies: one record each.

docs/contributing.md says what a new one needs. The shed phase runs what stands here;
`ballast strategies`, docs/strategies.md, the checks of settings, simulations and metrics read it.
Source: Pulsar 4.0.8's class names and rules; short names and advice are ours.
"""

from dataclasses import fields, replace
from typing import Any

from lbcore.config.shedding import IdealLoadConfig, TransferConfig
from lbcore.config.strategies import (
    AVG,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    OVERLOAD,
    SHEDDING,
    THRESHOLD,
    TRANSFER,
    UNIFORM,
)
from lbcore.plan.decision import PlanState
from lbcore.plan.shed.avg import check_avg, shed_avg
from lbcore.plan.shed.ballast import observe_ballast, shed_ballast
from lbcore.plan.shed.ballast_problem import divisible, learn_costs
from lbcore.plan.shed.common import (
    Shed,
    avg_trigger,
    ballast_trigger,
    threshold_trigger,
    transfer_trigger,
    uniform_trigger,
    usage_trigger,
)
from lbcore.plan.shed.overload import check_overload, shed_overload
from lbcore.plan.shed.strategy import (
    Destinations,
    Grouping,
    ShedCycle,
    Shedding,
    modular,
    multi_hits,
)
from lbcore.plan.shed.threshold import check_threshold, shed_threshold, without_averages
from lbcore.plan.shed.transfer import run_transfer
from lbcore.plan.shed.uniform import check_uniform, shed_uniform
from lbcore.plan.strategy import SCORE_WEIGHTS, WEIGHTS, keys


def _settings(declaring: Any) -> list[str]:
    """The fields of a section that are settings, no constants."""
    return [one.name for one in fields(declaring) if "setting" in one.metadata]


_LEAST_MOVES = ("min_unload_rate_msg_per_s", "min_unload_throughput_bytes_per_s")

AVG_SHEDDER = Shedding(
    name=AVG,
    pulsar_class=SHEDDING[AVG],
    rule="Pairs the hottest broker with the coldest and so on; a pair that differs by a low or "
    "a high threshold for enough cycles evens out its traffic, to the partner.",
    use_when="Pulsar's AvgShedder is wanted as it is, without isolation policies.",
    caveats="Brokers are selected by usage, bundles by traffic: usage that is not the bundles' own "
    "(another process) keeps it busy with nothing to move; under Pulsar's overlays it pairs "
    "brokers of different isolation groups",
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
    is_whole=True,
    checks=(check_avg,),
    seen_in="[G3](golden/pathologies/G3_avg.txt) fills a new broker, "
    "[G7](golden/pathologies/G7_AvgShedder.txt) is blind to foreign load",
    grouping=Grouping.IF_SET,
    run=modular(lambda view, state, config: shed_avg(view, state, config.shedding)),
    trigger=lambda cycle, shed: avg_trigger(cycle.view, shed, cycle.config.shedding),
    hits_needed=lambda config: (config.shedding.avg_low_hits, config.shedding.avg_high_hits),
    destinations=lambda config: (
        Destinations.KEPT if config.shedding.keep_destination else Destinations.OPEN
    ),
    usual_placement=AVG,
)

THRESHOLD_SHEDDER = Shedding(
    name=THRESHOLD,
    pulsar_class=SHEDDING[THRESHOLD],
    rule="Every broker whose smoothed usage is a threshold above the average gives up the "
    "excess and five points; with the lower boundary, the hottest one when a broker idles.",
    use_when="Pulsar's default until 2026; many similar brokers. Turn `multi_hit` on, or the "
    "lower boundary when brokers are added.",
    caveats="smoothed scores lag behind, so Pulsar's rule unloads past the balance "
    "(`shedding.is_pulsar_exact` off cures it); a new empty broker among many full ones "
    "hardly changes the mean, so none exceeds the threshold (`shedding.lower_boundary` cures it)",
    settings=(
        *keys(
            "shedding",
            "threshold_percent",
            "lower_boundary",
            "min_throughput_mib_per_s",
        ),
        "signals.history_weight",
        *WEIGHTS,
        "shedding.multi_hit",
    ),
    checks=(check_threshold,),
    seen_in="[fails](golden/pathologies/smoothed_scores_threshold_pulsar.txt), "
    "[cured](golden/pathologies/smoothed_scores_threshold_ours.txt); "
    "[G4 fails](golden/pathologies/G4_threshold.txt), "
    "[G4 cured](golden/pathologies/G4_threshold_lower_boundary.txt)",
    grouping=Grouping.IF_SET,
    run=modular(
        lambda view, state, config: shed_threshold(
            view, state, config.shedding, config.signals.history_weight
        )
    ),
    trigger=lambda cycle, shed: threshold_trigger(cycle.view, shed, cycle.config.shedding),
    hot_points=lambda config: config.shedding.threshold_percent,
    hits_needed=multi_hits,
    forget=without_averages,
)

OVERLOAD_SHEDDER = Shedding(
    name=OVERLOAD,
    pulsar_class=SHEDDING[OVERLOAD],
    rule="Every broker at or above the overload threshold gives up the excess and five points.",
    use_when="Brokers may be uneven as long as none is full. Harmful when all are full: turn "
    "`multi_hit` on.",
    caveats="knows no average: when all are overloaded, all shed for nothing "
    "(`shedding.multi_hit` cures it)",
    settings=(
        "shedding.overloaded_threshold_percent",
        *WEIGHTS,
        "shedding.multi_hit",
    ),
    checks=(check_overload,),
    seen_in="[all at 90](golden/pathologies/all_at_90_overload.txt)",
    grouping=Grouping.IF_SET,
    run=modular(lambda view, state, config: shed_overload(view, state, config.shedding)),
    trigger=lambda cycle, shed: usage_trigger(
        cycle.view,
        shed,
        cycle.config.shedding,
        cycle.config.shedding.overloaded_threshold_percent,
    ),
    hits_needed=multi_hits,
)

UNIFORM_SHEDDER = Shedding(
    name=UNIFORM,
    pulsar_class=SHEDDING[UNIFORM],
    rule="The broker with most traffic gives part of its lead over the idlest one, by message "
    "rate, else by bytes; usage does not count.",
    use_when="Traffic is to be even whatever it costs the brokers, e.g. with foreign load.",
    caveats="one broker a cycle; blind to usage that traffic does not explain",
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
    "[G7](golden/pathologies/G7_uniform.txt) relieves in spite of foreign load",
    grouping=Grouping.IF_SET,
    run=modular(lambda view, state, config: shed_uniform(view, state, config.shedding)),
    trigger=lambda cycle, shed: uniform_trigger(cycle.view, shed, cycle.config.shedding),
    hits_needed=lambda config: (multi_hits(config)[0],) * 2,
)

TRANSFER_SHEDDER = Shedding(
    name=TRANSFER,
    pulsar_class=SHEDDING[TRANSFER],
    rule="Moves bundles from the hottest to the coldest brokers until the deviation of the "
    "scores is below a target, swapping where a plain move doesn't fit.",
    use_when="Migrating from the extensible load manager, or a deviation is the goal.",
    caveats="knows a broker's heaviest bundles only; waits `transfer.shedding_delay_ms` after each "
    "move",
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
        Destinations.SETTLED if config.transfer.is_destination_planned else Destinations.UNSAID
    ),
    usual_placement=LEAST_RESOURCE_USAGE_WITH_WEIGHT,
)


def _run_ballast(cycle: ShedCycle) -> tuple[Shed, PlanState]:
    config, state = cycle.config, cycle.state
    can_divide = divisible(cycle.view.snapshot, config.splitting, state.split.unsplittable)
    answer = shed_ballast(cycle.view, state.shed, config.ideal_load, can_divide)
    return answer, replace(state, shed=answer.state)


BALLAST_SHEDDER = Shedding(
    name="ballast",
    rule="Everybody to the ideal load, by [one objective](#what-ballast-makes-small): moves and "
    "exchanges that win more than they cost, within a budget a round; a bundle that nothing can "
    "place is divided.",
    use_when="The default. Loads are skewed, hot spots jump, brokers differ in size, or isolation "
    "policies divide the cluster.",
    caveats="usage that traffic doesn't explain is relieved by nobody; "
    "[the scoreboard](scoreboard.md) names what it is worse in",
    settings=(*keys("ideal_load", *_settings(IdealLoadConfig)), *WEIGHTS),
    is_whole=True,
    seen_in="[G2](golden/pathologies/G2_ballast.txt), [G4](golden/pathologies/G4_ballast.txt), "
    "[G7](golden/pathologies/G7_ballast.txt) relieves in spite of foreign load",
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
)

SHEDDERS = (
    AVG_SHEDDER,
    THRESHOLD_SHEDDER,
    OVERLOAD_SHEDDER,
    UNIFORM_SHEDDER,
    TRANSFER_SHEDDER,
    BALLAST_SHEDDER,
)
