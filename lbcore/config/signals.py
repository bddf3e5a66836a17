"""Settings of `lbcore.signals`: scoring of load, and the times of reports.

Source: Pulsar 4.0.8's ServiceConfiguration, where `pulsar` names a key.
"""

from dataclasses import dataclass

from lbcore.config.placement import MODULAR
from lbcore.config.setting import derived, setting
from lbcore.model.times import MINUTE_MS, SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsConfig:
    """Weights of the resources, the memory of the averages, and the report rule."""

    history_weight: float = setting(
        0.9,
        pulsar="loadBalancerHistoryResourcePercentage",
        doc="weight of history in every exponential average; the newest value has the rest",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    cpu_weight: float = setting(
        1.0,
        pulsar="loadBalancerCPUResourceWeight",
        doc="factor of the CPU's percentage in a broker's weighted usage",
        minimum=0,
        dynamic=True,
    )
    memory_weight: float = setting(
        0.0,
        pulsar="loadBalancerMemoryResourceWeight",
        doc="factor of the heap's percentage; only the extensible score uses it",
        minimum=0,
        dynamic=True,
    )
    direct_memory_weight: float = setting(
        0.0,
        pulsar="loadBalancerDirectMemoryResourceWeight",
        doc="factor of the direct memory's percentage",
        minimum=0,
        dynamic=True,
    )
    bandwidth_in_weight: float = setting(
        1.0,
        pulsar=("loadBalancerBandwidthInResourceWeight", "loadBalancerBandwithInResourceWeight"),
        pulsar_neutral=1.0,
        doc="factor of the incoming bandwidth's percentage",
        minimum=0,
        dynamic=True,
    )
    bandwidth_out_weight: float = setting(
        1.0,
        pulsar=("loadBalancerBandwidthOutResourceWeight", "loadBalancerBandwithOutResourceWeight"),
        pulsar_neutral=1.0,
        doc="factor of the outgoing bandwidth's percentage",
        minimum=0,
        dynamic=True,
    )
    top_bundles: int = setting(
        10,
        pulsar="loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        doc="bundles in a broker's top list, lightest first",
        dynamic=True,
    )
    report_change_percent: float = setting(
        10,
        pulsar="loadBalancerReportUpdateThresholdPercentage",
        doc="a change above this makes a broker report before the interval is over",
        unit="percent",
        minimum=0,
    )
    report_check_ms: int = setting(
        5_000,
        pulsar="loadBalancerReportUpdateMinIntervalMillis",
        doc="time after which a broker checks whether its load has changed enough to report",
        unit="ms",
        minimum=100,
    )
    report_max_interval_ms: int = setting(
        60_000,
        pulsar="loadBalancerReportUpdateMaxIntervalMinutes",
        pulsar_factor=MINUTE_MS,
        pulsar_default=15 * MINUTE_MS,
        doc="longest time between two reports of a broker",
        unit="ms",
        minimum=1_000,
    )
    # True: report_change_percent is about the weighted usage, as in the modular manager; False:
    # about the usage of the fullest resource
    report_by_weight: bool = derived(
        default=False,
        sources=("shedding.is_pulsar_exact", "filters.pipeline"),
        by=lambda config: config.shedding.is_pulsar_exact and config.filters.pipeline == MODULAR,
    )
    bundle_report_interval_ms: int = setting(
        0,
        pulsar="statsUpdateFrequencyInSecs",
        pulsar_factor=SECOND_MS,
        pulsar_default=MINUTE_MS,
        doc="time between two reports of a broker's bundles, even if its own load has not changed,"
        " as with the extensible manager; 0 = with each report of its load, and only then",
        unit="ms",
        minimum=0,
    )
    usage_window_ms: int = setting(
        0,
        doc="a broker's usages are means over this time, computed at its end and repeated until the"
        " next; 0 = they are of the moment",
        unit="ms",
        minimum=0,
        dynamic=True,
    )

    @property
    def longest_silence_ms(self) -> int:
        """Longest time, ms, between two reports of a broker's load, or of its bundles."""
        return max(self.report_max_interval_ms, self.bundle_report_interval_ms)

    @property
    def usage_lag_ms(self) -> int:
        """Delay, ms, from a change until a report shows all of it in the usages.

        Worked: means over 60 s, taken every 60 s. A move lands at 0:01; the mean taken at 1:00 has
        a second of the old load in it, and is repeated until 2:00.
        """
        return 2 * self.usage_window_ms
