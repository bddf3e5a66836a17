"""Pictures of simulated runs: load per broker, imbalance, moves, load over hashes.

Decides what a picture shows and how it says what it shows: title, axes with units, a legend, what
happened at the top. Needs matplotlib, of the extra `plots`; `simulate --plot` imports this module
only then. Load over the hash space in time is PD's key visualizer.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.load_map import ROWS_MAX, LoadMap
from lbcore.sim.engine.recorder import CausedMove
from lbcore.sim.judge.measures import floor_adjusted_of, imbalance_of
from lbcore.sim.scenario.model import ScenarioEvent

Axes: TypeAlias = Any

FORMATS = ("svg", "png")
STRATEGIES = "strategies"
WIDTH_IN, HEIGHT_IN, DPI = 11.0, 5.5, 110
BROKERS_NAMED = 12
MOVES_MARKED = 300
_LABELS_MAX = 24
_COLOURS = 10
_BARS = 60
_ALIKE = 0.01
_MINUTE_MS = 60_000.0
_HOURS_FROM_MS = 3 * 3_600_000
_CAUSES = {
    "shed": "#0072B2",
    "split": "#E69F00",
    "merge": "#F0E442",
    "failover": "#D55E00",
    "drain": "#009E73",
    "admin": "#CC79A7",
    "restart": "#56B4E9",
}
_OTHER = "#777777"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """Data of a picture. title: of the scenario, and its strategy."""

    title: str
    run: Run
    load_map: LoadMap

    @property
    def unit_ms(self) -> float:
        """Of the time axis: minutes, of long runs hours."""
        return _unit_ms(self.run.scenario.run_ms)

    def time(self, at_ms: float) -> float:
        """A time on the axis."""
        return at_ms / self.unit_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRun:
    """Data drawn of one of several runs: imbalance, and times of moves.

    imbalances: floor-adjusted, at times_ms; NaN where nothing could be judged.
    """

    title: str
    strategy: str
    run_ms: int
    times_ms: Sequence[int]
    imbalances: Sequence[float]
    moved_ms: Sequence[int]

    @property
    def unit_ms(self) -> float:
        """Of the time axis, as a Shot's."""
        return _unit_ms(self.run_ms)

    @property
    def mean(self) -> float:
        """Of the imbalances that there are."""
        return float(np.nanmean(self.imbalances)) if len(self.imbalances) else math.inf


def drawn_run(title: str, strategy: str, run: Run) -> DrawnRun:
    """Return the data to draw of a run beside others."""
    samples = run.recorder.samples
    found = [floor_adjusted_of(sample) for sample in samples]
    return DrawnRun(
        title=title,
        strategy=strategy,
        run_ms=run.scenario.run_ms,
        times_ms=[sample.at_ms for sample in samples],
        imbalances=[math.nan if value is None else value for value in found],
        moved_ms=[one.move.at_ms for one in run.recorder.moves],
    )


def _unit_ms(run_ms: int) -> float:
    return 60 * _MINUTE_MS if run_ms >= _HOURS_FROM_MS else _MINUTE_MS


def draw_all(shot: Shot, folder: Path, stem: str) -> list[Path]:
    """Write every picture in every format; returns the files. Raises OSError."""
    return [
        path
        for name, draw in PICTURES.items()
        for path in _written(partial(draw, shot), folder / f"{stem}-{name}")
    ]


def draw_strategies(runs: Sequence[DrawnRun], folder: Path, stem: str) -> list[Path]:
    """Write the picture of runs under several strategies side by side. Raises OSError."""
    return _written(partial(_draw_strategies, runs), folder / f"{stem}-{STRATEGIES}")


def _written(draw: Callable[[Figure], None], where: Path) -> list[Path]:
    where.parent.mkdir(parents=True, exist_ok=True)
    files = [where.with_name(f"{where.name}.{suffix}") for suffix in FORMATS]
    with mpl.rc_context({"svg.hashsalt": "ballast", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        for path in files:
            about = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=DPI, metadata=about)
    return files


def _draw_strategies(runs: Sequence[DrawnRun], figure: Figure) -> None:
    """Draw avoidable imbalance and the moves so far, a line a strategy."""
    unit_ms = runs[0].unit_ms
    even, moved = figure.subplots(2, 1, sharex=True)
    even.set_title(f"Strategies side by side\n{runs[0].title}", loc="left", fontsize=11)
    even.set_ylabel("floor-adjusted\nimbalance (1 = even)")
    moved.set_ylabel("bundles moved so far")
    moved.set_xlabel("time, hours" if unit_ms > _MINUTE_MS else "time, minutes")
    for number, drawn in enumerate(sorted(runs, key=lambda one: (one.mean, one.strategy))):
        style = {"color": f"C{number % _COLOURS}", "ls": "-" if number < _COLOURS else "--"}
        times = np.array(drawn.times_ms) / unit_ms
        label = f"{drawn.strategy}: {drawn.mean:.2f} in the mean"
        even.plot(times, drawn.imbalances, label=label, linewidth=1.4, **style)
        at = np.sort(np.array(drawn.moved_ms)) / unit_ms
        steps = np.arange(len(at) + 2).clip(max=len(at))
        moved.step([0.0, *at, drawn.run_ms / unit_ms], steps, where="post", linewidth=1.4,
                   label=f"{drawn.strategy}: {len(at)}", **style)  # fmt: skip
    even.axhline(1.2, color="#999999", linewidth=0.8, linestyle=":", label="1.2")
    moved.set_xlim(0.0, runs[0].run_ms / unit_ms)
    moved.set_ylim(bottom=0)
    moved.yaxis.get_major_locator().set_params(integer=True)
    for axes in (even, moved):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        _finish(axes)


def draw_loads(shot: Shot, figure: Figure) -> None:
    """Each broker's load over time; up and down: where a bundle came and went."""
    axes = _axes(shot, figure, "Load of each broker", "load, % of the broker's capacity")
    names = list(shot.run.nodes)
    times, loads = _loads(shot.run)
    times = times / shot.unit_ms
    if len(names) <= BROKERS_NAMED:
        for number, name in enumerate(names):
            style = {"color": f"C{number % _COLOURS}", "ls": "-" if number < _COLOURS else "--"}
            axes.plot(times, loads[:, number], label=name, linewidth=1.4, **style)
    else:
        axes.plot(times, loads, color="#9db4c8", linewidth=0.5)
        axes.plot([], [], color="#9db4c8", linewidth=0.8, label=f"each of {len(names)} brokers")
        for percent, colour in ((100, "#D55E00"), (50, "#000000"), (0, "#0072B2")):
            label = {100: "highest", 50: "median", 0: "lowest"}[percent]
            axes.plot(times, _percentiles(loads, percent), color=colour, label=label)
    _mark_moves(shot, axes, names, times, loads)
    axes.set_ylim(bottom=0)
    _finish(axes)


def draw_imbalance(shot: Shot, figure: Figure) -> None:
    """Draw the imbalance of load, with and without the part that no move can undo."""
    axes = _axes(shot, figure, "Imbalance", "highest load / mean load (1 = all alike)")
    samples = shot.run.recorder.samples
    times = [shot.time(sample.at_ms) for sample in samples]
    for read, label, colour in (
        (imbalance_of, "imbalance", "#9cc4e4"),
        (floor_adjusted_of, "floor-adjusted: against\nmax(mean, hottest bundle)", "#D55E00"),
    ):
        values = [value if (value := read(sample)) is not None else np.nan for sample in samples]
        wide = 4.0 if read is imbalance_of else 1.4  # so that both are seen where they are one
        axes.plot(times, values, label=label, color=colour, linewidth=wide)
    axes.axhline(1.0, color="#999999", linewidth=0.8)
    axes.axhline(1.2, color="#999999", linewidth=0.8, linestyle=":", label="1.2")
    _finish(axes)


def draw_moves(shot: Shot, figure: Figure) -> None:
    """Draw the number of bundles moved over time, by reason."""
    run = shot.run
    edges = np.linspace(0.0, shot.time(run.scenario.run_ms), _BARS + 1)
    axes = _axes(shot, figure, "Moves by reason",
                 f"bundles moved in each {_span(edges[1] * shot.unit_ms)}")  # fmt: skip
    totals = Counter(one.cause for one in run.recorder.moves)
    bottom = np.zeros(_BARS)
    for cause in sorted(totals, key=lambda name: (-totals[name], name)):
        at = [shot.time(one.move.at_ms) for one in run.recorder.moves if one.cause == cause]
        counts = np.histogram(at, edges)[0]
        axes.bar(edges[:-1], counts, np.diff(edges), bottom, align="edge", label=f"{cause}: "
                 f"{totals[cause]}", color=_CAUSES.get(cause, _OTHER))  # fmt: skip
        bottom += counts
    if run.recorder.splits:
        at = [shot.time(at_ms) for at_ms in run.recorder.splits]
        axes.plot(at, np.zeros(len(at)), "k^", clip_on=False, label=f"splits: {len(at)}")
    if not totals:
        axes.text(0.5, 0.5, "no bundle moved", transform=axes.transAxes, ha="center")
        axes.set_ylim(0, 1)
    axes.yaxis.get_major_locator().set_params(integer=True)
    _finish(axes, has_legend=bool(totals or run.recorder.splits))


def draw_heat(shot: Shot, figure: Figure) -> None:
    """Draw each bundle's load over time, the hash space from top to bottom.

    Dots: it moved.
    """
    load_map = shot.load_map
    title = "Load of each bundle" if len(load_map.rows) < ROWS_MAX else "Load over the hash space"
    loads = np.array(load_map.loads).T if load_map.loads else np.zeros((len(load_map.rows), 1))
    known = loads[~np.isnan(loads)]
    highest = float(known.max(initial=0.0))
    if len(known) and np.ptp(known) <= _ALIKE * highest:  # one colour, that of neither end
        title, highest = f"{title}: {highest:.3g} % of a broker, alike and always", 2 * highest
    axes = _axes(shot, figure, title, "bundles, by namespace and hash", legend_room=False)
    extent = (0.0, shot.time(shot.run.scenario.run_ms), float(len(load_map.rows)), 0.0)
    colours = mpl.colormaps["viridis"].with_extremes(bad="#ffffff")
    image = axes.imshow(np.ma.masked_invalid(loads), aspect="auto", extent=extent, cmap=colours,
                        interpolation="nearest", vmin=0.0, vmax=highest or 1.0)  # fmt: skip
    figure.colorbar(image, ax=axes, label="load, % of a broker of capacity 1 (white: no service)")
    marked = shot.run.recorder.moves[:: max(1, len(shot.run.recorder.moves) // MOVES_MARKED)]
    at = [(shot.time(one.move.at_ms), load_map.row_of(one.move.bundle) + 0.5) for one in marked]
    if at:
        axes.scatter(*zip(*at, strict=True), s=9, color="#ffffff", edgecolors="#D55E00",
                     linewidths=0.8, label="a bundle moved", clip_on=False)  # fmt: skip
        axes.legend(loc="lower right", fontsize=8)
    _name_spaces(axes, load_map)


PICTURES: Mapping[str, Callable[[Shot, Figure], None]] = {
    "loads": draw_loads,
    "imbalance": draw_imbalance,
    "moves": draw_moves,
    "heat": draw_heat,
}
"""What there is to see of a run: the end of its files' names, and what draws it."""


def _axes(shot: Shot, figure: Figure, what: str, unit: str, *, legend_room: bool = True) -> Axes:
    axes = figure.add_subplot()
    axes.set_title(f"{what}\n{shot.title}", loc="left", fontsize=11, pad=24)
    axes.set_xlabel("time, hours" if shot.unit_ms > _MINUTE_MS else "time, minutes")
    axes.set_ylabel(unit)
    axes.set_xlim(0.0, shot.time(shot.run.scenario.run_ms))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if legend_room:
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    _mark_happenings(shot, axes)
    return axes


def _mark_happenings(shot: Shot, axes: Axes) -> None:
    """Mark the scenario's events, with labels above the picture where they fit."""
    last = -np.inf
    room = shot.time(shot.run.scenario.run_ms) / _LABELS_MAX
    for one in shot.run.scenario.scenario_events:
        at = shot.time(one.at_ms)
        axes.axvline(at, color="#555555", linewidth=0.7, linestyle=":")
        if at - last >= room:
            axes.annotate(_event_label(one), (at, 1.0), xycoords=("data", "axes fraction"),
                          fontsize=8, color="#444444", rotation=12, ha="left",
                          va="bottom")  # fmt: skip
            last = at


def _event_label(one: ScenarioEvent) -> str:
    brokers = one.brokers[0] if one.brokers else ""
    more = f" +{len(one.brokers) - 1}" if len(one.brokers) > 1 else ""
    return f"{one.options.get('kind', one.verb)} {brokers}{more}".strip()


def _loads(run: Run) -> tuple[Any, Any]:
    """Times in ms, and float[samples, brokers]; NaN before a broker was there."""
    samples = run.recorder.samples
    loads = np.full((len(samples), len(run.nodes)), np.nan)
    for row, sample in enumerate(samples):
        loads[row, : len(sample.loads)] = sample.loads
    return np.array([sample.at_ms for sample in samples], dtype=float), loads


def _percentiles(loads: Any, percent: int) -> list[float]:
    return [
        float(np.percentile(known, percent)) if len(known := row[~np.isnan(row)]) else np.nan
        for row in loads
    ]


def _mark_moves(shot: Shot, axes: Axes, names: Sequence[str], times: Any, loads: Any) -> None:
    """Mark moves on the lines of taker and giver; the legend counts all."""
    made = shot.run.recorder.moves
    if not made or not len(times):
        return
    marked = made[:: -(-len(made) // MOVES_MARKED)]
    by_name = {name: number for number, name in enumerate(names)}

    def places(who: Callable[[CausedMove], str]) -> list[tuple[float, float]]:
        found = []
        for one in marked:
            row = min(int(np.searchsorted(times, shot.time(one.move.at_ms))), len(times) - 1)
            found.append((shot.time(one.move.at_ms), loads[row, by_name[who(one)]]))
        return [place for place in found if not np.isnan(place[1])]

    for who, shape, word in (
        (lambda one: one.move.destination, "^", "takes"),
        (lambda one: one.move.source, "v", "gives"),
    ):
        at = places(who)
        label = f"{word} a bundle ({len(made)} moves)"
        axes.scatter(*(zip(*at, strict=True) if at else ((), ())), marker=shape, s=16, zorder=3,
                     color="#222222", alpha=0.6, linewidths=0, label=label)  # fmt: skip


def _name_spaces(axes: Axes, load_map: LoadMap) -> None:
    """Namespaces on the left, a line between two."""
    names = [row.namespace for row in load_map.rows]
    places = {name: [at for at, one in enumerate(names) if one == name] for name in names}
    axes.set_yticks([(rows[0] + rows[-1] + 1) / 2 for rows in places.values()], list(places))
    axes.tick_params(axis="y", length=0)
    for rows in list(places.values())[1:]:
        axes.axhline(rows[0], color="#ffffff", linewidth=1.2)


def _span(length_ms: float) -> str:
    return f"{length_ms / 1_000:.0f} s" if length_ms < 2 * _MINUTE_MS else (
        f"{length_ms / _MINUTE_MS:.0f} min"
    )  # fmt: skip


def _finish(axes: Axes, *, has_legend: bool = True) -> None:
    if has_legend:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
