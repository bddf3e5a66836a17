"""Dashboards as PNG files, drawn from a Prometheus's data: no Grafana is needed to look at them."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from dashboards.pages import PAGES
from dashboards.panel import CLUSTER, RATE, Page, Panel, PanelKind

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

Ask = Callable[[str, float, float], list[dict[str, Any]]]
Times = tuple[float, float]

_COLUMNS, _WIDTH, _HEIGHT = 3, 6.4, 3.4
_LEGEND_MAX = 8
_GAP_S = 5.0
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SUFFIX = {"s": " s", "ms": " ms", "percent": " %", "bytes": " B", "Bps": " B/s"}
_PER_S = ("reqps", "cps")


def plain(expr: str, cluster: str = "local") -> str:
    """A panel's query without Grafana's variables."""
    return expr.replace(CLUSTER, cluster).replace(RATE, "10s").replace("[1m]", "[15s]")


def series_of(panel: Panel, ask: Ask, times: Times) -> dict[str, list[tuple[float, float]]]:
    """Legend → points (s since 1970, value) of all of a panel's queries."""
    found: dict[str, list[tuple[float, float]]] = {}
    for query in panel.queries:
        for series in ask(plain(query.expr), *times):
            name = _legend(query.legend, series["metric"])
            points = [(float(at), float(value)) for at, value in series["values"]]
            found[name] = [(at, value) for at, value in points if np.isfinite(value)]
    return {name: points for name, points in sorted(found.items()) if points}


def draw_pages(ask: Ask, times: Times, folder: Path) -> list[Path]:
    """A file a dashboard."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_draw(page, ask, times, folder / f"{page.slug}.png") for page in PAGES]


def _legend(text: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text).strip()


def _draw(page: Page, ask: Ask, times: Times, path: Path) -> Path:
    count = len(page.panels)
    rows = -(-count // _COLUMNS)
    figure, grid = plt.subplots(
        rows, _COLUMNS, figsize=(_COLUMNS * _WIDTH, rows * _HEIGHT), squeeze=False
    )
    marks = _marks(page, ask, times)
    for axes, panel in zip(grid.flat, page.panels, strict=False):
        _draw_panel(axes, panel, series_of(panel, ask, times), times)
        if panel.kind is not PanelKind.NUMBER and axes.has_data():
            for at in marks:
                axes.axvline(at - times[0], color="orange", linewidth=1.0, alpha=0.8, zorder=0)
    for axes in list(grid.flat)[count:]:
        axes.axis("off")
    figure.suptitle(page.title, fontsize=15, x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=70)
    plt.close(figure)
    return path


def _marks(page: Page, ask: Ask, times: Times) -> list[float]:
    """When each thing began that is marked."""
    found = []
    for mark in page.marks:
        for series in ask(plain(mark.expr), *times):
            at = [float(point[0]) for point in series["values"]]
            found += [
                here for here, before in zip(at, [0.0, *at], strict=False) if here - before > _GAP_S
            ]
    return found


def _with_gaps(
    points: Sequence[tuple[float, float]], start_s: float
) -> tuple[list[float], list[float]]:
    """Times from the start and values, with a hole where nothing is known."""
    at: list[float] = []
    values: list[float] = []
    for when, value in points:
        if at and when - start_s - at[-1] > _GAP_S:
            at.append(when - start_s)
            values.append(np.nan)
        at.append(when - start_s)
        values.append(value)
    return at, values


def _draw_panel(
    axes: Axes, panel: Panel, series: Mapping[str, Sequence[tuple[float, float]]], times: Times
) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left")
    if not series:
        axes.text(0.5, 0.5, "no data", ha="center", transform=axes.transAxes, color="grey")
        return
    if panel.kind is PanelKind.NUMBER:
        _draw_numbers(axes, panel, series)
        return
    if panel.kind is PanelKind.HEAT:
        _draw_heat(axes, series, times)
    elif panel.kind is PanelKind.STACKED:
        _draw_stack(axes, series, times)
    else:
        for name, points in series.items():
            at, values = _with_gaps(points, times[0])
            axes.plot(at, values, label=name, lw=1.2, marker="." if len(at) == 1 else None)
        axes.set_ylim(bottom=0)
    axes.set_xlim(0, times[1] - times[0])
    axes.set_xlabel("s", fontsize=7)
    axes.tick_params(labelsize=7)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, panel.unit)))
    axes.grid(alpha=0.25)
    is_seen = {name for name, points in series.items() if any(value for _, value in points)}
    pairs = zip(*axes.get_legend_handles_labels(), strict=True)
    shown_pairs = [pair for pair in pairs if pair[1] in is_seen]
    if shown_pairs:
        handles, names = zip(*shown_pairs, strict=True)
        axes.legend(
            handles[:_LEGEND_MAX], names[:_LEGEND_MAX], fontsize=6, loc="upper left", ncol=2
        )


def _draw_numbers(
    axes: Axes, panel: Panel, series: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    axes.axis("off")
    lines = [f"{shown(points[-1][1], panel.unit)}  {name}" for name, points in series.items()]
    axes.text(0.05, 0.5, "\n".join(lines), va="center", transform=axes.transAxes, fontsize=15)


def _draw_stack(
    axes: Axes, series: Mapping[str, Sequence[tuple[float, float]]], times: Times
) -> None:
    moments = sorted({at for points in series.values() for at, _ in points})
    seen = {name: dict(points) for name, points in series.items() if any(v for _, v in points)}
    if not seen:  # colours are for what can be seen
        axes.plot([at - times[0] for at in moments], [0.0] * len(moments), lw=1.2)
    rows = [[points.get(at, 0.0) for at in moments] for points in seen.values()]
    if rows:
        axes.stackplot([at - times[0] for at in moments], rows, labels=list(seen), alpha=0.75)
    axes.set_ylim(bottom=0)


def _draw_heat(
    axes: Axes, series: Mapping[str, Sequence[tuple[float, float]]], times: Times
) -> None:
    at = [at - times[0] for points in series.values() for at, _ in points]
    values = [value for points in series.values() for _, value in points]
    axes.hist2d(at, values, bins=(40, 20), cmap="Oranges")


def shown(value: float, unit: str) -> str:
    """A value in its unit, as short as it can be."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "ms" and value >= 1_000:
        return f"{value / 1_000:.3g} s"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1_000:.3g} ms"
    suffix = " /s" if unit in _PER_S else _SUFFIX.get(unit, "")
    for size, prefix in _PREFIXES:
        if abs(value) >= size and unit not in ("s", "none", "percent"):
            return f"{value / size:.3g} {prefix}{suffix.strip()}"
    return f"{value:.3g}{suffix}"
