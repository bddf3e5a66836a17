"""Settings of placement: which broker an unowned or unloaded bundle goes to.

Read by `lbcore.plan.place`. Source: Pulsar 4.0.8's ServiceConfiguration, and ours where no Pulsar
key is named.
"""

from dataclasses import dataclass

from lbcore.config.setting import correction, derived, setting
from lbcore.config.strategies import BALLAST, LEAST_LONG_TERM_MESSAGE_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """Choice of a broker for a bundle."""

    strategy: str = setting(
        BALLAST,
        doc="Which rule places, by short name or Pulsar's class name. avg takes the shedder's "
        "planned destination; a bundle without one goes by least long-term message rate when "
        "is_pulsar_exact is off, else anywhere.",
        pulsar="loadBalancerLoadPlacementStrategy",
        pulsar_default=LEAST_LONG_TERM_MESSAGE_RATE,
        dynamic=True,
    )
    seed: int = 0  # chooses among equally good brokers; any number does, as long as it stays
    # above it a broker is the last resort
    overloaded_threshold_percent: float = derived(
        85.0,
        sources=("shedding.overloaded_threshold_percent",),
        by=lambda config: config.shedding.overloaded_threshold_percent,
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
    # what the plan has placed counts as the broker's load
    count_planned: bool = correction(default=True, pulsar=False)
    # the largest bundle chooses first
    heaviest_first: bool = correction(default=True, pulsar=False)
    # a placed bundle counts this much at least, Pulsar's default of an unknown one
    planned_rate_floor_msg_per_s: float = correction(100.0, pulsar=0.0)
    # a plan of many bundles smooths the usage once
    smooth_once_per_plan: bool = correction(default=True, pulsar=False)
