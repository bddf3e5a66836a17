"""Clusters as values, and the seeds that a short run takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.candidate_rows import write_candidates
from lbcore.config.splitting import Splitting
from lbcore.config.tree import Config
from lbcore.model.resources import COUNT
from lbcore.plan.decision import Trace
from lbcore.plan.shed.common import ShedView, owner_index
from lbcore.plan.snapshot import BrokerTable, BundleTable, Floats, Snapshot


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
    return Snapshot(cluster="c", brokers=brokers, bundles=bundles)


BYTES_PER_MESSAGE = 1_000.0
FULL_RATE = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections(Config):
    """A configuration for plans: without splits, where nothing else is said."""

    splitting: Splitting = field(default_factory=lambda: Splitting(enabled=False))


def cluster_of(bundles: Mapping[str, Sequence[float]], **columns: Any) -> Snapshot:
    """A cluster where a broker's CPU is its traffic: 100,000 msg/s are 100 %.

    bundles: broker → message rate of each of its bundles. columns: of the broker table.
    """
    names = list(bundles)
    rates = [rate for found in bundles.values() for rate in found]
    owner = [index for index, name in enumerate(names) for _ in bundles[name]]
    short = np.zeros((len(rates), 4))
    short[:, 0] = rates
    short[:, 2] = short[:, 0] * BYTES_PER_MESSAGE
    traffic = np.zeros((len(names), 4))
    np.add.at(traffic, owner, short)
    percent = np.zeros((len(names), COUNT))
    percent[:, 0] = traffic[:, 0] / FULL_RATE * 100
    table = broker_table(
        names,
        **{
            "percent": percent,
            "traffic": traffic,
            "bundle_count": np.bincount(owner, minlength=len(names)),
            "updated_at_ms": np.full(len(names), 1_000),
            **columns,
        },
    )
    made = [f"t/n{index % 7}/{index:08x}" for index in range(len(rates))]
    return snapshot(
        table,
        bundle_table(made, owner=np.array(owner, dtype=np.int64), short=short, long=short),
    )


def shed_view(snapshot: Snapshot, usage: Floats) -> ShedView:
    """The view of a snapshot; every broker is due."""
    return ShedView(
        snapshot=snapshot,
        usage=usage,
        has_new_report=np.ones(len(usage), dtype=np.bool_),
        owned=owner_index(snapshot),
        keys=snapshot.bundles.names,
    )


def check_trace(trace: Trace, cluster: Snapshot) -> None:
    """Make the rows of a plan's trace, as if each bundle had a decision; raises what that does."""
    batch = SimpleNamespace(times=SimpleNamespace(cycle=1), add_row=lambda *_: None)
    write_candidates(batch, trace, dict.fromkeys(cluster.bundles.names, "decision"))


def few(values: Iterable[Any], count: int) -> list[Any]:
    """The values as parameters, one or a tuple each; those after the first `count` are `long`."""
    return [value if at < count else _long(value) for at, value in enumerate(values)]


def _long(value: Any) -> Any:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.long)


def with_constants(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other constants, "section.name" → value."""
    for key, value in values.items():
        section, name = key.split(".")
        changed = replace(getattr(config, section), **{name: value})
        config = replace(config, **{section: changed})
    return config
