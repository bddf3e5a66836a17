"""Settings of placement and filters, and the classes of Pulsar's strategies.

`SHEDDING` and `PLACEMENT` map Pulsar's class names to Ballast's short names; `lbcore.plan.registry`
says what each strategy does. Source: Pulsar 4.0.8, ServiceConfiguration where a key is named, and
org.apache.pulsar.broker.loadbalance.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lbcore.config.setting import correction, derived, setting

MODULAR = "modular"
EXTENSIBLE = "extensible"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """Limits and switches of the filters, and the order they run in."""

    pipeline: str = setting(
        MODULAR,
        doc="Whose order of filters and fallbacks: Pulsar's modular or its extensible manager's.",
        choices=(MODULAR, EXTENSIBLE),
        pulsar="loadManagerClassName",
        dynamic=True,
    )
    load_manager_class: str = setting(
        "",
        doc="Only brokers that advertise this load manager class take bundles; '' = any. For a "
        "Pulsar cluster that changes its manager: brokers of Ballast's own advertise none.",
        dynamic=True,
    )
    max_topics_per_broker: int = setting(
        50_000,
        doc="A broker with more topics (extensible pipeline: with as many) takes no bundle.",
        unit="topics",
        minimum=1,
        pulsar="loadBalancerBrokerMaxTopics",
        dynamic=True,
    )
    distribute_evenly: bool = setting(
        default=True,
        doc="Modular: only brokers with the fewest bundles of the bundle's namespace take it.",
        pulsar="loadBalancerDistributeBundlesEvenlyEnabled",
        dynamic=True,
    )
    prefer_later_versions: bool = setting(
        default=False,
        doc="Only brokers of the latest version take bundles; off while any version is unreadable.",
        pulsar="preferLaterVersions",
        dynamic=True,
    )
    failure_domains: bool = setting(
        default=False,
        doc="Spread the namespaces of an anti-affinity group over failure domains first.",
        pulsar="failureDomainsEnabled",
        dynamic=True,
    )
    # starts of a broker within this time count as flapping
    flap_window_ms: int = 600_000
    flap_starts: int = setting(
        3,
        doc="A broker that started this often within ten minutes takes no bundle; 0 = off.",
        unit="starts",
        minimum=0,
        pulsar_default=0,
        dynamic=True,
    )


AVG = "avg"
BALLAST = "ballast"
THRESHOLD = "threshold"
OVERLOAD = "overload"
UNIFORM = "uniform"
TRANSFER = "transfer"
LEAST_LONG_TERM_MESSAGE_RATE = "least_long_term_message_rate"
LEAST_RESOURCE_USAGE_WITH_WEIGHT = "least_resource_usage_with_weight"
ROUND_ROBIN = "round_robin"

SHEDDING: Mapping[str, str] = {
    AVG: "AvgShedder",
    THRESHOLD: "ThresholdShedder",
    OVERLOAD: "OverloadShedder",
    UNIFORM: "UniformLoadShedder",
    TRANSFER: "TransferShedder",
}
"""Short name → Pulsar's class."""

PLACEMENT: Mapping[str, str] = {
    AVG: "AvgShedder",
    LEAST_LONG_TERM_MESSAGE_RATE: "LeastLongTermMessageRate",
    LEAST_RESOURCE_USAGE_WITH_WEIGHT: "LeastResourceUsageWithWeight",
    ROUND_ROBIN: "RoundRobinBrokerSelector",
}
"""Short name → Pulsar's class."""

LOAD_MANAGERS: Mapping[str, str] = {
    MODULAR: "ModularLoadManagerImpl",
    EXTENSIBLE: "ExtensibleLoadManagerImpl",
}
"""Filter pipeline → Pulsar's class of load manager."""


_PACKAGE = "org.apache.pulsar.broker.loadbalance"
_OF_EXTENSIONS: Mapping[str, str] = {
    "TransferShedder": f"{_PACKAGE}.extensions.scheduler.TransferShedder",
    "LeastResourceUsageWithWeight": f"{_PACKAGE}.extensions.strategy.LeastResourceUsageWithWeight",
    "ExtensibleLoadManagerImpl": f"{_PACKAGE}.extensions.ExtensibleLoadManagerImpl",
}
_OF_BOTH = ("LeastResourceUsageWithWeight",)


CHURN_BY_ISOLATION = (
    "AvgShedder pairs brokers of different isolation groups, whose bundles come back: six "
    "balanced brokers beside two idle reserved ones made 188 moves in 90 minutes without end "
    "(ballast: none), a busy group beside an idle one 120 (ballast: 8)"
)
"""A warning where isolation policies meet AvgShedder under Pulsar's rules."""


def java_class(simple: str) -> str:
    """The full name of one of Pulsar's classes of balancing."""
    return _OF_EXTENSIONS.get(simple, f"{_PACKAGE}.impl.{simple}")


def needs_extensions(simple: str) -> bool:
    """Return True for classes that only Pulsar's extensible load manager can load."""
    return simple in _OF_EXTENSIONS and simple not in _OF_BOTH


def short_name(name: str, classes: Mapping[str, str]) -> str:
    """Return our name of a strategy, given by either name.

    With or without Pulsar's package. A name that Pulsar doesn't have comes back as it is: a class
    of the same simple name in another package is somebody's own.
    """
    for short, simple in classes.items():
        known = {short, simple, java_class(simple)}
        if simple in _OF_BOTH:
            known.add(f"{_PACKAGE}.impl.{simple}")
        if name in known:
            return short
    return name


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
        doc="With least_resource_usage_with_weight, brokers at least this far below the average "
        "take bundles; small or negative values admit hot brokers, large ones admit none, and "
        "then all count as equal.",
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
