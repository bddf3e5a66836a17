"""Load over time, imbalance, its floor and the hottest bundles, from load_history.

The floor is a proven lower bound of the imbalance of whole bundles (`lbcore.bounds`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lbcore.bounds.moves import Brokers, least_imbalance
from lbcore.model.resources import local_max
from lbcore.plan.groups import members_by_group
from lbcore.signals.shown_load import imbalance

Row = Mapping[str, Any]

_CPU, _MEMORY = 0, 1
HOTTEST = 15
_OF_BUNDLES = (
    "bundles",
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
    "topics",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Broker by time; None where a broker said nothing.

    percent: the highest usage of a resource but memory; msg_rates: msg/s in and out.
    imbalance, floor: most over mean, and the least that it can be by moving; 1.0 = even. Each is
    that of the isolation group where it is highest. groups: broker → the first broker of its
    group, by its newest row; empty where all brokers are one.
    """

    times_ms: tuple[int, ...]
    brokers: tuple[str, ...]
    percent: Mapping[str, tuple[float | None, ...]]
    msg_rates: Mapping[str, tuple[float | None, ...]]
    bundles: Mapping[str, int]
    imbalance: tuple[float | None, ...]
    floor: tuple[float | None, ...]
    groups: Mapping[str, str] = field(default_factory=dict)

    def group_of(self, broker: str) -> tuple[str, ...]:
        """The brokers among which this one's load can be evened out, in name order."""
        if not self.groups:
            return self.brokers
        group = self.groups.get(broker)
        return tuple(name for name in self.brokers if group and self.groups.get(name) == group)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotBundle:
    """A bundle as last reported. share: of its broker's msg/s, 0 to 1."""

    bundle: str
    broker: str
    msg_rate: float
    bytes_per_s: float
    topics: int
    share: float


def loads_of(rows: Sequence[Row]) -> Loads:
    """The loads of one cluster's rows, in any order. O(rows × bundles)."""
    times = sorted({int(row["minute_ms"]) for row in rows})
    brokers = sorted({str(row["broker"]) for row in rows})
    at = {(str(row["broker"]), int(row["minute_ms"])): row for row in rows}
    values, floors = [], []
    for time in times:
        parts = _by_group([at[name, time] for name in brokers if (name, time) in at])
        uneven = [imbalance(map(_rate, part)) for part in parts]
        known = [part for part, value in zip(parts, uneven, strict=True) if value is not None]
        values.append(max((value for value in uneven if value is not None), default=None))
        floors.append(max(map(_least_imbalance, known), default=None))
    last = _newest(rows)
    counts = Counter(hot.broker for hot in _as_last_reported(rows).values())
    groups = {name: group for name in brokers if (group := last[name].get("broker_group"))}
    return Loads(
        times_ms=tuple(times),
        brokers=tuple(brokers),
        percent=_series(brokers, times, at, lambda row: local_max(row["percent"])),
        msg_rates=_series(brokers, times, at, _rate),
        bundles={name: counts[name] for name in brokers},
        imbalance=tuple(values),
        floor=tuple(floors),
        groups=groups,
    )


def _by_group(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each isolation group.

    Those of no group only where there are no others.
    """
    names = [str(row["broker"]) for row in rows]
    groups = {
        name: group
        for name, row in zip(names, rows, strict=True)
        if (group := row.get("broker_group"))
    }
    return [[rows[at] for at in found] for found in members_by_group(names, groups).values()]


def hottest_bundles(rows: Sequence[Row]) -> list[HotBundle]:
    """Return the bundles with the most msg/s as last reported, hottest first."""
    found = _as_last_reported(rows).values()
    return sorted(found, key=lambda hot: (-hot.msg_rate, hot.bundle))[:HOTTEST]


def _as_last_reported(rows: Sequence[Row]) -> dict[str, HotBundle]:
    """Return each bundle as in the newest row that has it: brokers may be gone."""
    newest = sorted(_newest(rows).values(), key=lambda row: int(row["minute_ms"]))
    return {hot.bundle: hot for row in newest for hot in _hot_of(row)}


def last_known(series: Sequence[float | None]) -> float | None:
    """The newest value that is one."""
    return next((value for value in reversed(series) if value is not None), None)


def _newest(rows: Sequence[Row]) -> dict[str, Row]:
    """Each broker's newest row."""
    return {row["broker"]: row for row in sorted(rows, key=lambda row: int(row["minute_ms"]))}


def _hot_of(row: Row) -> list[HotBundle]:
    total = _rate(row)
    return [
        HotBundle(
            bundle=name,
            broker=row["broker"],
            msg_rate=rate_in + rate_out,
            bytes_per_s=bytes_in + bytes_out,
            topics=int(topics),
            share=(rate_in + rate_out) / total if total else 0.0,
        )
        for name, rate_in, rate_out, bytes_in, bytes_out, topics in zip(
            *(row[column] for column in _OF_BUNDLES), strict=True
        )
    ]


def _series(
    brokers: Sequence[str], times: Sequence[int], at: Mapping[tuple[str, int], Row], of: Any
) -> dict[str, tuple[float | None, ...]]:
    return {
        name: tuple(of(at[name, time]) if (name, time) in at else None for time in times)
        for name in brokers
    }


def _rates(row: Row) -> list[float]:
    pairs = zip(row["msg_rate_in"], row["msg_rate_out"], strict=True)
    return [rate_in + rate_out for rate_in, rate_out in pairs]


def _least_imbalance(rows: Sequence[Row]) -> float:
    """Return the floor of a group whose brokers are alike, without foreign load."""
    weights = np.array([rate for row in rows for rate in _rates(row)], dtype=np.float64)
    brokers = Brokers(capacity=np.ones(len(rows)), foreign=np.zeros(len(rows)))
    return least_imbalance(weights, brokers)


def _rate(row: Row) -> float:
    return math.fsum(_rates(row))
