"""A report for the terminal.

Decides what is shown and how much of it; the values are `lbcore.assess.report`'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.operating.plans import Outlook
from jobs.operating.text_format import format_instant, text_table
from lbcore.assess.loads import last_known
from lbcore.assess.report import Report
from lbcore.explain.explanation import number
from lbcore.model.times import duration
from lbcore.sim.reports.report import format_value

SHADES = " .:-=+*#%@"
_WIDTH = 60
_LISTED = 10
_FULL = 100.0
SHOWN = (
    ("imbalance.mean", "imbalance"),
    ("imbalance.p95", "at worst"),
    ("bound.mean", "bound"),
    ("above_ms", "above 1.2"),
    ("nobody_ms", "nobody below"),
    ("moves", "moves"),
    ("thrash", "thrash"),
    ("splits", "splits"),
)
"""Of the strategies: metric and heading."""

NO_RISK = "none found"
NO_RISK_KNOWN = "none found in what could be read, which is not all: see Not known"

OF_USAGE = (
    "imbalance here is of usage, with what brokers use without load, so it is lower than that of"
    " msg/s above; bound: the least that whole bundles allow, in the mean as it; at worst: p95;"
    " above 1.2: how long, and for how long of it nobody could have been below"
)
"""Note for readers on the strategies' numbers."""


def lines(report: Report) -> Iterator[str]:
    """The whole report."""
    looked = duration(report.to_ms - report.from_ms)
    yield (
        f"{report.cluster} at {report.url}: {len(report.loads.brokers)} brokers, "
        f"{report.bundle_count} bundles, looked at for {looked} from "
        f"{format_instant(report.from_ms)}; nothing was changed"
    )
    yield from _part("Load", [*_heat(report), "", imbalance_line(report)])
    yield from _part("Hottest bundles", text_table(bundle_rows(report)[: _LISTED + 1]))
    yield from _part("Hottest topics", text_table(topic_rows(report)[: _LISTED + 1]))
    yield from _part("What moved meanwhile", text_table(move_rows(report)[: _LISTED + 1]))
    yield from _part("Settings that hurt", _harms(report))
    yield from _part("Risks", _risks(report))
    yield from _part("What Ballast would do", _foresight(report))
    tried = [*text_table(tried_rows(report)), OF_USAGE] if report.strategies else []
    yield from _part("What each strategy would have made of this time", tried)
    yield from _part("Not known", [f"- {one}" for one in report.notes])


def imbalance_line(report: Report) -> str:
    """Imbalance, what of it no move can undo, in a sentence."""
    values = [value for value in report.loads.imbalance if value is not None]
    floors = [value for value in report.loads.floor if value is not None]
    if not report.loads.times_ms:
        return "imbalance: not known, for no broker's load was read"
    if not values or not floors:
        return "imbalance: none, without load"
    mean = sum(values) / len(values)
    return (
        f"imbalance (most over mean of msg/s) {values[-1]:.2f} now, {mean:.2f} on average; "
        f"no moves can bring it below {floors[-1]:.2f}"
    )


def bundle_rows(report: Report) -> list[Sequence[str]]:
    """Heading and a row a bundle."""
    rows: list[Sequence[str]] = [("bundle", "broker", "msg/s", "MB/s", "topics", "of its broker")]
    for hot in report.bundles:
        megabytes = f"{hot.bytes_per_s / 1e6:.2f}"
        share = f"{_FULL * hot.share:.0f} %"
        rate, topics = number(hot.msg_rate), str(hot.topics)
        rows.append((hot.bundle, hot.broker, rate, megabytes, topics, share))
    return rows


def topic_rows(report: Report) -> list[Sequence[str]]:
    """Heading and a row a topic."""
    rows: list[Sequence[str]] = [("topic", "broker", "msg/s", "MB/s")]
    for hot in report.topics:
        megabytes = f"{hot.bytes_per_s / 1e6:.2f}"
        rows.append((hot.topic, hot.broker, number(hot.msg_rate), megabytes))
    return rows


def move_rows(report: Report) -> list[Sequence[str]]:
    """Heading and a row a move; one that says so when nothing moved."""
    rows: list[Sequence[str]] = [("when", "bundle", "from", "to", "by")]
    for move in report.moves:
        when = format_instant(move.at_ms)
        rows.append((when, move.bundle, move.source, move.destination, move.who))
    return rows if report.moves else [("nothing moved",)]


def tried_rows(report: Report) -> list[Sequence[str]]:
    """Heading and a row a strategy."""
    rows: list[Sequence[str]] = [("strategy", *(title for _, title in SHOWN))]
    rows += [
        (str(one["strategy"]), *(_value(one, metric) for metric, _ in SHOWN))
        for one in report.strategies
    ]
    return rows


def _value(row: Mapping[str, Any], metric: str) -> str:
    value = row.get(metric)
    if metric.endswith("_ms") and value is not None:
        return duration(value)
    return format_value("imbalance" if metric == "bound.mean" else metric, value)


def _part(title: str, body: Sequence[str] | Iterator[str]) -> Iterator[str]:
    found = list(body)
    if found:
        yield ""
        yield title
        yield from (f"  {one}" for one in found)


def _heat(report: Report) -> Iterator[str]:
    loads = report.loads
    wide = max((len(name) for name in loads.brokers), default=0)
    for name in loads.brokers:
        series = loads.percent[name][-_WIDTH:]
        shades = "".join(
            "?" if one is None else SHADES[min(len(SHADES) - 1, int(one / _FULL * len(SHADES)))]
            for one in series
        )
        usage, rate = last_known(series) or 0.0, last_known(loads.msg_rates[name]) or 0.0
        rest = f"{usage:5.1f} %  {number(rate)} msg/s  {loads.bundles[name]} bundles"
        yield f"{name:{wide}} |{shades}| {rest}"


def _harms(report: Report) -> Iterator[str]:
    for harm in report.harms:
        yield f"{harm.key}={harm.value}"
        yield f"    why: {harm.reason}"
        yield f"   next: {harm.better}"
    if not report.harms:
        yield "none found"


def _risks(report: Report) -> Iterator[str]:
    for risk in report.risks:
        yield f"{risk.kind.replace('_', ' ')}: {risk.subject}"
        yield f"    why: {risk.text}"
        yield f"   next: {risk.next_step}"
    if not report.risks:
        yield NO_RISK if report.is_whole else NO_RISK_KNOWN


def _foresight(report: Report) -> Iterator[str]:
    if report.decisions:
        yield f"meanwhile it would have moved or split {report.decisions} bundles"
    if report.foresight is None:
        return
    yield from Outlook(found=report.foresight, tables_age_ms=-1).lines()
