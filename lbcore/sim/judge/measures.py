"""The numbers of a simulated run, over a stretch of its time.

Computes each metric of `scenario.metrics`; `summary` defines imbalance and thrash.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import TypeAlias

import numpy as np

from lbcore.ownership.records import OwnershipRecord, State
from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance, worst_of
from lbcore.sim.engine.coverage import Outage
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.recorder import Row, Sample
from lbcore.sim.scenario.metrics import MEAN, METRICS, OPERATORS
from lbcore.sim.scenario.model import Client, Expectation
from lbcore.sim.summary import ObservedMove, percentile, thrash, trend_discounted_variation

LONGEST_PAUSE_MS = 60_000
_PARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnection:
    """Clients that reconnect at about one time.

    away_ms: from the end of service until they look up the new broker; wait_ms: from then until
    they are connected. rate: of their topics, msg/s in + out.
    """

    at_ms: int
    away_ms: int
    wait_ms: int
    clients: float
    rate: float


def reconnections(outages: Iterable[Outage], client: Client) -> list[Reconnection]:
    """Return the reconnections of clients after outages that ended: a move's cost.

    While nobody serves a topic its clients look it up again and again, the pause doubling up to a
    minute (retry 0: they are told at once). Then each looks up and connects, first come, first
    served, so many a second at a broker. Other load by clients is not modelled. The pause is the
    Pulsar client's backoff (100 ms to 60 s), the queue its broker's `maxConcurrentLookupRequest`
    and connection handling, as one rate.

    Ordered by the end of the outage, then by broker, in up to _PARTS parts each.
    """
    free_ms: dict[int, float] = {}
    found: list[Reconnection] = []
    for outage in sorted(outages, key=lambda one: (one.ended_ms, one.broker, one.began_ms)):
        noticed_ms = outage.ended_ms + _notice_ms(outage.ended_ms - outage.began_ms, client)
        asked_ms = float(noticed_ms + client.lookup_ms)
        start = max(asked_ms, free_ms.get(outage.broker, 0.0))
        count = outage.topics * (client.publishers + client.consumers)
        lasts = count * 1_000.0 / client.accept if client.accept else 0.0
        free_ms[outage.broker] = start + lasts
        parts = min(_PARTS, max(1, count)) if lasts else 1
        ends = (start + lasts * part / parts + client.connect_ms for part in range(1, parts + 1))
        found += [
            Reconnection(
                at_ms=round(connected_ms),
                away_ms=noticed_ms - outage.began_ms,
                wait_ms=round(connected_ms) - noticed_ms,
                clients=count / parts,
                rate=outage.rate / parts,
            )
            for connected_ms in ends
        ]
    return found


def _notice_ms(lasted_ms: int, client: Client) -> int:
    """Return the time from the return of service to a client's next try."""
    if not client.retry_ms:
        return 0
    tried_ms, pause_ms = 0, client.retry_ms
    while tried_ms < lasted_ms:
        tried_ms += pause_ms
        pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
    return tried_ms - lasted_ms


_PERCENTS = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p9999": 99.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a run.

    from_ms <= t <= to_ms, times of the scenario. stat: "" = the metric's first.
    """

    run: Run
    from_ms: int
    to_ms: int
    argument: str = ""
    stat: str = ""

    def samples(self) -> list[Sample]:
        """Return its samples."""
        return [s for s in self.run.recorder.samples if self.from_ms <= s.at_ms <= self.to_ms]

    def has(self, at_ms: int) -> bool:
        """True if the time is in the window."""
        return self.from_ms <= at_ms <= self.to_ms

    def moves(self) -> list[ObservedMove]:
        """Return its moves of the wanted cause."""
        return [
            one.move for one in self.run.recorder.moves
            if self.has(one.move.at_ms) and self.argument in ("", one.cause)
        ]  # fmt: skip

    def reports(self) -> list[Row]:
        """Return the reports of its batches."""
        return [report for at_ms, report in self.run.recorder.reports if self.has(at_ms)]

    def outages(self) -> list[Outage]:
        """Return outages that end in it, or last at its end."""
        coverage = self.run.coverage
        return [o for o in (*coverage.outages, *coverage.open_outages()) if self.has(o.ended_ms)]


Measure: TypeAlias = Callable[[Window], "float | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedExpectation:
    """An expectation and its outcome. value: None without anything to measure."""

    expectation: Expectation
    value: float | None
    is_met: bool


def judge(run: Run, expectation: Expectation) -> JudgedExpectation:
    """Check whether a run met an expectation."""
    value = measure(run, expectation)
    is_met = value is not None and OPERATORS[expectation.operator](value, expectation.value)
    return JudgedExpectation(expectation=expectation, value=value, is_met=is_met)


def measure(run: Run, wanted: Expectation) -> float | None:
    """Return the metric's value; None = nothing to measure."""
    name, _, stat = wanted.metric.partition(".")
    stats = METRICS[name].stats
    window = Window(
        run=run,
        from_ms=wanted.from_ms,
        to_ms=min(wanted.to_ms, run.scenario.run_ms),
        argument=wanted.argument,
        stat=stat or (stats[0] if stats else ""),
    )
    return _MEASURES[name](window)


def measure_named(run: Run, metric: str, argument: str = "") -> float | None:
    """Return a metric over the whole run."""
    return measure(run, Expectation(metric=metric, argument=argument, operator=">=", value=0.0))


def floor_adjusted_of(sample: Sample) -> float | None:
    """The sample's floor-adjusted imbalance, of the worst group."""
    return worst_of(
        floor_adjusted_imbalance(sample.loads[group.brokers].tolist(), group.floor)
        for group in sample.groups
    )


def imbalance_of(sample: Sample) -> float | None:
    """The sample's imbalance, of the worst group."""
    return worst_of(imbalance(sample.loads[group.brokers].tolist()) for group in sample.groups)


def _running(sample: Sample) -> list[float]:
    return [load for load in sample.loads.tolist() if not math.isnan(load)]


def _series(read: Callable[[Sample], float | None]) -> Measure:
    """Return the measure of a metric that every sample has."""

    def found(window: Window) -> float | None:
        values = [v for v in map(read, window.samples()) if v is not None and not math.isnan(v)]
        return statistic(values, window.stat)

    return found


def statistic(values: Sequence[float], stat: str) -> float | None:
    """mean, end, min, max or a percentile; None for no values."""
    if not values:
        return None
    if stat == MEAN:
        return math.fsum(values) / len(values)
    if stat in _PERCENTS:
        return percentile(values, _PERCENTS[stat])
    return {"min": min(values), "max": max(values), "end": values[-1]}[stat]


def _load(window: Window) -> float | None:
    node = window.run.nodes.get(window.argument)
    if node is None:
        return None
    loads = (s.loads for s in window.samples())
    values = [float(row[node.number]) for row in loads if node.number < len(row)]
    return statistic([value for value in values if not math.isnan(value)], window.stat)


def _above(window: Window) -> float:
    limit, step_ms = float(window.argument.rstrip("%")), window.run.scenario.sample_ms
    count = sum(load > limit for s in window.samples() for load in _running(s))
    return float(count * step_ms)


def _balanced(window: Window) -> float | None:
    """Return the time until floor_adjusted stays low; None if it ends high.

    From the window's start. Also None if nothing was served although there was load.
    """
    limit, samples = float(window.argument), window.samples()
    values = [floor_adjusted_of(sample) for sample in samples]
    high = [
        sample.at_ms
        for sample, value in zip(samples, values, strict=True)
        if value is not None and value > limit
    ]
    last_high_ms = high[-1] if high else window.from_ms
    if not samples or last_high_ms == samples[-1].at_ms:
        return None
    if any(sample.rate > 0.0 for sample in samples) and all(value is None for value in values):
        return None
    return float(last_high_ms - window.from_ms)


def _variation(window: Window) -> float | None:
    """Sum each broker's trend-discounted variation, in ranges of the window's loads.

    A range of 0 counts as one point: a constant cluster has no variation.
    """
    rows = (sample.loads.tolist() for sample in window.samples())
    columns = zip_longest(*rows, fillvalue=math.nan)
    series = [[load for load in column if not math.isnan(load)] for column in columns]
    known = [load for loads in series for load in loads]
    if not known:
        return None
    return math.fsum(map(trend_discounted_variation, series)) / (max(known) - min(known) or 1.0)


def unsettled_records(run: Run) -> list[OwnershipRecord]:
    """Return the records of bundles that are not open at their owner now."""
    served = {name: node.served() for name, node in run.nodes.items()}
    return [
        record
        for record in run.job.committed.records.values()
        if record.state is not State.DELETED
        and not (
            record.state is State.OWNED and record.bundle in served.get(record.destination, {})
        )
    ]


def _unserved(window: Window) -> float:
    """Return the topic-milliseconds without service."""
    changes = [*window.run.coverage.changes, (window.to_ms, 0)]
    return float(
        sum(
            count * max(0, min(ended_ms, window.to_ms) - max(began_ms, window.from_ms))
            for (began_ms, count), (ended_ms, _) in pairwise(changes)
        )
    )


def _weighted(pairs: Iterable[tuple[float, float]], stat: str) -> float:
    """Return the nearest-rank percentile of weighted values; 0 without any."""
    ordered = sorted(pair for pair in pairs if pair[1] > 0)
    if not ordered:
        return 0.0
    if stat == "max":
        return ordered[-1][0]
    wanted = math.fsum(weight for _, weight in ordered) * _PERCENTS[stat] / 100.0
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= wanted:
            return value
    return ordered[-1][0]


def _publish(window: Window) -> float:
    """Return the client model's percentile of publish latency, ms.

    A message published d ms before its topic's clients notice the return waits d, then until its
    publisher is connected; others take the base. Messages come evenly in time.
    """
    client = window.run.scenario.client
    lasting = [one for one in window.run.coverage.open_outages() if window.has(one.ended_ms)]
    # topics unserved at the run's end, as if service returned then
    away = reconnections(lasting, replace(client, retry_ms=0, accept=0))
    groups = [*_reconnections(window), *away]
    sent = math.fsum(s.rate for s in window.samples()) * window.run.scenario.sample_ms / 1_000.0
    longest = max((one.away_ms + one.wait_ms for one in groups), default=0)
    starts = np.zeros(longest + client.base_ms + 2)
    for one in groups:
        first = one.wait_ms + client.base_ms
        starts[first] += one.rate / 1_000.0
        starts[first + one.away_ms] -= one.rate / 1_000.0
    waiting = np.cumsum(starts)
    late = [(float(at), float(waiting[at])) for at in np.flatnonzero(waiting > 1e-9).tolist()]  # noqa: PLR2004 rounding
    usual = max(0.0, sent - math.fsum(weight for _, weight in late))
    return _weighted([(float(client.base_ms), usual), *late], window.stat)


def _reconnections(window: Window) -> list[Reconnection]:
    """Return the clients that reconnected in the window."""
    found = reconnections(window.run.coverage.outages, window.run.scenario.client)
    return [one for one in found if window.has(one.at_ms)]


def _decided_ms(window: Window) -> list[int]:
    """Return the times of the decisions of the wanted kind, or kind/reason."""
    return [
        one.at_ms
        for one in window.run.recorder.decisions
        if window.has(one.at_ms) and window.argument in (one.kind, f"{one.kind}/{one.reason}")
    ]


def _cycles(window: Window) -> float:
    cycles = [int(report["cycle"]) for report in window.reports()]
    return float(cycles[-1] - cycles[0]) if cycles else 0.0


_MEASURES: Mapping[str, Measure] = {
    "imbalance": _series(imbalance_of),
    "floor_adjusted": _series(floor_adjusted_of),
    "gap": _series(
        lambda s: max((float(np.ptp(s.loads[one.brokers])) for one in s.groups), default=0.0)
    ),
    "highest": _series(lambda s: max(_running(s), default=0.0)),
    "lowest": _series(lambda s: min(_running(s), default=0.0)),
    "load": _load,
    "in_flight": lambda window: statistic(
        [float(report["in_flight"]) for report in window.reports()], window.stat
    ),
    "above": _above,
    "balanced": _balanced,
    "moves": lambda window: float(len(window.moves())),
    "moves_of_a_bundle": lambda window: float(
        max(Counter(move.bundle for move in window.moves()).values(), default=0)
    ),
    "returns": lambda window: float(round(thrash(window.moves()) * len(window.moves()))),
    "thrash": lambda window: thrash(window.moves()),
    "variation": _variation,
    "splits": lambda window: float(sum(map(window.has, window.run.recorder.splits))),
    "bundles": lambda window: float(
        sum(window.argument in ("", owner) for owner in window.run.recorder.owner.values())
    ),
    "unsettled": lambda window: float(len(unsettled_records(window.run))),
    "unserved": _unserved,
    "outage": lambda window: _weighted(
        [(float(o.ended_ms - o.began_ms), float(o.topics)) for o in window.outages()], window.stat
    ),
    "publish": _publish,
    "topic_unserved": lambda window: statistic(
        window.run.coverage.lost_ms().astype(float).tolist(), window.stat
    ),
    "reconnect": lambda window: _weighted(
        [(float(r.away_ms + r.wait_ms), r.clients) for r in _reconnections(window)], window.stat
    ),
    "reconnects": lambda window: float(
        round(math.fsum(one.clients for one in _reconnections(window)))
    ),
    "doubles": lambda window: float(
        sum(window.has(at_ms) for at_ms, _ in window.run.coverage.doubles)
    ),
    "decisions": lambda window: float(len(_decided_ms(window))),
    "first": lambda window: next((float(at - window.from_ms) for at in _decided_ms(window)), None),
    "alarms": lambda window: float(
        sum(window.argument in report["alarms"] for report in window.reports())
    ),
    "counts": lambda window: float(
        sum(report["counts"].get(window.argument, 0) for report in window.reports())
    ),
    "commands": lambda window: float(
        sum(
            window.has(at_ms) and status == window.argument
            for at_ms, _, status in window.run.recorder.commands
        )
    ),
    "cycles": _cycles,
}
