"""What the cases of several families share: calls, the load view that they change, Java's order.

`calls_of` unrolls `calls` and `times`; `LoadView` holds brokers, bundles and recently unloaded
bundles from call to call; `java_hash_order` is the iteration order of a java.util.HashMap.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
TRAFFIC = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
STATS = (*TRAFFIC, "topics", "consumerCount", "producerCount", "cacheSize")
MIN_TABLE = 16
LOAD_FACTOR = 0.75
HASH_MASK = 0xFFFFFFFF
SYSTEM_NAMESPACES = (
    re.compile(r"pulsar/[^/]+/[^:]+:\d+"),
    re.compile(r"pulsar/[^:]+:\d+"),
    re.compile(r"sla-monitor/[^/]+/[^:]+:\d+"),
)


def calls_of(case: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """(call, is_repetition) for each entry of the result.

    Without `calls` the case itself is the only call. A repetition made by `times` must not apply
    the call's changes again.
    """
    for call in case.get("calls", [case]):
        for repetition in range(call.get("times", 1)):
            yield call, repetition > 0


@dataclass(slots=True)
class LoadView:
    """Brokers and bundles as one case's calls have left them, in the order of the input."""

    brokers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    bundles: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    recently_unloaded: set[str] = field(default_factory=set)

    def apply(self, call: Mapping[str, Any]) -> None:
        """`brokers` and `bundles` replace the whole list, `update` changes it."""
        if "brokers" in call:
            self.brokers = {broker["name"]: broker for broker in call["brokers"]}
        if "bundles" in call:
            self.bundles = dict(call["bundles"])
        if "recentlyUnloadedBundles" in call:
            self.recently_unloaded = set(call["recentlyUnloadedBundles"])
        update = call.get("update", {})
        for name in update.get("removeBrokers", ()):
            self.brokers.pop(name, None)
        for name in update.get("removeBundles", ()):
            self.bundles.pop(name, None)
        self.brokers.update({broker["name"]: broker for broker in update.get("brokers", ())})
        self.bundles.update(update.get("bundles", {}))


def resources(broker: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Usage and limit, float64[5] each in the order of RESOURCES; absent = 0/0."""
    given = [broker.get(name) or {} for name in RESOURCES]
    usage = np.array([resource.get("usage", 0) for resource in given], dtype=np.float64)
    limit = np.array([resource.get("limit", 0) for resource in given], dtype=np.float64)
    return usage, limit


def numbers(given: Mapping[str, Any], names: Iterable[str]) -> NDArray[np.float64]:
    """The named numbers of a JSON object, float64; missing ones are 0."""
    return np.array([given.get(name, 0) or 0 for name in names], dtype=np.float64)


def java_string_hash(text: str) -> int:
    """java.lang.String.hashCode as an unsigned 32-bit number (over UTF-16 units)."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & HASH_MASK
    return value


def java_hash_order(names: Iterable[str]) -> list[str]:
    """The iteration order of a java.util.HashMap into which the names were put in this order.

    The table doubles when more than 3/4 full; a name's bucket is its hash xor the hash's upper
    half, modulo the table; within a bucket the order of insertion stays. A bucket of more than
    eight names in a table of 64 or more becomes a tree and may put another one first; names that
    collide like that are not known to occur.
    """
    unique = list(dict.fromkeys(names))
    table = MIN_TABLE
    while len(unique) > LOAD_FACTOR * table:
        table *= 2

    def bucket(name: str) -> int:
        hashed = java_string_hash(name)
        return (hashed ^ hashed >> 16) & (table - 1)

    return sorted(unique, key=bucket)


def is_system_namespace(namespace: str) -> bool:
    """Whether a namespace is a broker's heartbeat (v1, v2) or SLA monitor, in Pulsar's patterns."""
    return any(pattern.fullmatch(namespace) for pattern in SYSTEM_NAMESPACES)
