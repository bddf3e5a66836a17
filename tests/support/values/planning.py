"""What planner tests share: a configuration of sections, and clusters where load is traffic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbcore.config.splitting import Splitting
from lbcore.config.tree import Config
from lbcore.model.resources import COUNT
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import broker_table, bundle_table, snapshot

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
