"""Settings of what the processes say of themselves: metrics and logs.

And nothing that is decided depends on it. With Pulsar's switch for metrics of bundles as an alias.
"""

from dataclasses import dataclass

from lbcore.config.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Address of the metrics endpoint, and the level of detail."""

    host: str = setting(
        "127.0.0.1",
        doc="Address at which the job and agents give out metrics; who reaches it may read them.",
    )
    bundle_metrics: bool = setting(
        False,  # noqa: FBT003 (the default)
        pulsar="exposeBundlesMetricsInPrometheus",
        doc="Metrics of each bundle, too, once a minute: five series a bundle, for small clusters.",
    )
    debug: bool = setting(
        False,  # noqa: FBT003 (the default)
        dynamic=True,
        pulsar="loadBalancerDebugModeEnabled",
        doc="Log a line for each transition, decision, candidate and refused message of a batch,"
        " too. No decision depends on it.",
    )
