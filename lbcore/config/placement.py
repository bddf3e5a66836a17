"""Settings of placement: which broker an unowned or unloaded bundle goes to.

Decides nothing. Read by `lbcore.plan.place`. Source: Pulsar 4.0.8's ServiceConfiguration, and ours
where no Pulsar key is named.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting
from lbcore.config.strategies import AVG, LEAST_LONG_TERM_MESSAGE_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """How a broker is chosen for a bundle."""

    strategy: str = setting(
        AVG,
        doc="Which rule places, by short name or Pulsar's class name. avg takes the shedder's "
        "planned destination; a bundle without one goes by least long-term message rate when "
        "count_planned is on, else anywhere.",
        pulsar="loadBalancerLoadPlacementStrategy",
        pulsar_default=LEAST_LONG_TERM_MESSAGE_RATE,
        dynamic=True,
    )
    seed: int = setting(
        0,
        doc="Seed of the hash that chooses among equally good brokers; clusters that share "
        "namespaces' names may differ in it.",
        minimum=0,
        maximum=2**32 - 1,
    )
    overloaded_threshold_percent: float = setting(
        85.0,
        doc="A broker whose weighted usage is above this is the last resort of placement.",
        unit="percent",
        minimum=0,
        pulsar="loadBalancerBrokerOverloadedThresholdPercentage",
        dynamic=True,
    )
    usage_difference_percent: float = setting(
        10.0,
        doc="least_resource_usage_with_weight takes brokers at least this far below the average; "
        "small or negative values admit hot brokers, large ones leave nobody and all are equal.",
        unit="percentage points",
        minimum=-100,
        maximum=100,
        pulsar="loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        dynamic=True,
    )
    count_planned: bool = setting(
        default=True,
        doc="Count what the same plan has already unloaded to a broker, so that the coldest does "
        "not get every bundle. Bundles that have no owner are always counted, as in Pulsar.",
        pulsar_default=False,
        dynamic=True,
    )
    heaviest_first: bool = setting(
        default=True,
        doc="Place the bundle with the highest long-term message rate first: it spreads better.",
        pulsar_default=False,
        dynamic=True,
    )
    planned_rate_floor_msg_per_s: float = setting(
        100.0,
        doc="A placed bundle counts at least this much, else every idle bundle would go to one "
        "broker; one whose load nobody knows at least as much as the mean of those that are known, "
        "where that is more, and a known one where it is less. Pulsar's default statistics of an "
        "unknown bundle are 50 msg/s in and 50 out.",
        unit="msg/s",
        minimum=0,
        pulsar_default=0.0,
        dynamic=True,
    )
    smooth_once_per_plan: bool = setting(
        default=True,
        doc="least_resource_usage_with_weight: one step of the average a plan, for brokers with a "
        "new report, instead of one for every bundle that is placed.",
        pulsar_default=False,
        dynamic=True,
    )
