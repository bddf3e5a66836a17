"""Small clusters for tests: a snapshot from a few columns, everything else zero or empty."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.model.resources import COUNT
from lbcore.plan.snapshot import BrokerTable, BundleTable, Snapshot


def broker_table(names: Sequence[str], **columns: Any) -> BrokerTable:
    """Brokers with the given columns; the rest are zero, fresh, not draining, capacity 1."""
    count = len(names)
    table = BrokerTable(
        names=tuple(names),
        percent=np.zeros((count, COUNT)),
        traffic=np.zeros((count, 4)),
        bundle_count=np.zeros(count, dtype=np.int64),
        topic_count=np.zeros(count, dtype=np.int64),
        weighted_max_ema=np.zeros(count),
        throughput_ema=np.zeros(count),
        updated_at_ms=np.zeros(count, dtype=np.int64),
        is_fresh=np.ones(count, dtype=np.bool_),
        is_draining=np.zeros(count, dtype=np.bool_),
        versions=("",) * count,
        load_manager_classes=("",) * count,
        failure_domains=("",) * count,
        capacity=np.ones(count),
    )
    return replace(table, **columns)


def bundle_table(names: Sequence[str], **columns: Any) -> BundleTable:
    """Unowned, movable bundles without traffic, with the given columns; namespaces by name."""
    count = len(names)
    spaces = [name.rsplit("/", 1)[0] for name in names]
    namespaces = tuple(sorted(set(spaces)))
    index = {name: i for i, name in enumerate(namespaces)}
    table = BundleTable(
        names=tuple(names),
        namespaces=namespaces,
        namespace=np.array([index[name] for name in spaces], dtype=np.int64),
        owner=np.full(count, -1, dtype=np.int64),
        short=np.zeros((count, 4)),
        long=np.zeros((count, 4)),
        topics=np.zeros(count, dtype=np.int64),
        sessions=np.zeros(count, dtype=np.int64),
        can_move=np.ones(count, dtype=np.bool_),
        versions=np.ones(count, dtype=np.int64),
    )
    return replace(table, **columns)


def snapshot(brokers: BrokerTable, bundles: BundleTable) -> Snapshot:
    """A snapshot of cluster "c"."""
    return Snapshot(cluster="c", brokers=brokers, bundles=bundles)
