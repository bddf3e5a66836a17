"""The book: what the balancer knows of each broker and of each namespace.

Decides nothing; `balancer` works on it. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.machines.effects import to_json
from lbcore.machines.group_update import BrokerReport

Floats = NDArray[np.float64]

TEXTS = (
    "web_service_url",
    "web_service_url_tls",
    "pulsar_service_url",
    "pulsar_service_url_tls",
    "broker_version",
    "load_manager_class",
    "failure_domain",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEntry:
    """A broker as its newest reports show it.

    is_silent: taken for dead. percent: of each resource; traffic: msg/s in, out, bytes/s in, out;
    reported_ms: Kafka's time of the load report, 0 = none of this incarnation yet.
    """

    incarnation: str
    is_silent: bool = False
    is_draining: bool = False
    reported_ms: int = 0
    percent: tuple[float, ...] = (0.0,) * 5
    traffic: tuple[float, ...] = (0.0,) * 4
    weighted_max_ema: float = 1.0
    throughput_ema: float = 0.0
    topic_count: int = 0
    bundle_count: int = 0
    capacity: float = 1.0
    texts: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, Any] = field(default_factory=dict)

    def with_report(self, report: BrokerReport) -> "BrokerEntry":
        """The entry after a load report of the same incarnation."""
        load = report.load
        return BrokerEntry(
            incarnation=self.incarnation,
            is_silent=self.is_silent,
            is_draining=load.is_draining,
            reported_ms=report.reported_ms,
            percent=tuple(report.percent.tolist()),
            traffic=tuple(load.traffic.tolist()),
            weighted_max_ema=report.weighted_max_ema,
            throughput_ema=report.throughput_ema,
            topic_count=load.topic_count,
            bundle_count=load.bundle_count,
            capacity=load.capacity,
            texts={name: getattr(load, name) for name in TEXTS},
            listeners=dict(load.advertised_listeners),
        )

    def restarted(self, incarnation: str) -> "BrokerEntry":
        """The entry at the first sign of a new start: its load unknown, its addresses the last."""
        return BrokerEntry(
            incarnation=incarnation,
            capacity=self.capacity,
            texts=self.texts,
            listeners=self.listeners,
        )

    @property
    def state(self) -> str:
        """The state that the `brokers` table shows."""
        if self.is_silent:
            return "silent"
        return "draining" if self.is_draining else "active"

    def shown(self) -> tuple[Any, ...]:
        """What the `brokers` table shows; a change of it is written."""
        return (self.incarnation, self.state, self.texts, self.listeners, self.capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceEntry:
    """A namespace: how its topics are hashed, and the highest version its bundles ever had."""

    hash: str
    is_deleted: bool = False
    highest_version: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)


def to_plain(entry: BrokerEntry | NamespaceEntry) -> dict[str, Any]:
    """The entry as JSON-able values."""
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def broker_from_plain(plain: Mapping[str, Any]) -> BrokerEntry:
    """The inverse of `to_plain`."""
    tuples = {name: tuple(plain[name]) for name in ("percent", "traffic")}
    return BrokerEntry(**{**plain, **tuples})


def namespace_from_plain(plain: Mapping[str, Any]) -> NamespaceEntry:
    """The inverse of `to_plain`."""
    return NamespaceEntry(**plain)


def namespace_row(name: str, entry: NamespaceEntry) -> dict[str, Any]:
    """A namespace as a row of the `namespaces` table."""
    return {
        "namespace": name,
        "hash": entry.hash,
        "is_deleted": entry.is_deleted,
        "highest_version": entry.highest_version,
        "properties": to_json(entry.properties),
    }
