"""A report for the terminal, and as one HTML page that loads nothing from outside.

Pictures are inline SVG, readable on a phone; each has a caption. Every text from a cluster is
escaped.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.console import format_instant, printable, text_table
from jobs.operating.plans import Outlook
from lbcore.assess.loads import Loads, last_known
from lbcore.assess.report import Report
from lbcore.explain.explanation import number
from lbcore.foresight.forecast import Foresight
from lbcore.model.times import duration
from lbcore.sim.reports.report import format_value

SHADES = " .:-=+*#%@"
_WIDTH = 60
_ROWS_LISTED = 10
STRATEGY_COLUMNS = (
    ("imbalance.mean", "imbalance"),
    ("imbalance.p95", "at worst"),
    ("bound.mean", "bound"),
    ("above_ms", "above 1.2"),
    ("nobody_ms", "nobody below"),
    ("moves", "moves"),
    ("thrash", "thrash"),
    ("splits", "splits"),
)
"""Columns of the table of strategies: metric and heading."""

NO_RISK = "none found"
NO_RISK_KNOWN = "none found in what could be read, which is not all: see Not known"

USAGE_NOTE = (
    "imbalance here is of usage, with what brokers use without load, so it is lower than that of"
    " msg/s above; bound: the least mean that whole bundles allow; at worst: p95;"
    " above 1.2: how long, and for how long of it nobody could have been below"
)
"""Note for readers on the strategies' numbers."""


Cells = Sequence[Sequence[str]]
"""A table: its heading row, then its rows."""


def lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report for a terminal."""
    looked = duration(report.to_ms - report.from_ms)
    yield (
        f"{report.cluster} at {report.url}: {len(report.loads.brokers)} brokers, "
        f"{report.bundle_count} bundles, looked at for {looked} from "
        f"{format_instant(report.from_ms)}; nothing was changed"
    )
    doing = f"meanwhile it would have moved or split {report.decisions} bundles"
    outlook = Outlook(found=report.foresight, tables_age_ms=-1).lines() if report.foresight else ()
    none_known = NO_RISK if report.is_whole else NO_RISK_KNOWN
    parts: Mapping[str, Iterable[str]] = {
        "Load": [*_heat(report), "", imbalance_line(report)],
        **{
            title: text_table(rows[: _ROWS_LISTED + 1])
            for title, rows in _found_tables(report).items()
        },
        "Settings that hurt": _finding_lines(_harms(report), NO_RISK),
        "Risks": _finding_lines(_risks(report), none_known),
        "What Ballast would do": [*([doing] if report.decisions else ()), *outlook],
        _TRIALS: [*text_table(tried_rows(report)), USAGE_NOTE] if report.strategies else (),
        "Not known": [f"- {one}" for one in report.notes],
    }
    for title, body in parts.items():
        found = [f"  {one}" for one in body]
        yield from ("", title, *found) if found else ()


_TRIALS = "What each strategy would have made of this time"


def imbalance_line(report: Report) -> str:
    """Return a sentence on the imbalance, and on the least that moves can reach."""
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


def _found_tables(report: Report) -> dict[str, Cells]:
    """Return title → table of the hottest bundles and topics, and of moves."""
    moved: Cells = [
        ("when", "bundle", "from", "to", "by"),
        *(
            (format_instant(one.at_ms), one.bundle, one.source, one.destination, one.who)
            for one in report.moves
        ),
    ]
    return {
        "Hottest bundles": [
            ("bundle", "broker", "msg/s", "MB/s", "topics", "of its broker"),
            *(
                (
                    hot.bundle,
                    hot.broker,
                    number(hot.msg_rate),
                    f"{hot.bytes_per_s / 1e6:.2f}",
                    str(hot.topics),
                    f"{_FULL * hot.share:.0f} %",
                )
                for hot in report.bundles
            ),
        ],
        "Hottest topics": [
            ("topic", "broker", "msg/s", "MB/s"),
            *(
                (hot.topic, hot.broker, number(hot.msg_rate), f"{hot.bytes_per_s / 1e6:.2f}")
                for hot in report.topics
            ),
        ],
        "What moved meanwhile": moved if report.moves else [("nothing moved",)],
    }


def _harms(report: Report) -> list[tuple[str, str, str]]:
    """Return each harmful setting, the reason, and the better value."""
    return [(f"{one.key}={one.value}", one.reason, one.better) for one in report.harms]


def _risks(report: Report) -> list[tuple[str, str, str]]:
    return [
        (f"{one.kind.replace('_', ' ')}: {one.subject}", one.text, one.next_step)
        for one in report.risks
    ]


def tried_rows(report: Report) -> Cells:
    """Return a heading row, and one row per strategy."""
    return [
        ("strategy", *(title for _, title in STRATEGY_COLUMNS)),
        *(
            (str(one["strategy"]), *(_value(one, metric) for metric, _ in STRATEGY_COLUMNS))
            for one in report.strategies
        ),
    ]


def _value(row: Mapping[str, Any], metric: str) -> str:
    value = row.get(metric)
    if metric.endswith("_ms") and value is not None:
        return duration(value)
    return format_value("imbalance" if metric == "bound.mean" else metric, value)


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


def _finding_lines(found: Iterable[tuple[str, str, str]], none: str) -> list[str]:
    shown = [(what, f"    why: {why}", f"   next: {step}") for what, why, step in found]
    return [line for one in shown for line in one] or [none]


_WIDE, _WIDEST = 380.0, 540.0
_ROW, _LABEL = 34.0, 15.0
_LINE_HIGH = 150.0
_FULL = 100.0
_BROKERS_MAX = 100
_LEFT = 34.0
_NAME = 44
_HALF = 0.5


def escape(text: str) -> str:
    """Return the text as HTML shows it.

    Control characters and marks of direction are escaped.
    """
    return html.escape(printable(text))


def heat_map(loads: Loads) -> str:
    """Return brokers by time, coloured by usage; a gap where no report came."""
    if not loads.times_ms:
        return "<p>No load is known yet.</p>"
    shown = loads.brokers[:_BROKERS_MAX]
    step = _WIDE / len(loads.times_ms)
    parts = []
    for row, name in enumerate(shown):
        top = row * _ROW
        parts.append(f'<text x="0" y="{top + 12:.0f}">{escape(name[-_NAME:])}</text>')
        for column, value in enumerate(loads.percent[name]):
            if value is None:
                continue
            parts.append(
                f'<rect x="{column * step:.2f}" y="{top + _LABEL:.0f}" width="{step + 0.2:.2f}" '
                f'height="{_ROW - _LABEL - 4:.0f}" fill="{_colour(value)}">'
                f"<title>{escape(name)}: {value:.1f} %</title></rect>"
            )
    length = duration(loads.times_ms[-1] - loads.times_ms[0])
    rest = len(loads.brokers) - len(shown)
    more = f" The first {len(shown)} brokers; {rest} more are in the table." if rest else ""
    about = f"Usage of each broker (its busiest resource but memory) over {length}, left is first."
    return _figure(f"{about} Blue is idle, yellow is half, red is full.{more}",
                   len(shown) * _ROW, "".join(parts))  # fmt: skip


def imbalance_chart(loads: Loads) -> str:
    """Return a chart of imbalance and its floor over time; "" without load."""
    values = [value for value in loads.imbalance if value is not None]
    if not values:
        return ""
    most = max(*values, 1.5)
    body = ""
    for level in (1.0, most):
        y = _height(level, most)
        body += (
            f'<line x1="{_LEFT}" x2="{_WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            f'<text x="0" y="{y + 4:.1f}">{level:.2f}</text>'
        )
    body += _line(loads.imbalance, most, 'stroke="var(--hot)" stroke-width="2.5"')
    body += _line(
        loads.floor, most, 'stroke="var(--cool)" stroke-width="2.5" stroke-dasharray="5 4"'
    )
    about = "Imbalance (whole line) and the least that moves could make of it (dashed line)."
    return _figure(about, _LINE_HIGH, body)


def _line(series: tuple[float | None, ...], most: float, style: str) -> str:
    step = (_WIDE - _LEFT) / max(1, len(series) - 1)
    places = [
        f"{_LEFT + at * step:.1f},{_height(value, most):.1f}"
        for at, value in enumerate(series)
        if value is not None
    ]
    if len(places) == 1:
        places.append(f"{_WIDE},{places[0].partition(',')[2]}")
    return f'<polyline points="{" ".join(places)}" fill="none" {style}/>'


def _height(value: float, most: float) -> float:
    return 8 + (_LINE_HIGH - 20) * (1 - (value - 1.0) / (most - 1.0))


def _colour(percent: float) -> str:
    """Return a colour from blue over yellow to red; readable on white and on black."""
    part = min(1.0, max(0.0, percent / _FULL))
    stops = ((58, 110, 190), (240, 200, 60), (190, 30, 30))
    low, high, share = (
        (stops[0], stops[1], part * 2) if part <= _HALF else (stops[1], stops[2], part * 2 - 1)
    )
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{one:02x}" for one in mixed)


def _figure(about: str, high: float, body: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {_WIDE:.0f} {max(high, 1):.0f}" role="img" '
        f'aria-label="{escape(about)}" style="max-width:{_WIDEST:.0f}px">{body}</svg>'
        f"<figcaption>{escape(about)}</figcaption></figure>"
    )


_LISTED = 50
_STYLE = """\
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--paper:#fff;--line:#d0d7de;--hot:#b3261e;
--cool:#0b57d0;--panel:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9da7b1;--paper:#0d1117;--line:#30363d;
--hot:#ff8a80;--cool:#8ab4f8;--panel:#161b22}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem;padding-top:.5rem;
border-top:1px solid var(--line)}
.dim,figcaption{color:var(--dim)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.5rem;padding:0}
.facts div{background:var(--panel);border-radius:.5rem;padding:.5rem .75rem}
.facts dt{color:var(--dim);font-size:.85rem}.facts dd{margin:0;font-size:1.4rem}
figure{margin:1rem 0}svg{width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere;min-width:4.5rem}td:first-child{min-width:9rem}
code{overflow-wrap:anywhere}li{margin:.5rem 0}details{margin:.5rem 0}
"""


def page(report: Report) -> str:
    """Return the report as one HTML page."""
    title = escape(f"{report.cluster}: an assessment")
    body = "\n".join(_sections(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _sections(report: Report) -> Iterable[str]:
    looked = duration(report.to_ms - report.from_ms)
    yield f"<h1>{escape(report.cluster)}</h1>"
    yield (
        f'<p class="dim">{escape(report.url)}, looked at for {looked} from '
        f"{format_instant(report.from_ms)}. Nothing was changed.</p>"
    )
    loads = report.loads
    facts = {
        "brokers": str(len(loads.brokers)),
        "bundles": number(report.bundle_count),
        "imbalance": _last(loads.imbalance),
        "its floor": _last(loads.floor),
        "moved meanwhile": str(len(report.moves)),
        "settings that hurt": str(len(report.harms)),
        "risks": str(len(report.risks)),
    }
    cells = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    yield f'<dl class="facts">{"".join(cells)}</dl>'
    yield "<h2>Load</h2>"
    yield heat_map(loads)
    yield _details("the loads as a table", _table(_load_rows(report)))
    yield f"<p>{escape(imbalance_line(report))}.</p>"
    yield imbalance_chart(loads)
    for title, rows in _found_tables(report).items():
        yield f"<h2>{title}</h2>{_table(rows[: _LISTED + 1])}"
    yield f"<h2>Settings that hurt</h2>{_findings(_harms(report), label='Better')}"
    risks, is_known = _risks(report), report.is_whole
    yield f"<h2>Risks</h2>{_findings(risks, 'None found' if is_known else NO_RISK_KNOWN)}"
    yield "<h2>What Ballast would do</h2>"
    yield _foreseen(report.foresight) if report.foresight else "<p>It can't be said yet.</p>"
    if report.strategies:
        yield f"<h2>{_TRIALS}</h2>{_table(tried_rows(report))}<p>{escape(USAGE_NOTE)}</p>"
    if report.notes:
        yield f"<h2>Not known</h2>{_list(escape(one) for one in report.notes)}"


def _last(values: Sequence[float | None]) -> str:
    value = last_known(values)
    return "-" if value is None else f"{value:.2f}"


def _load_rows(report: Report) -> Cells:
    loads = report.loads
    return [
        ("broker", "version", "usage", "msg/s", "bundles"),
        *(
            (
                name,
                report.versions.get(name, "-"),
                f"{_last(loads.percent[name])} %",
                _last(loads.msg_rates[name]),
                str(loads.bundles[name]),
            )
            for name in loads.brokers
        ),
    ]


def _findings(
    found: Iterable[tuple[str, str, str]], none: str = "None found", label: str = "Next"
) -> str:
    return _list(
        (
            f"<code>{escape(what)}</code><br>{escape(why)}.<br>{label}: {escape(step)}."
            for what, why, step in found
        ),
        none,
    )


def _foreseen(found: Foresight) -> str:
    names = ("kind", "bundle", "source", "destination", "reason")
    rows: Cells = [
        ("cycle", "what", "bundle", "from", "to", "why"),
        *((str(one["cycle"]), *(str(one[name]) for name in names)) for one in found.decisions),
    ]
    summary = (
        f"<p>Under <code>{escape(found.strategy)}</code>, in {found.cycles} cycles at least "
        f"{duration(found.cycle_ms)} apart, with load as it is now: "
        f"{len(found.decisions)} decisions; imbalance {_last([found.before.imbalance])} → "
        f"{_last([found.after.imbalance])}.</p>"
    )
    decided = _table(rows[: _LISTED + 1]) if found.decisions else "<p>Nothing would be decided.</p>"
    unknown = _details("what can't be known of it", _list(map(escape, found.unknown)))
    after = {one.broker: one for one in found.after.brokers}
    both = [(one, after.get(one.broker, one)) for one in found.before.brokers]
    balance: Cells = [
        ("broker", "msg/s before", "after", "bundles before", "after"),
        *(
            (
                one.broker,
                number(one.msg_rate),
                number(then.msg_rate),
                str(one.bundles),
                str(then.bundles),
            )
            for one, then in both
        ),
    ]
    return summary + _table(balance) + decided + unknown


def _table(rows: Cells) -> str:
    head, *rest = rows
    if not rest:
        return f"<p>{escape(head[0].capitalize())}.</p>" if len(head) == 1 else "<p>None known.</p>"
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rest
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="table">{table}</div>'


def _list(items: Iterable[str], none: str = "None found") -> str:
    found = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{found}</ul>" if found else f"<p>{none}.</p>"


def _details(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
