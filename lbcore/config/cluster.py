"""Settings of one cluster, the quotas of its tenants, and telemetry."""

from dataclasses import dataclass

from lbcore.config.setting import setting
from lbcore.model.times import WeeklyWindow, quiet_until_ms

BALLAST = "ballast"
EXTERNAL = "external"

AUTO = "auto"
ASK = "ask"
ASK_ABOVE = "ask_above"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Authority over a cluster's ownership."""

    authority: str = setting(
        BALLAST,
        choices=(BALLAST, EXTERNAL),
        doc="ballast: its records are the ownership. external: another system (a Pulsar cluster"
        " behind the bridge) decides, what it does by itself is taken over, and silence alone"
        " moves nothing.",
    )
    observe_only: bool = setting(
        default=False,
        dynamic=True,
        doc="Dry run: plans are made, explained and recorded, and not executed. Commands still are,"
        " except under external authority. The bridge sets it, and clears it under --act.",
    )
    approval: str = setting(
        AUTO,
        choices=(AUTO, ASK, ASK_ABOVE),
        dynamic=True,
        doc="auto: a cycle's moves and splits are carried out at once. ask: they wait as a plan"
        " until somebody approves it (`ballast plan`). ask_above: they wait if the cycle moves more"
        " than approval_bundles or approval_percent. Failover, drains and pins never wait.",
    )
    approval_bundles: int = setting(
        10,
        unit="bundles",
        minimum=0,
        maximum=1_000_000,
        dynamic=True,
        doc="ask_above: a cycle that moves or splits more bundles than this waits.",
    )
    approval_percent: float = setting(
        5.0,
        unit="%",
        minimum=0.0,
        maximum=100.0,
        dynamic=True,
        doc="ask_above: a cycle that moves more than this share of the messages of an isolation"
        " group (all, without policies) waits.",
    )
    # a plan that nobody has answered for this long lapses: its loads are old, and the next cycle
    # plans again
    approval_wait_ms: int = 3_600_000
    quiet_hours: tuple[str, ...] = setting(
        (),
        dynamic=True,
        reads=WeeklyWindow.parse,
        doc="Windows of the week in which no cycle sheds or splits, each as 22:00-06:00 or mon-fri"
        " 08:00-18:00, in UTC. Failover, drains, pins, commands and plans that a person approved go"
        " on.",
    )

    def quiet_until_ms(self, now_ms: int) -> int:
        """Return the end of the current quiet hours; 0 = not in quiet hours."""
        return quiet_until_ms([WeeklyWindow.parse(text) for text in self.quiet_hours], now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Quotas of one tenant, and the most bundles that one batch changes."""

    # namespaces of a tenant; create_namespace is refused beyond it
    tenant_namespaces_max: int = 10_000
    tenant_bundles_max: int = setting(
        200_000,
        unit="bundles",
        minimum=1,
        maximum=10_000_000,
        dynamic=True,
        doc="Most bundles of a tenant, those still to be made included; create_namespace and"
        " split_bundle are refused beyond it. Splits by themselves have"
        " splitting.max_namespace_bundles.",
    )
    # created topics of a tenant that are kept, a partitioned one counted once
    tenant_topics_max: int = 150_000
    # partitions of all topics of a tenant together
    tenant_partitions_max: int = 4_194_304
    # pins, pauses, anti-affinity groups and exclusions of a tenant's namespaces and bundles
    tenant_rules_max: int = 20_000
    # bundles that one batch makes, deletes or unloads; longer batches would hold up placement
    bundles_made_max: int = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Address of the metrics endpoint, and the level of detail."""

    host: str = setting(
        "127.0.0.1",
        doc="Address of the metrics of the job and agents; reading them needs no authentication.",
    )
    bundle_metrics: bool = setting(
        False,  # noqa: FBT003 (the default)
        pulsar="exposeBundlesMetricsInPrometheus",
        doc="Metrics of each bundle, too, once a minute: five series a bundle, for small clusters.",
    )
    otel_logs: bool = setting(
        False,  # noqa: FBT003 (the default)
        doc="Log lines have the field names of OpenTelemetry's log data model: Timestamp,"
        " SeverityText, SeverityNumber, Body, and the rest as Attributes.",
    )
    debug: bool = setting(
        False,  # noqa: FBT003 (the default)
        dynamic=True,
        pulsar="loadBalancerDebugModeEnabled",
        doc="Log a line for each transition, decision, candidate and refused message of a batch,"
        " too. No decision depends on it.",
    )
