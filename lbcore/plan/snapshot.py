"""What a planning cycle sees: brokers and bundles as arrays, in the order that decides ties.

Decides nothing. Built by `machines.balancer` (name order) and by tests (the case's order); read by
every phase of the plan. Brokers are referred to by their index in `BrokerTable`, bundles by their
index in `BundleTable`; -1 is "none". Source: ours.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTable:
    """The active brokers, n rows.

    percent: float64[n, 5], each resource's usage in percent of its limit (cpu, memory,
    directMemory, bandwidthIn, bandwidthOut), computed in single precision and widened.
    traffic: float64[n, 4], broker totals (msg/s in, msg/s out, bytes/s in, bytes/s out).
    bundle_count: all bundles the broker reports, filtered or not.
    weighted_max_ema, throughput_ema, updated_at_ms: BrokerLoadData's, for the extensible rules.
    is_fresh: has a report newer than the one judged last (design: a hit is a fresh observation).
    """

    names: tuple[str, ...]
    percent: Floats
    traffic: Floats
    bundle_count: Ints
    topic_count: Ints
    weighted_max_ema: Floats
    throughput_ema: Floats
    updated_at_ms: Ints
    is_fresh: Bools
    is_draining: Bools
    versions: tuple[str, ...]
    load_manager_classes: tuple[str, ...]
    failure_domains: tuple[str, ...]
    capacity: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTable:
    """The bundles, m rows.

    namespace: index into `namespaces`. owner: broker index, -1 = unowned.
    short, long: float64[m, 4], short- and long-term averages in the order of RATE_IN...
    topics, sessions: last reported counts. can_move: False while in flight, cooling down, pinned,
    recently unloaded, or its namespace is excluded or a system one.
    versions: the ownership record's version id (placement's deterministic choice uses it).
    """

    names: tuple[str, ...]
    namespaces: tuple[str, ...]
    namespace: Ints
    owner: Ints
    short: Floats
    long: Floats
    topics: Ints
    sessions: Ints
    can_move: Bools
    versions: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a plan is made from, besides its own state and the configuration."""

    cluster: str
    brokers: BrokerTable
    bundles: BundleTable
