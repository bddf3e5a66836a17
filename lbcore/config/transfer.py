"""Settings of the transfer shedder (Pulsar's TransferShedder).

Read by `lbcore.plan.shed.transfer`. Source: Pulsar 4.0.8's ServiceConfiguration.
"""

from dataclasses import dataclass

from lbcore.config.setting import correction, derived, setting


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
        doc="Act in the cycle after this many consecutive ones that wanted to.",
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
    # above it, and above average + target_std, a broker sheds although std is on target
    overloaded_threshold_percent: float = derived(
        85.0,
        sources=("shedding.overloaded_threshold_percent",),
        by=lambda config: config.shedding.overloaded_threshold_percent,
    )
    shedding_delay_ms: int = setting(
        180_000,
        doc="No cycle while a broker's load data is younger than this after it gave bundles away.",
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
    # the prediction counts a bundle that is swapped back
    check_swapped_back: bool = correction(default=True, pulsar=False)
