"""Settings of bundles and splits: how many at first, when to split, and where.

Read by the split phase, by `create_namespace` and by the split command. Source: Pulsar 4.0.8's
ServiceConfiguration, where `pulsar` names a key.
"""

from dataclasses import dataclass

from lbcore.config.placement import MODULAR
from lbcore.config.setting import correction, derived, setting

MEBIBYTE = 1_048_576

RANGE = "range_equally_divide"
TOPIC_COUNT = "topic_count_equally_divide"
SPECIFIED_POSITIONS = "specified_positions_divide"
FLOW_OR_QPS = "flow_or_qps_equally_divide"
SPECIFIED_POSITIONS_FORCED = "specified_positions_divide_force"

ALGORITHMS = (RANGE, TOPIC_COUNT, SPECIFIED_POSITIONS, FLOW_OR_QPS)

BY_REASON = "by_reason"
DEFAULT_ALGORITHM = "default"
SHORT_TERM = "short"
LONG_TERM = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """Conditions of a bundle split, its number of parts and its boundaries."""

    default_bundles: int = setting(
        4,
        doc="Bundles of a namespace that is made without a number of its own. Too few leave "
        "brokers idle: take several times the number of brokers.",
        unit="bundles",
        minimum=1,
        maximum=1 << 32,
        pulsar="defaultNumberOfNamespaceBundles",
        dynamic=True,
    )
    algorithm: str = setting(
        RANGE,
        doc="Where a split that names no algorithm cuts the bundle.",
        choices=ALGORITHMS,
        pulsar="defaultNamespaceBundleSplitAlgorithm",
        dynamic=True,
    )
    supported_algorithms: tuple[str, ...] = setting(
        ALGORITHMS,
        doc="Algorithms that splits may take: a command that names another one is refused, and an "
        "automatic split takes `algorithm` instead.",
        pulsar="supportedNamespaceBundleSplitAlgorithms",
        dynamic=True,
    )
    # automatic splits: by_reason = the reason of the split decides where; default = `algorithm`
    automatic_algorithm: str = correction(BY_REASON, pulsar="default")
    flow_or_qps_tolerance_percent: float = setting(
        10.0,
        doc="Split no bundle by flow_or_qps_equally_divide while both its rates are less than this "
        "above their limits.",
        unit="percent",
        minimum=0,
        pulsar="flowOrQpsDifferenceThresholdPercentage",
        dynamic=True,
    )
    enabled: bool = setting(
        default=True,
        doc="Split bundles automatically; a split command works regardless.",
        pulsar="loadBalancerAutoBundleSplitEnabled",
        dynamic=True,
    )
    auto_unload_split_bundles: bool = setting(
        default=True,
        doc="Place the children of an automatic split at once, instead of leaving them with the "
        "broker that was too busy.",
        pulsar="loadBalancerAutoUnloadSplitBundlesEnabled",
        dynamic=True,
    )
    max_topics: int = setting(
        1_000,
        doc="A bundle with more topics than this is split.",
        unit="topics",
        minimum=0,
        pulsar="loadBalancerNamespaceBundleMaxTopics",
        dynamic=True,
    )
    max_sessions: int = setting(
        1_000,
        doc="A bundle with more producers and consumers together is split; 0 or -1 = no limit.",
        unit="sessions",
        minimum=-1,
        pulsar="loadBalancerNamespaceBundleMaxSessions",
        dynamic=True,
    )
    max_msg_rate_per_s: int = setting(
        30_000,
        doc="A bundle with a higher message rate, in and out together, is split.",
        unit="msg/s",
        minimum=0,
        pulsar="loadBalancerNamespaceBundleMaxMsgRate",
        dynamic=True,
    )
    max_throughput_bytes_per_s: int = setting(
        100 * MEBIBYTE,
        doc="A bundle with a higher throughput, in and out together, is split.",
        unit="bytes/s",
        minimum=0,
        pulsar="loadBalancerNamespaceBundleMaxBandwidthMbytes",
        pulsar_factor=MEBIBYTE,
        dynamic=True,
    )
    # averages that the rate limits are for: short ones follow a hotspot in minutes, long in hours
    averages: str = derived(
        SHORT_TERM,
        sources=("shedding.is_pulsar_exact", "filters.pipeline"),
        by=lambda config: (
            LONG_TERM
            if config.shedding.is_pulsar_exact and config.filters.pipeline == MODULAR
            else SHORT_TERM
        ),
    )
    hit_count_threshold: int = setting(
        3,
        doc="A bundle is split when it was over a limit in more than this many fresh observations "
        "in a row; 0 splits at the first.",
        unit="observations",
        minimum=0,
        pulsar=(
            "loadBalancerNamespaceBundleSplitConditionHitCountThreshold",
            "loadBalancerNamespaceBundleSplitConditionThreshold",
        ),
        dynamic=True,
    )
    max_namespace_bundles: int = setting(
        128,
        doc="Most bundles that automatic splits give a namespace.",
        unit="bundles",
        minimum=1,
        pulsar="loadBalancerNamespaceMaximumBundles",
        dynamic=True,
    )
    max_splits_per_cycle: int = setting(
        10,
        doc="Most automatic splits that one cycle decides, the worst bundles first.",
        unit="bundles",
        minimum=1,
        pulsar="loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        dynamic=True,
    )
    merge_enabled: bool = setting(
        default=False,
        doc="Merge neighbours that are cold for long, where splits have given a namespace more "
        "bundles than it was created with; a merge command works regardless.",
        dynamic=True,
    )
    # two bundles are merged if neither has moved for this long: averages reach back over hours
    merge_after_ms: int = 7_200_000
    # merges that begin in one cycle, the coldest bundles first: each closes and opens topics
    max_merges_per_cycle: int = 1
    # children of one split
    max_children: int = correction(8, pulsar=2)
    # a split command with more children without a known topic is probably a mistake: needs force
    max_empty_children: int = 2
    # no split that leaves all load in one child
    require_division: bool = correction(default=True, pulsar=False)
