"""The numbers of a run: balance, moves, thrash, recovery times, percentiles.

`jobs.run_local` and the simulator collect the inputs. Definitions as published with every figure:
imbalance = max / mean; floor-adjusted = max / max(mean, hottest bundle); thrash = moves that return
a bundle to an owner it left less than an hour before / moves.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from lbcore.model.names import parse_bundle, range_end
from lbcore.model.times import HOUR_MS
from lbcore.plan.groups import worst_imbalance

_TREND_EXPONENT = 0.8
"""asim's choice: at most 1, or a series that goes further up could have less variation."""


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the nearest-rank percentile.

    The smallest value that `percent` of the values don't exceed. percentile([15, 20, 35, 40, 50],
    40) = 20. None for no values; 0 < percent <= 100.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(1, math.ceil(len(ordered) * percent / 100.0)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """True load at one moment.

    broker_loads: those of the live brokers, in one unit.
    """

    at_ms: int
    broker_loads: Mapping[str, float]
    hottest_bundle: float = 0.0
    bundles_open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Means over the samples of a stretch of time; None without any."""

    samples: int
    imbalance: float | None
    floor_adjusted: float | None


def balance(
    samples: Iterable[LoadSample],
    from_ms: int,
    to_ms: int,
    groups: Mapping[str, str] | None = None,
) -> Balance:
    """Return the worst group's mean imbalance over from_ms <= at_ms < to_ms.

    groups: broker → the first one of its isolation group; without them all brokers are one.
    """
    chosen = [sample for sample in samples if from_ms <= sample.at_ms < to_ms]
    groups = groups or {}
    known = {"", *groups.values()}
    found = [
        worst_imbalance(sample.broker_loads, groups, dict.fromkeys(known, sample.hottest_bundle))
        for sample in chosen
    ]
    return Balance(
        samples=len(chosen),
        imbalance=_mean(plain for plain, _ in found),
        floor_adjusted=_mean(adjusted for _, adjusted in found),
    )


def first_all_open_ms(samples: Iterable[LoadSample], bundles: int) -> int | None:
    """Return the first time at which all bundles were open, None = never."""
    return next((sample.at_ms for sample in samples if sample.bundles_open >= bundles), None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOpened:
    """A broker opened a bundle: from then on it owns and serves it."""

    bundle: str
    broker: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMove:
    """Change of a bundle's owner."""

    bundle: str
    source: str
    destination: str
    at_ms: int


def moves(opened: Iterable[BundleOpened]) -> list[ObservedMove]:
    """Each change of owner. Neither a first owner nor the same one again is a move.

    opened: in the order of time.
    """
    owner: dict[str, str] = {}
    found = []
    for event in opened:
        source = owner.get(event.bundle, event.broker)
        owner[event.bundle] = event.broker
        if source != event.broker:
            found.append(
                ObservedMove(
                    bundle=event.bundle,
                    source=source,
                    destination=event.broker,
                    at_ms=event.at_ms,
                )
            )
    return found


def thrash(made: Sequence[ObservedMove]) -> float:
    """Return the share of moves back to an owner left less than an hour before.

    A→B at 0 s, B→A at 60 s, A→C at 90 s: 1 of 3. No moves: 0. `made` is in the order of time.
    """
    left_at_ms: dict[tuple[str, str], int] = {}
    returns = 0
    for move in made:
        left = left_at_ms.get((move.bundle, move.destination))
        returns += left is not None and move.at_ms - left < HOUR_MS
        left_at_ms[move.bundle, move.source] = move.at_ms
    return returns / len(made) if made else 0.0


def trend_discounted_variation(values: Sequence[float]) -> float:
    """Return the total variation of a series, discounted along its trend.

    0 for a series of one direction, nearly the total variation for one without a trend. With u up
    and d down, m the smaller and a = (m / the greater) ** 0.8: a (u + d) + (1 - a) m. Worked:
    [0, 3, 2, 3] has u = 4 and d = 1, so a = 0.33 and the result is 2.32. Source: CockroachDB's
    asim (history/thrashing.go), which calls it tdtv.
    """
    steps = [after - before for before, after in pairwise(values)]
    up = math.fsum(step for step in steps if step > 0)
    down = math.fsum(-step for step in steps if step < 0)
    least = min(up, down)
    if least == 0:
        return 0.0
    share: float = (least / max(up, down)) ** _TREND_EXPONENT
    return share * (up + down) + (1.0 - share) * least


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A broker died without a word, serving `bundles`; times are the wall's.

    last_report_ms: when Kafka took its last message.
    """

    broker: str
    killed_at_ms: int
    last_report_ms: int
    bundles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Recovery from a crash.

    Durations count from the last report; None where nothing is served yet. unserved: the bundles
    that no broker has opened again.
    """

    broker: str
    bundles: int
    first_served_ms: int | None
    all_served_ms: int | None
    unserved: tuple[str, ...]


def recovery(crash: Crash, opened: Iterable[BundleOpened]) -> Recovery:
    """Return the recovery of the bundles of a crashed broker.

    *Served again* = opened after the crash, by whichever broker, or as children that cover its
    range. O(opened log opened), plus the opened bundles of its namespace for each bundle that isn't
    opened as it was.
    """
    later = sorted(
        (event for event in opened if event.at_ms > crash.killed_at_ms),
        key=lambda event: (event.at_ms, event.bundle),
    )
    first = {event.bundle: event.at_ms for event in reversed(later)}
    spans: dict[str, list[_Span]] = {}
    for event in later:
        namespace, lower, upper = parse_bundle(event.bundle)
        spans.setdefault(namespace, []).append((lower, range_end(upper), event.at_ms))
    served = {
        bundle: first[bundle] if bundle in first else _covered_at(bundle, spans)
        for bundle in crash.bundles
    }
    times = [at_ms for at_ms in served.values() if at_ms is not None]
    unserved = tuple(sorted(bundle for bundle, at_ms in served.items() if at_ms is None))
    return Recovery(
        broker=crash.broker,
        bundles=len(crash.bundles),
        first_served_ms=min(times) - crash.last_report_ms if times else None,
        all_served_ms=max(times) - crash.last_report_ms if times and not unserved else None,
        unserved=unserved,
    )


_Span: TypeAlias = tuple[int, int, int]
"""First hash, the one after the last, and when the range was opened."""


def _covered_at(bundle: str, spans: Mapping[str, Sequence[_Span]]) -> int | None:
    """Return the time at which spans had covered the bundle, None = never.

    spans: in order of time. Each is cut out of what is left of the bundle's range.
    """
    namespace, lower, upper = parse_bundle(bundle)
    gaps = [(lower, range_end(upper))]
    for low, high, at_ms in spans.get(namespace, ()):
        gaps = [
            (start, end)
            for first, last in gaps
            for start, end in ((first, min(last, low)), (max(first, high), last))
            if start < end
        ]
        if not gaps:
            return at_ms
    return None
