"""Load as status, console, `top` and explain show it: usage, score, imbalance.

A broker's load is its newest row of `load_history`. Usage is the weighted maximum over its
resources, score is the same smoothed. Imbalance is the highest over the mean of the live brokers'
message rates, in and out; with several isolation groups, that of the worst. Scenarios, whose
brokers' capacity is known, take it of loads in percent. The job writes usage by `usage_of`, so
metrics, tables and SQL have the same numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import complete
from lbcore.signals.usage import weighted_usage


def imbalance(broker_loads: Iterable[float]) -> float | None:
    """The maximum over the mean: [30, 10, 20] gives 1.5. None without brokers or load."""
    loads = list(broker_loads)
    total = math.fsum(loads)
    return max(loads) * len(loads) / total if loads and total > 0.0 else None


def floor_adjusted_imbalance(broker_loads: Iterable[float], hottest_bundle: float) -> float | None:
    """The maximum over max(mean, hottest bundle): what no move can undo is left out.

    Loads [30, 10, 20] with a bundle of 25 give 1.2. None without brokers or load.
    """
    loads = list(broker_loads)
    floor = max(math.fsum(loads) / len(loads), hottest_bundle) if loads else 0.0
    return max(loads) / floor if floor > 0.0 else None


def worst_of(values: Iterable[float | None]) -> float | None:
    """The highest of the values that are known; None without any."""
    return max((value for value in values if value is not None), default=None)


Row = Mapping[str, Any]

SHOWN_MS = 600_000
"""Time a row is shown, ms; a broker that is heard has one row a minute."""
GROUPS_SHOWN = 10
_NOT_HEARD = frozenset({"silent", "forgotten"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLoad:
    """A live broker's load. usage, score: 1.0 = 100 %; msg_rate: msg/s in and out.

    reported_ms: when the broker said so; of a row of an older version, the interval's start.
    group: the first broker of its group; "": all are one group, or it is in none. row: of
    `load_history`.
    """

    broker: str
    usage: float
    score: float
    msg_rate: float
    reported_ms: int
    group: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """An isolation group.

    group: its first broker, "" for all. brokers: live ones, in name order. mean: of their usages,
    1.0 = 100 %. imbalance: of their message rates, None without load.
    """

    group: str
    brokers: tuple[str, ...]
    mean: float
    imbalance: float | None


def shown_loads(
    brokers: Iterable[Row], load: Iterable[Row], signals: SignalsConfig, now_ms: int
) -> dict[str, ShownLoad]:
    """Return broker → newest load of the live brokers.

    The load of a dead one is nobody's. Rows in any order, those of load_history newer than SHOWN_MS
    count. In name order. O(rows log rows).
    """
    heard = {str(row["broker"]) for row in brokers if row["state"] not in _NOT_HEARD}
    recent = [
        row for row in load if row["broker"] in heard and row["minute_ms"] >= now_ms - SHOWN_MS
    ]
    newest = {str(row["broker"]): row for row in sorted(recent, key=itemgetter("minute_ms"))}
    return {name: _shown(name, newest[name], signals) for name in sorted(newest)}


def _shown(broker: str, row: Row, signals: SignalsConfig) -> ShownLoad:
    usage, reported_ms = row.get("usage"), row.get("reported_ms")
    return ShownLoad(
        broker=broker,
        usage=usage_of(row["percent"], signals) if usage is None else float(usage),
        score=float(row["score"]),
        msg_rate=float(sum(row["traffic"][:2])),
        reported_ms=int(row["minute_ms"] if reported_ms is None else reported_ms),
        group=row.get("broker_group") or "",
        row=row,
    )


def usage_of(percent: Sequence[float], signals: SignalsConfig) -> float:
    """A broker's usage by the percentages of its resources; 1.0 = 100 %."""
    return usages_of([percent], signals)[0]


def usages_of(percents: Sequence[Sequence[float]], signals: SignalsConfig) -> list[float]:
    """The usage of each of some brokers. O(brokers)."""
    if not percents:
        return []
    found = np.array([complete(percent) for percent in percents], dtype=np.float64)
    usages: list[float] = weighted_usage(found, signals).tolist()
    return usages


def group_loads(loads: Mapping[str, ShownLoad]) -> tuple[GroupLoad, ...]:
    """Return the isolation groups, by their first brokers; one of all by default."""
    found: dict[str, list[ShownLoad]] = {}
    for load in loads.values():
        found.setdefault(load.group, []).append(load)
    if len(found) > 1:
        found.pop("", None)
    return tuple(
        GroupLoad(
            group=group,
            brokers=tuple(one.broker for one in found[group]),
            mean=sum(one.usage for one in found[group]) / len(found[group]),
            imbalance=imbalance(one.msg_rate for one in found[group]),
        )
        for group in sorted(found)
    )


def imbalance_of(loads: Mapping[str, ShownLoad]) -> float | None:
    """The imbalance that is shown, of the worst group; None without load."""
    return worst_of(one.imbalance for one in group_loads(loads))


def groups_line(groups: Sequence[GroupLoad]) -> str:
    """Return a sentence on the isolation groups and their usages; "" for one group."""
    if len(groups) <= 1:
        return ""
    words = [
        one.brokers[0]
        + (f" and {len(one.brokers) - 1} more" if len(one.brokers) > 1 else "")
        + f" mean {100 * one.mean:.0f} %"
        for one in groups[:GROUPS_SHOWN]
    ]
    words += [f"and {len(groups) - GROUPS_SHOWN} more"] * (len(groups) > GROUPS_SHOWN)
    return f"{len(groups)} by isolation policies: {', '.join(words)}"
