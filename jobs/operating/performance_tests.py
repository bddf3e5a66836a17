"""The four performance tests of the extensible load balancer's announcement, in virtual time.

Decides what is measured of each scenario in `conf/scenarios/performance`, and how it is set beside
the document's figures. Used by `ballast performance`. Source: "Introducing Extensible Load Balancer
in Pulsar 3.0" (StreamNative, September 2023); the measures are ours.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from jobs.operating.machine import computed_where
from lbcore.sim.engine.engine import Run
from lbcore.sim.judge.clients import reconnections
from lbcore.sim.judge.measures import imbalance_of, measure_named
from lbcore.sim.reports.report import format_value

BALANCED = 1.2
FOLDER = Path("conf/scenarios/performance")
CONTESTANTS: Mapping[str, str] = {
    "modular-style": "pulsar-threshold",
    "extensible-style": "extensible",
    "extensible-style, target 0.1": "extensible-0.1",
    "extensible-style, a report a minute": "extensible-1m",
    "Ballast's default": "avg",
    "Ballast's own": "ballast",
}
"""What the page calls it → the strategy's name for the simulator."""

MEASURED = "## On the real pipeline"
"""The heading of the page's last section, which `tests.bench.bench_performance_tests` writes."""

Measure: TypeAlias = Callable[[Run], "float | None"]
Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceTest:
    """One test. document: what it says for modular and extensible. measures: title → (how, form).

    form: a metric whose unit the value is shown in.
    """

    scenario: str
    title: str
    document: str
    measures: Mapping[str, tuple[Measure, str]]
    only: tuple[str, ...] = ("pulsar-threshold", "extensible", "avg", "ballast")


def connected_again(from_ms: int) -> Measure:
    """Time from then until the last client is connected again, by the client model."""

    def found(run: Run) -> float | None:
        if run.coverage.unserved:
            return None
        back = reconnections(run.coverage.outages, run.scenario.client)
        return max((float(one.at_ms - from_ms) for one in back), default=None)

    return found


def balanced_after(from_ms: int) -> Measure:
    """Time from then until the most loaded broker stays at or below 1.2 times the mean."""

    def found(run: Run) -> float | None:
        samples = [one for one in run.recorder.samples if one.at_ms >= from_ms]
        high = [one.at_ms for one in samples if (imbalance_of(one) or 0.0) > BALANCED]
        if not samples or (high and high[-1] == samples[-1].at_ms):
            return None
        return float(high[-1] - from_ms) if high else 0.0

    return found


def named(metric: str) -> Measure:
    """A metric over the whole run."""
    return lambda run: measure_named(run, metric)


def last_move_after(from_ms: int) -> Measure:
    """Time from then until the last bundle has reached another owner."""

    def found(run: Run) -> float | None:
        made = [one.move.at_ms for one in run.recorder.moves if one.move.at_ms >= from_ms]
        return float(made[-1] - from_ms) if made else None

    return found


def last_split(run: Run) -> float | None:
    """When the last split began."""
    return float(run.recorder.splits[-1]) if run.recorder.splits else None


def topic_spread(run: Run) -> float | None:
    """Most minus fewest topics a broker at the end, all topics carrying alike."""
    loads = [load for load in run.recorder.samples[-1].loads.tolist() if not math.isnan(load)]
    total = math.fsum(loads)
    return (max(loads) - min(loads)) / total * run.coverage.topics if total else None


def bundle_count(run: Run) -> float | None:
    """Bundles at the end."""
    return float(run.recorder.samples[-1].bundles)


_SCALED_MS = 120_000
"""When brokers join or leave in the scenarios of scaling."""
_ALL = tuple(CONTESTANTS.values())
_OF_SCALING = {
    "balanced": (balanced_after(_SCALED_MS), "balanced"),
    "last move": (last_move_after(_SCALED_MS), "balanced"),
    "imbalance at the end": (named("imbalance.end"), "imbalance"),
    "moves": (named("moves"), "moves"),
}

TESTS = (
    PerformanceTest(
        scenario="reconnect",
        title="1. Assignment scalability: all brokers restart within two minutes",
        document="100,000 publishers connected again after 20 min (modular), 10 min (extensible)",
        measures={
            "all publishers connected again": (connected_again(60_000), "unserved"),
            "a publisher's longest way back": (named("reconnect.max"), "outage"),
            "p99": (named("reconnect.p99"), "outage"),
            "median": (named("reconnect.p50"), "outage"),
        },
    ),
    PerformanceTest(
        scenario="rolling-restart",
        title="2. Assignment latency: ten brokers restart one by one",
        document="p99.99 publish latency 1841 ms (modular), 1228 ms (extensible)",
        measures={
            "publish p99.99": (named("publish.p9999"), "publish"),
            "publish p99": (named("publish.p99"), "publish"),
            "longest outage of a topic": (named("outage.max"), "outage"),
            "moves": (named("moves"), "moves"),
        },
    ),
    PerformanceTest(
        scenario="scale-in",
        title="3a. Unload: from ten brokers to five",
        document="balanced after 5 min (modular), 3 min (extensible)",
        measures=_OF_SCALING,
        only=_ALL,
    ),
    PerformanceTest(
        scenario="scale-out",
        title="3b. Unload: from five brokers to ten",
        document="balanced after 7 min (modular), 5 min (extensible)",
        measures=_OF_SCALING,
        only=_ALL,
    ),
    PerformanceTest(
        scenario="split",
        title="4. Split: one bundle becomes 128, over ten brokers",
        document="balanced after 15 min (modular), 13 min (extensible); most minus fewest topics a "
        "broker 1.2k (modular), 321 (extensible with target 0.1)",
        measures={
            "last split": (last_split, "first"),
            "balanced": (balanced_after(0), "balanced"),
            "bundles": (bundle_count, "moves"),
            "most - fewest topics": (topic_spread, "moves"),
            "moves": (named("moves"), "moves"),
        },
        only=_ALL,
    ),
)

_HEAD = """\
# The four performance tests

The tests with which StreamNative announced Pulsar's extensible load balancer (September 2023), as
scenarios in `conf/scenarios/performance`. `ballast performance --page docs/performance-tests.md`
writes this page; all but its last section is simulated in virtual time
([simulator.md](simulator.md)), so the same comes out on every machine. {where}

**Modelled**: load, load reports, smoothing, hits, decision cycles, placement, splits, the handover
of each bundle with the time that closing and opening takes, batches of two or one second, and the
client model's lookups and connections. *Modular-style* is ThresholdShedder with least long-term
message rate under Pulsar 4.0.8's defaults (a decision a minute), *extensible-style* TransferShedder
with the extensible manager's placement and filters.

**Not modelled**: Pulsar itself. Ownership is Ballast's in every row, so what the document's tests 1
and 2 are about (ZooKeeper, lookups through the leader, a herd of clients) is in no number here:
rows of one test differ by their rules alone. What rules of balancing do is **computed** here; the
document **measured** real clusters on hardware that it does not name. The figures stand side by
side for orders of magnitude, not to name a winner across the columns. What is measured on the real
pipeline stands in the last section.

The scenarios have the document's sizes: bundles, topics, brokers, publishers. It does not say how
large its messages were. Here they have 1 KiB, of which ThresholdShedder's minimum of 10 MiB/s would
let nothing move, so the scenarios set it to 1 (nobody else reads it). *Balanced*: from the event
until no broker is above 1.2 times the mean; "-" is never.

In test 1 the last connection counts, also of a publisher that balancing interrupts once more after
the restarts: Ballast's own evens out what is left, so it is last, 416 s against the default's
144 s; no publisher was away for longer than 56 s. It is not best in 3b either, where its rounds of
15 % take 20 s longer than the default's pairs.

Two things about TransferShedder's rows in test 3b. It acts in the fourth cycle in a row that wants
to (`loadBalancerSheddingConditionHitCountThreshold` 3), a cycle a minute, on three pairs of brokers
at most; then it waits until each broker that gave bundles away has published load at least 180 s
later (`loadBalanceSheddingDelayInSeconds`), and counts again from one: five new brokers take two
such rounds. A broker publishes what has changed by more than ten points or ten percent, else after
15 minutes. Load that stands still, as here, is not published earlier, so the second round waits for
that; with *a report a minute*, which a real broker's unsteady usage comes to, it takes 10 minutes.
And its averages: an extensible broker averages every 5 s, reported or not, and anew whenever a
bundle comes or goes; here, where only reports are seen, its rows take each report as it is.

The document's list of topic spreads has modular and extensible exchanged against its prose ("the
new load manager shows a better topic load balance, 321, than the old one's 1.2k"); the prose holds.
"""


def row_of(test: PerformanceTest, strategy: str, run: Run) -> dict[str, Any]:
    """What one run came to; values in ms or counts, None where there was nothing to measure."""
    values = {title: how(run) for title, (how, _) in test.measures.items()}
    return {
        "scenario": test.scenario,
        "strategy": strategy,
        "hash": run.recorder.hash(),
        "values": values,
    }


def performance_page(rows: Sequence[Row]) -> str:
    """The page but for what was measured, Markdown."""
    head = _HEAD.format(where=computed_where())
    return "\n".join([head, *(line for test in TESTS for line in _section(test, rows))]) + "\n"


def measured_part(page: str) -> str:
    """What an earlier page says of the real pipeline, "" = nothing; a new one keeps it."""
    at = page.find(f"\n{MEASURED}\n")
    return page[at:] if at >= 0 else ""


def table_of(test: PerformanceTest, rows: Sequence[Row]) -> list[list[str]]:
    """The cells of a test's table, its head first."""
    named_by = {strategy: name for name, strategy in CONTESTANTS.items()}
    own = [row for row in rows if row["scenario"] == test.scenario]
    lines = [[named_by[row["strategy"]], *_cells(test, row)] for row in own]
    return [["", *test.measures], *lines]


def _cells(test: PerformanceTest, row: Row) -> Iterator[str]:
    for title, (_, form) in test.measures.items():
        value = row["values"][title]
        rounded = round(value) if form == "moves" and value is not None else value
        yield format_value(form, rounded)


def _section(test: PerformanceTest, rows: Sequence[Row]) -> Iterator[str]:
    head, *lines = table_of(test, rows)
    yield f"\n## {test.title}\n"
    yield f"The document: {test.document}.\n"
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)
