"""Metrics of a scenario's expectations: arguments after the colon, and units.

`lbcore.sim.judge.measures` computes them, `lbcore.sim.summary` defines imbalance and thrash.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lbcore.ownership.records import Cause
from lbcore.sim.scenario.model import Expectation
from lbcore.sim.scenario.tokens import (
    Line,
    ScenarioTokenError,
    broker_names,
    duration_ms,
    number,
    one_of,
    points,
    share,
)

MEAN, END = "mean", "end"
SERIES_STATS = (MEAN, "min", "p50", "p95", "p99", "max", END)
TIME_STATS = ("max", "p50", "p95", "p99", "p9999")
COUNT, TIME, LOAD, PART, RATIO = "count", "time", "load", "part", "ratio"

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. argument: what stands behind its colon, "" = nothing does.

    is_optional: the argument may be left out. stats: allowed after its dot; the first is the
    default.
    """

    doc: str
    unit: str
    argument: str = ""
    is_optional: bool = False
    stats: tuple[str, ...] = ()


METRICS: Mapping[str, Metric] = {
    "imbalance": Metric(
        doc="highest over mean load of the running brokers", unit=RATIO, stats=SERIES_STATS
    ),
    "floor_adjusted": Metric(
        doc="highest load over the greater of the mean and what the hottest bundle alone makes",
        unit=RATIO,
        stats=SERIES_STATS,
    ),
    "gap": Metric(doc="highest minus lowest load", unit=LOAD, stats=SERIES_STATS),
    "highest": Metric(doc="load of the most loaded broker", unit=LOAD, stats=SERIES_STATS),
    "lowest": Metric(doc="load of the least loaded broker", unit=LOAD, stats=SERIES_STATS),
    "load": Metric(doc="load of one broker", unit=LOAD, argument="broker", stats=SERIES_STATS),
    "in_flight": Metric(
        doc="bundles on their way to another broker", unit=COUNT, stats=("max", MEAN, END)
    ),
    "above": Metric(
        doc="time above so much load, summed over brokers", unit=TIME, argument="percent"
    ),
    "balanced": Metric(
        doc="time until floor_adjusted stays at or below so much", unit=TIME, argument="ratio"
    ),
    "moves": Metric(
        doc="bundles that got another owner", unit=COUNT, argument="cause", is_optional=True
    ),
    "moves_of_a_bundle": Metric(doc="most moves of one bundle", unit=COUNT),
    "returns": Metric(doc="moves back to an owner left less than an hour ago", unit=COUNT),
    "thrash": Metric(doc="returns over moves", unit=PART),
    "variation": Metric(
        doc="trend-discounted variation of each broker's load over the range of all, summed",
        unit=PART,
    ),
    "splits": Metric(doc="bundles that were split", unit=COUNT),
    "bundles": Metric(doc="bundles at the end, all or of one broker", unit=COUNT,
                      argument="broker", is_optional=True),
    "unsettled": Metric(doc="bundles at the end that are not open at their owner", unit=COUNT),
    "unserved": Metric(doc="time without service, summed over topics", unit=TIME),
    "outage": Metric(
        doc="time without service of one topic at one time", unit=TIME, stats=TIME_STATS
    ),
    "publish": Metric(
        doc="time until a message is published, by the client model", unit=TIME,
        stats=("p99", "p50", "p95", "p9999", "max"),
    ),
    "topic_unserved": Metric(
        doc="time without service of each topic, in the whole run", unit=TIME,
        stats=("max", MEAN, "p50", "p95", "p99"),
    ),
    "reconnect": Metric(
        doc="time from the end of service until a client is connected again", unit=TIME,
        stats=TIME_STATS,
    ),
    "reconnects": Metric(doc="connections of publishers and consumers made anew", unit=COUNT),
    "doubles": Metric(doc="bundles opened while another broker served them", unit=COUNT),
    "decisions": Metric(
        doc="rows of the table decisions, by kind or kind/reason", unit=COUNT, argument="kind"
    ),
    "first": Metric(
        doc="time of the first decision of a kind or kind/reason", unit=TIME, argument="kind"
    ),
    "alarms": Metric(doc="batches with an alarm", unit=COUNT, argument="alarm"),
    "counts": Metric(doc="sum of one of the job's counters", unit=COUNT, argument="counter"),
    "commands": Metric(doc="commands that ended so", unit=COUNT, argument="status"),
    "cycles": Metric(doc="decision cycles", unit=COUNT),
}  # fmt: skip
"""Every metric by name."""

_READERS: Mapping[str, Callable[[str], float]] = {
    COUNT: number,
    TIME: lambda word: float(duration_ms(word)),
    LOAD: points,
    PART: share,
    RATIO: number,
}


def _single_broker(word: str) -> None:
    if not word or len(broker_names(word)) != 1 or word == "all":
        raise ScenarioTokenError(word, "one broker such as b1")


_KINDS = (
    "assign", "transfer", "unload", "split", "merge", "drain", "failover", "fault", "full",
    "no_candidate", "repair", "override", "pin", "silence", "skip", "ticks", "clock", "plan",
)  # fmt: skip
"""Kinds of rows of the table decisions."""


def _alarm(word: str) -> None:
    """One of the alarms that the job raises, such as full or flapping:BROKER."""
    name, _, broker = word.partition(":")
    one_of("brake", "clock", "full", "silence", "ticks", "flapping")(name)
    if name == "flapping" or broker:
        _single_broker(broker)


ARGUMENTS: Mapping[str, Callable[[str], object]] = {
    "percent": lambda word: number(word.removesuffix("%")),
    "ratio": number,
    "broker": _single_broker,
    "kind": lambda word: one_of(*_KINDS)(word.partition("/")[0]),
    "alarm": _alarm,
    "cause": one_of(*(cause.value for cause in Cause)),
    "status": one_of("done", "accepted", "refused", "failed", "timed_out"),
}
"""Parser of each kind of argument; the other kinds are any text."""


def take_expectation(line: Line) -> Expectation:
    """The expectation that the rest of a line says; raises ScenarioError."""
    name, argument = line.take(_metric, "a metric such as imbalance.p95 or load:b1")
    sign = line.take(one_of(*OPERATORS), "one of <=, >=, ==, <, >")
    unit = METRICS[name.partition(".")[0]].unit
    value = line.take(_READERS[unit], f"a {unit}")
    window = line.options({"from": duration_ms, "to": duration_ms})
    line.require_order(window)
    return Expectation(
        metric=name,
        argument=argument,
        operator=sign,
        value=value,
        text=" ".join(line.content.split()[1:]),
        line=line.number,
        **{f"{key}_ms": found for key, found in window.items()},
    )


def _metric(word: str) -> tuple[str, str]:
    """Name with its stat, and argument, of name.stat:argument or name:argument.stat."""
    name, _, argument = word.partition(":")
    name, _, stat = name.partition(".")
    metric = METRICS.get(name)
    if metric is None:
        raise ScenarioTokenError(word, f"a metric: {', '.join(METRICS)}")
    if argument and not stat and metric.stats:
        head, _, tail = argument.rpartition(".")
        argument, stat = (head, tail) if tail in metric.stats else (argument, stat)
    if stat and stat not in metric.stats:
        raise ScenarioTokenError(
            word, f"{name} with one of {', '.join(metric.stats) or 'no stat at all'}"
        )
    if bool(argument) != bool(metric.argument) and not (metric.is_optional and not argument):
        raise ScenarioTokenError(
            word, f"{name}:{metric.argument}" if metric.argument else f"{name} alone"
        )
    if argument and metric.argument in ARGUMENTS:
        ARGUMENTS[metric.argument](argument)
    return (f"{name}.{stat}" if stat else name), argument
