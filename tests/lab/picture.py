"""How even brokers were over a run, contender under contender, as an SVG file."""

from collections.abc import Mapping, Sequence
from html import escape

from tests.lab.bars import CONTENDERS
from tests.lab.records import BOUND, Record

_LEFT, _WIDTH, _RIGHT = 60, 640, 20
_ROW, _HIGH, _TOP = 120, 80, 24
_MOST = 3.0
"""The scale's end; even is its beginning."""
_SMALL = 'font-size="10" fill="#777"'
_COLOURS = ("#20568f", "#d9822b", "#4b9b4b", "#8f3f71", "#777777")


def picture(runs: Mapping[str, Sequence[Record]]) -> str:
    """Max/mean over time: a row a contender, a line a run, a tick each decided move."""
    longest = max((one.watched_s for found in runs.values() for one in found), default=1.0)
    height, width = _ROW * len(runs) + _TOP, _LEFT + _WIDTH + _RIGHT
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        '<text x="8" y="14">busiest broker over the mean; dashed: 1.25; ticks: moves</text>',
    ]
    for number, (name, found) in enumerate(runs.items()):
        lines += _row(_TOP + number * _ROW, CONTENDERS[name].title, found, _WIDTH / longest)
    return "\n".join([*lines, "</svg>", ""])


def _row(top: int, title: str, runs: Sequence[Record], scale: float) -> list[str]:
    bottom = top + 20 + _HIGH
    bound = _y(bottom, BOUND)
    end = _LEFT + _WIDTH
    lines = [
        f'<text x="8" y="{top + 14}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{_LEFT} {bound:.1f}H{end}" stroke="#999" stroke-dasharray="4 3"/>',
        f'<path d="M{_LEFT} {bottom}H{end}" stroke="#333"/>',
        f'<text x="{_LEFT - 8}" y="{bottom}" text-anchor="end">1.0</text>',
        f'<text x="{_LEFT - 8}" y="{bottom - _HIGH + 8}" text-anchor="end">{_MOST}</text>',
    ]
    for phase in runs[0].phases:
        x = _LEFT + phase.began_s * scale
        lines += [
            f'<path d="M{x:.1f} {bottom}V{bottom - _HIGH}" stroke="#ddd"/>',
            f'<text x="{x + 2:.1f}" y="{bottom + 15}" {_SMALL}>{escape(phase.name)}</text>',
        ]
    for number, run in enumerate(runs):
        lines += _line(run, bottom, scale, _COLOURS[number % len(_COLOURS)])
    return lines


def _line(run: Record, bottom: int, scale: float, colour: str) -> list[str]:
    path, at_s = "", 0.0
    for held_s, sample in run.stretches():
        x, y = _LEFT + at_s * scale, _y(bottom, sample.ratio)
        path += f"{'V' if path else f'M{x:.1f} '}{y:.1f}"
        at_s = at_s + held_s
        path += f"H{_LEFT + at_s * scale:.1f}"
    ticks = "".join(f"M{_LEFT + move.at_s * scale:.1f} {bottom}v5" for move in run.own_moves)
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        f'<path d="{ticks or "M0 0"}" stroke="{colour}"/>',
    ]


def _y(bottom: int, ratio: float) -> float:
    return bottom - (min(ratio, _MOST) - 1.0) / (_MOST - 1.0) * _HIGH
