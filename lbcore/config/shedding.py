"""Settings of `lbcore.plan.shed`, which takes bundles from loaded brokers.

Source: Pulsar 4.0.8's ServiceConfiguration, where `pulsar` names a key.
"""

from dataclasses import dataclass

from lbcore.config.placement import BALLAST, THRESHOLD
from lbcore.config.setting import correction, derived, setting
from lbcore.model.names import check_namespace
from lbcore.model.times import MINUTE_MS

RULES_4_0 = "4.0"
RULES_4_2 = "4.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingConfig:
    """The strategy, its thresholds, and how its observations are counted."""

    is_balancing: bool = setting(
        default=True, pulsar="loadBalancerEnabled", doc="decide at all", dynamic=True
    )
    is_shedding: bool = setting(
        default=True, pulsar="loadBalancerSheddingEnabled", doc="shed at all", dynamic=True
    )
    strategy: str = setting(
        BALLAST,
        pulsar="loadBalancerLoadSheddingStrategy",
        pulsar_default=THRESHOLD,
        doc="strategy that sheds, by short name or Pulsar's class name; see `ballast strategies`",
        dynamic=True,
    )
    rules: str = setting(
        RULES_4_0,
        choices=(RULES_4_0, RULES_4_2),
        doc="uniform: rules of this Pulsar release. 4.0 sheds a bundle that is up to 1000 (msg/s "
        "or bytes/s) above the rest of the budget, 4.2 only one that fits",
        dynamic=True,
    )
    # avg, threshold, overload, uniform judge a broker against those that may share its bundles
    by_group: bool = correction(default=True, pulsar=False)
    is_pulsar_exact: bool = setting(
        default=False,
        pulsar_default=True,
        doc="balance exactly as Pulsar, without Ballast's corrections of its algorithms"
        " (docs/differences.md lists them)",
        dynamic=True,
    )
    grace_period_ms: int = setting(
        30 * MINUTE_MS,
        pulsar="loadBalancerSheddingGracePeriodMinutes",
        pulsar_factor=MINUTE_MS,
        doc="a bundle that was shed is not shed again for this long; under ballast for two report "
        "intervals, then at a price that falls to the usual one by the end of this time",
        unit="ms",
        minimum=0,
        dynamic=True,
    )
    overloaded_threshold_percent: float = setting(
        85,
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        doc="a broker at or above this weighted usage is overloaded (overload)",
        unit="percent",
        minimum=0,
        dynamic=True,
    )
    threshold_percent: float = setting(
        10,
        pulsar="loadBalancerBrokerThresholdShedderPercentage",
        doc="threshold: points above the average from which a broker sheds",
        unit="percent",
        dynamic=True,
    )
    lower_boundary: bool = setting(
        default=False,
        pulsar="lowerBoundarySheddingEnabled",
        doc="threshold: shed also when a broker is far below the average and none far above",
    )
    min_throughput_mib_per_s: float = setting(
        10,
        pulsar="loadBalancerBundleUnloadMinThroughputThreshold",
        doc="threshold: shed nothing when less than this would move",
        unit="MiB/s",
        minimum=0,
        dynamic=True,
    )
    rate_difference_percent: float = setting(
        50,
        pulsar="loadBalancerMsgRateDifferenceShedderThreshold",
        doc="uniform: message rate of the busiest above the idlest broker; <= 0 disables",
        unit="percent",
        dynamic=True,
    )
    throughput_ratio: float = setting(
        4,
        pulsar="loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        doc="uniform: throughput of the busiest over that of the idlest broker; <= 0 disables",
        dynamic=True,
    )
    min_unload_rate_msg_per_s: float = setting(
        1_000,
        pulsar="minUnloadMessage",
        doc="uniform, avg: shed nothing by message rate below this",
        unit="msg/s",
        minimum=0,
        dynamic=True,
    )
    min_unload_throughput_bytes_per_s: float = setting(
        1_048_576,
        pulsar="minUnloadMessageThroughput",
        doc="uniform, avg: shed nothing by throughput below this",
        unit="bytes/s",
        minimum=0,
        dynamic=True,
    )
    max_unload_fraction: float = setting(
        0.5,
        pulsar="maxUnloadPercentage",
        pulsar_default=0.2,
        doc="uniform, avg: part of the difference between two brokers that may move",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    max_unload_bundles: int = setting(
        -1,
        pulsar="maxUnloadBundleNumPerShedding",
        doc="uniform: bundles shed at most in a cycle; -1 = no cap",
        unit="bundles",
        minimum=-1,
        dynamic=True,
    )
    avg_low_threshold: float = setting(
        15,
        pulsar="loadBalancerAvgShedderLowThreshold",
        doc="avg: points between two brokers' usages that count as a low hit",
        unit="points",
        dynamic=True,
    )
    avg_high_threshold: float = setting(
        40,
        pulsar="loadBalancerAvgShedderHighThreshold",
        doc="avg: points between two brokers' usages that count as a high hit, too",
        unit="points",
        dynamic=True,
    )
    avg_low_hits: int = setting(
        8,
        pulsar="loadBalancerAvgShedderHitCountLowThreshold",
        doc="avg: low hits in a row until bundles move",
        unit="hits",
        minimum=1,
        dynamic=True,
    )
    avg_high_hits: int = setting(
        2,
        pulsar="loadBalancerAvgShedderHitCountHighThreshold",
        doc="avg: high hits in a row until bundles move",
        unit="hits",
        minimum=1,
        dynamic=True,
    )
    excluded_namespaces: tuple[str, ...] = setting(
        (),
        pulsar="loadBalancerSheddingExcludedNamespaces",
        reads=check_namespace,
        doc="namespaces whose bundles are never shed",
        dynamic=True,
    )
    multi_hit: bool = setting(
        default=False,
        doc="threshold, overload, uniform: a broker sheds only after several hits in a row",
        dynamic=True,
    )
    # multi_hit: points above the average that count as a low hit
    multi_hit_low_percent: float = 10.0
    # points above the average that count as a high hit, too
    multi_hit_high_percent: float = 40.0
    # low hits in a row until a broker sheds, as proposed for ThresholdShedder
    multi_hit_low_hits: int = 5
    # high hits in a row until a broker sheds
    multi_hit_high_hits: int = 1
    # one report counts as one hit at most, however many cycles read it
    fresh_hits: bool = correction(default=True, pulsar=False)
    # moves that are decided and not reported yet count as done
    adjust_load: bool = correction(default=True, pulsar=False)
    # part of a change that reports have not shown that is kept after each report without moves
    adjust_keep: float = 0.5
    # a decided move is forgotten after this time, whatever became of it
    adjust_max_ms: int = 300_000
    max_moves_per_cycle: int = setting(
        1_000,
        pulsar_default=-1,
        doc="bundles moved at most in a cycle by shedding; -1 = no cap",
        unit="bundles",
        minimum=-1,
        dynamic=True,
    )
    # bundles taken from or given to one broker in a cycle: its clients connect again
    max_moves_per_broker: int = correction(200, pulsar=-1)
    max_moves_per_hour: int = setting(
        -1,
        doc="bundles that cycles may move within any hour, without drains and pins; -1 = no cap",
        unit="bundles",
        minimum=-1,
        dynamic=True,
    )
    max_moves_per_hour_of_tenant: int = setting(
        -1,
        doc="the same for the bundles of each tenant; -1 = no cap",
        unit="bundles",
        minimum=-1,
        dynamic=True,
    )
    # moves decided and not yet landed; -1 = no cap
    max_moves_in_flight: int = correction(2_000, pulsar=-1)
    cool_down_ms: int = setting(
        60_000,
        pulsar_default=0,
        doc="a bundle that got another owner, for whatever reason, is not shed for this long",
        unit="ms",
        minimum=0,
        dynamic=True,
    )
    # a broker that shed bundles takes no shed ones for this long; one that took them sheds none
    role_cool_down_ms: int = derived(
        60_000,
        sources=("shedding.cool_down_ms",),
        by=lambda config: config.shedding.cool_down_ms,
    )
    # most bundles that leave one broker at once because it drains or they are pinned elsewhere; a
    # drain may name another number
    max_drains_in_flight: int = 100
    # even distribution does not change the destinations that avg has planned
    keep_destination: bool = correction(default=True, pulsar=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealLoadConfig:
    """Tolerances around the ideal load, and the moves beyond them."""

    tolerance_percent: float = 8.0  # of the level: a smaller difference is no low hit
    tolerance_points: float = 1.0  # a smaller difference is no hit, however low the level is
    high_points: float = 8.0  # a broker that is this far from the level has a high hit, too
    # low hits in a row, each on a fresh report, until bundles move: noise rarely lasts so long
    low_hits: int = 3
    # high hits in a row until bundles move: one report may err
    high_hits: int = 2
    churn_budget: float = setting(
        0.15,
        doc="Part of all load that one round may move; one broker's excess, and one bundle, always "
        "may.",
        unit="part",
        minimum=0.001,
        maximum=1,
        dynamic=True,
    )
    # a bundle above this part of a level is divided on a hot broker that can't give
    split_share: float = 0.5
    max_ineffective_rounds: int = (
        3  # after so many rounds without relief a broker is left alone, which is reported
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig:
    """Transfer of bundles from the most to the least loaded broker."""

    target_std: float = setting(
        0.25,
        doc="Brokers' smoothed usages (1.0 = 100 %) may deviate this much; above it, shed.",
        unit="standard deviation of usage",
        minimum=0,
        pulsar="loadBalancerBrokerLoadTargetStd",
        dynamic=True,
    )
    hit_count_threshold: int = setting(
        3,
        doc="Shed in the next cycle after this many in a row that wanted to.",
        unit="cycles",
        minimum=0,
        pulsar="loadBalancerSheddingConditionHitCountThreshold",
        dynamic=True,
    )
    max_pairs_per_cycle: int = setting(
        3,
        doc="At most this many brokers give bundles away in one cycle.",
        unit="broker pairs",
        minimum=0,
        pulsar="loadBalancerMaxNumberOfBrokerSheddingPerCycle",
        dynamic=True,
    )
    is_destination_planned: bool = setting(
        default=True,
        doc="Name the destination and allow swaps; else only unload.",
        pulsar="loadBalancerTransferEnabled",
        dynamic=True,
    )
    # a broker above this, and above average + target_std, sheds even if the deviation is on target
    overloaded_threshold_percent: float = derived(
        85.0,
        sources=("shedding.overloaded_threshold_percent",),
        by=lambda config: config.shedding.overloaded_threshold_percent,
    )
    shedding_delay_ms: int = setting(
        180_000,
        doc="No shedding until each broker that gave bundles away reports load this long "
        "afterwards.",
        unit="ms",
        minimum=0,
        pulsar="loadBalanceSheddingDelayInSeconds",
        pulsar_factor=1000,
        dynamic=True,
    )
    load_data_ttl_ms: int = setting(
        1_800_000,
        doc="Load data older than this does not count in the statistics.",
        unit="ms",
        minimum=0,
        pulsar="loadBalancerBrokerLoadDataTTLInSeconds",
        pulsar_factor=1000,
        dynamic=True,
    )
    shed_bundles_with_policies: bool = setting(
        default=False,
        doc="Move bundles of namespaces with an isolation policy or an anti-affinity group too.",
        pulsar="loadBalancerSheddingBundlesWithPoliciesEnabled",
        dynamic=True,
    )
    count_swapped_back: bool = setting(
        default=True,
        doc="Subtract what a swap brings back from what is marked to leave. Pulsar does so only "
        "when its debug mode is on; without it the predicted deviation is too low or too high.",
        pulsar="loadBalancerDebugModeEnabled",
        pulsar_default=False,
    )
    # only bundles that may move are swapped back
    check_swapped_back: bool = correction(default=True, pulsar=False)
