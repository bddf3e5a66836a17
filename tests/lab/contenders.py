"""What is compared in the lab: settings of Pulsar's brokers, and of Ballast's job beside them."""

from collections.abc import Mapping
from dataclasses import dataclass

_PACKAGE = "org.apache.pulsar.broker.loadbalance"
_MODULAR = f"{_PACKAGE}.impl.ModularLoadManagerImpl"
_EXTENSIBLE = f"{_PACKAGE}.extensions.ExtensibleLoadManagerImpl"

PULSAR_SETTINGS: Mapping[str, str] = {
    "loadManagerClassName": _MODULAR,
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",  # until traffic flows, evenly
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerSheddingGracePeriodMinutes": "1",
    "loadBalancerHostUsageCheckIntervalMinutes": "1",
    "loadBalancerOverrideBrokerNicSpeedGbps": "0.02",
    "statsUpdateInitialDelayInSecs": "10",
    "statsUpdateFrequencyInSecs": "10",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
    "loadBalancerBundleUnloadMinThroughputThreshold": "0",
    "maxUnloadPercentage": "0.5",
}
BALLAST_SETTINGS = (
    "splitting.enabled=false",
    "shedding.min_unload_rate_msg_per_s=1",
    "shedding.min_unload_throughput_bytes_per_s=1",
    "shedding.grace_period_ms=60000",
)
OVERLAYS = ("pulsar",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """pulsar: what its brokers have beside PULSAR_SETTINGS. ballast: its job's settings, or None.

    None: Pulsar sheds by itself, and nothing of Ballast runs.
    """

    title: str
    pulsar: Mapping[str, str]
    ballast: tuple[str, ...] | None = None

    @property
    def broker_settings(self) -> dict[str, str]:
        return {**PULSAR_SETTINGS, **self.pulsar}

    @property
    def job_settings(self) -> tuple[str, ...]:
        return (*BALLAST_SETTINGS, *(self.ballast or ()))


def _sheds(name: str, **more: str) -> dict[str, str]:
    return {"loadBalancerLoadSheddingStrategy": f"{_PACKAGE}.{name}", **more}


CONTENDERS: Mapping[str, Contender] = {
    "threshold": Contender(title="ThresholdShedder", pulsar=_sheds("impl.ThresholdShedder")),
    "avg": Contender(
        title="AvgShedder",
        pulsar=_sheds(
            "impl.AvgShedder", loadBalancerLoadPlacementStrategy=f"{_PACKAGE}.impl.AvgShedder"
        ),
    ),
    "uniform": Contender(title="UniformLoadShedder", pulsar=_sheds("impl.UniformLoadShedder")),
    "transfer": Contender(
        title="TransferShedder (extensible)",
        pulsar=_sheds("extensions.scheduler.TransferShedder", loadManagerClassName=_EXTENSIBLE),
    ),
    "ballast-avg": Contender(title="Ballast, avg", pulsar={}, ballast=()),
    "ballast": Contender(
        title="Ballast, ballast",
        pulsar={},
        ballast=("shedding.strategy=ballast", "placement.strategy=ballast"),
    ),
}

WAYS: Mapping[str, str] = {
    "pulsar": "Pulsar's own shutdown, its own shedder",
    "ballast": "`ballast bridge rolling-restart`",
}
"""How all brokers are restarted."""
