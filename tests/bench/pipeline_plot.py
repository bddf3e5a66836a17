"""The parts of a batch as bars, in an SVG file that any browser shows."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

_ROW, _LEFT, _WIDTH, _RIGHT = 18, 300, 560, 160
_WALL, _CPU = "#8fb3d9", "#20568f"


def bars(path: Path, parts: Mapping[str, Mapping[str, float]]) -> None:
    """A bar a part: its median wall time in ms, and over it, where known, its CPU time.

    parts: name → `ms`, and maybe `cpu_ms`. Parts below 0.5 ms are left out.
    """
    shown = {name: part for name, part in parts.items() if part["ms"] >= 0.5}
    most = max((part["ms"] for part in shown.values()), default=1.0)
    height = _ROW * (len(shown) + 2)
    width = _LEFT + _WIDTH + _RIGHT
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        '<text x="8" y="14">ms a batch, median: wall (light), CPU (dark) where it is known</text>',
    ]
    for row, (name, part) in enumerate(shown.items(), start=1):
        lines += _bar(row, name, part, _WIDTH / most)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


def _bar(row: int, name: str, part: Mapping[str, float], scale: float) -> list[str]:
    top = row * _ROW
    cpu = part.get("cpu_ms", 0.0)
    label = f"{part['ms']:g}" + (f" (CPU {cpu:g})" if cpu else "")
    long, short = part["ms"] * scale, cpu * scale
    return [
        f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{_LEFT}" y="{top + 3}" width="{long:.1f}" height="12" fill="{_WALL}"/>',
        f'<rect x="{_LEFT}" y="{top + 6}" width="{short:.1f}" height="6" fill="{_CPU}"/>',
        f'<text x="{_LEFT + long + 6:.1f}" y="{top + 13}">{label}</text>',
    ]
