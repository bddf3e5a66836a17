"""Pulsar's classes of strategies and load managers, with our names.

Decides which names mean the same. Which strategies there are, and what each does, stands in their
records (`lbcore.plan.registry`); those that are ours have no class and are not here. Source: Pulsar
4.0.8, org.apache.pulsar.broker.loadbalance.
"""

from collections.abc import Mapping

from lbcore.config.filters import EXTENSIBLE, MODULAR

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
"""Whose order of filters → Pulsar's class of load manager."""


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
    """Tell the classes that only Pulsar's extensible load manager can load."""
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
