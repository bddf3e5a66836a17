"""The names of strategies and load managers: ours, and the Pulsar classes they mirror.

Decides which names exist and which mean the same; what a strategy does stands in `lbcore.plan`.
Source: Pulsar 4.0.8, org.apache.pulsar.broker.loadbalance.
"""

from collections.abc import Mapping

from lbcore.config.filters import EXTENSIBLE, MODULAR
from lbcore.config.placement import (
    AVG,
    BALLAST,
    LEAST_LONG_TERM_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE_WITH_WEIGHT,
    ROUND_ROBIN,
)

SHEDDING: Mapping[str, str] = {
    AVG: "AvgShedder",
    "threshold": "ThresholdShedder",
    "overload": "OverloadShedder",
    "uniform": "UniformLoadShedder",
    "transfer": "TransferShedder",
    BALLAST: "",
}
"""Short name → Pulsar's class, "" = ours."""

PLACEMENT: Mapping[str, str] = {
    AVG: "AvgShedder",
    LEAST_LONG_TERM_MESSAGE_RATE: "LeastLongTermMessageRate",
    LEAST_RESOURCE_USAGE_WITH_WEIGHT: "LeastResourceUsageWithWeight",
    ROUND_ROBIN: "RoundRobinBrokerSelector",
    BALLAST: "",
}
"""Short name → Pulsar's class, "" = ours."""

LOAD_MANAGERS: Mapping[str, str] = {
    MODULAR: "ModularLoadManagerImpl",
    EXTENSIBLE: "ExtensibleLoadManagerImpl",
}
"""Whose order of filters → Pulsar's class of load manager."""

WITH_THEIR_OWN_PLACEMENT = (AVG, BALLAST)
"""Strategies that plan where bundles go while they shed: for both, or for neither."""


def short_name(name: str, strategies: Mapping[str, str]) -> str:
    """Our name of a strategy that is given by either name, with or without its Java package.

    A name that isn't known comes back as it is.
    """
    simple = name.rpartition(".")[2]
    found = (short for short, cls in strategies.items() if simple and simple in (short, cls))
    return next(found, name)
