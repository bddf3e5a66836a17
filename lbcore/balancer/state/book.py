"""The book: what the balancer knows of each broker and of each namespace.

`balancer` works on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.state.effects import to_json
from lbcore.model.resources import COUNT, complete
from lbcore.scorer.group_update import BrokerReport
from lbcore.wire.messages import NOT_REPORTED

Floats = NDArray[np.float64]

STARTS_KEPT = 16

TEXTS = (
    "web_service_url",
    "web_service_url_tls",
    "pulsar_service_url",
    "pulsar_service_url_tls",
    "broker_version",
    "load_manager_class",
    "failure_domain",
)


ACTIVE = "active"
DRAINING = "draining"
SILENT = "silent"
FORGOTTEN = "forgotten"
"""The states of a broker that the `brokers` table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEntry:
    """A broker as its newest reports show it.

    is_silent: taken for dead; is_suspected: silent for so long that it may be dead. percent: of
    each resource; traffic: msg/s in, out, bytes/s in, out; reported_ms: time of the load report,
    0 = none of this incarnation yet. starts_ms: when it was first seen, each new incarnation, and
    when it came back from silence, newest last, the latest STARTS_KEPT; restarted_ms: the newest of
    them but for the first. died_clock_ms: the waiting clock when it was last taken for dead,
    -1 = not in this state's time; silent_ms: time of that batch while it is silent.
    offered_msg_rate: as `BrokerLoad` has it.
    """

    incarnation: str
    is_silent: bool = False
    is_suspected: bool = False
    is_draining: bool = False
    reported_ms: int = 0
    percent: tuple[float, ...] = (0.0,) * COUNT
    traffic: tuple[float, ...] = (0.0,) * 4
    weighted_max_ema: float = 1.0
    throughput_ema: float = 0.0
    topic_count: int = 0
    bundle_count: int = 0
    capacity: float = 1.0
    texts: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, Any] = field(default_factory=dict)
    starts_ms: tuple[int, ...] = ()
    restarted_ms: int = 0
    died_clock_ms: int = -1
    silent_ms: int = 0
    offered_msg_rate: float = NOT_REPORTED

    def with_report(self, report: BrokerReport, reported_ms: int) -> "BrokerEntry":
        """The entry after a load report of the same incarnation, which came at that time."""
        load = report.load
        return replace(
            self,
            is_draining=load.is_draining,
            reported_ms=reported_ms,
            percent=tuple(report.percent.tolist()),
            traffic=tuple(load.traffic.tolist()),
            weighted_max_ema=report.weighted_max_ema,
            throughput_ema=report.throughput_ema,
            topic_count=load.topic_count,
            bundle_count=load.bundle_count,
            capacity=load.capacity,
            offered_msg_rate=load.offered_msg_rate,
            texts={name: getattr(load, name) for name in TEXTS},
            listeners=dict(load.advertised_listeners),
        )

    def restarted(self, incarnation: str, now_ms: int) -> "BrokerEntry":
        """The entry at the first sign of a new start: its load unknown, its addresses the last."""
        return BrokerEntry(
            incarnation=incarnation,
            capacity=self.capacity,
            texts=self.texts,
            listeners=self.listeners,
            starts_ms=(*self.starts_ms, now_ms)[-STARTS_KEPT:],
            restarted_ms=now_ms,
            died_clock_ms=self.died_clock_ms,
        )

    def died(self, clock_ms: int, now_ms: int) -> "BrokerEntry":
        """The entry once the broker is taken for dead."""
        dead = replace(self, is_silent=True, died_clock_ms=clock_ms, silent_ms=now_ms)
        return replace(dead, is_suspected=False)

    def returned(self, now_ms: int) -> "BrokerEntry":
        """The entry of a broker that was taken for dead and is heard again, the same start."""
        starts_ms = (*self.starts_ms, now_ms)[-STARTS_KEPT:]
        return replace(self, is_silent=False, silent_ms=0, starts_ms=starts_ms, restarted_ms=now_ms)

    @property
    def demand(self) -> float:
        """Times what it serves that clients ask of it, from 1; NaN = not reported, or less."""
        served = self.traffic[0] + self.traffic[1]
        is_known = 0.0 < served <= self.offered_msg_rate
        return self.offered_msg_rate / served if is_known else math.nan

    def state(self, *, is_drained: bool) -> str:
        """The state that the `brokers` table shows. is_drained: by command, empty or not."""
        if self.is_silent:
            return SILENT
        return DRAINING if self.is_draining or is_drained else ACTIVE


SPLIT_ALGORITHM = "split_algorithm"
"""The property of a namespace that says where its bundles are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceEntry:
    """A namespace: how its topics are hashed, and the highest version its bundles ever had."""

    hash: str
    is_deleted: bool = False
    highest_version: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)


def broker_from_plain(plain: Mapping[str, Any]) -> BrokerEntry:
    """The inverse of `packing.fields_of`, also of entries that had fewer resources."""
    names = ("percent", "traffic", "starts_ms")
    tuples = {name: tuple(plain[name]) for name in names if name in plain}
    entry = BrokerEntry(**{**plain, **tuples})
    return entry if len(entry.percent) == COUNT else replace(entry, percent=complete(entry.percent))


def namespace_from_plain(plain: Mapping[str, Any]) -> NamespaceEntry:
    """The inverse of `packing.fields_of`."""
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
