"""The pictures of a report as inline SVG, readable at the width of a phone.

Decides scales and colours; each picture says in words what it shows, and a table stands beside it.
"""

import html

from jobs.console import printable
from lbcore.assess.loads import Loads
from lbcore.model.times import duration

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
    """Brokers by time, coloured by usage; a gap where a broker said nothing."""
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
    """Imbalance and its floor over time."""
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
    """From blue by yellow to red; readable on white and on black."""
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
