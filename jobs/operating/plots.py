"""Picture of a simulated run: brokers' loads, imbalance, moves, load over hashes.

Needs matplotlib, of the extra `plots`; `simulate --plot` imports this module only then. The
heat map of the hash space is modelled on TiDB's Key Visualizer.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lbcore.model.times import HOUR_MS, MINUTE_MS
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import ROWS_MAX, LoadMap
from lbcore.sim.judge.measures import floor_adjusted_of, imbalance_of

Axes: TypeAlias = Any

FORMATS = ("svg", "png")
WIDTH_IN, PANEL_IN, DPI = 12.0, 4.0, 110
BROKERS_NAMED = 12
MOVES_MARKED = 300
_LABELS_MAX = 24
_COLOURS = 10
_BARS = 60
_ALIKE = 0.01
_HOURS_FROM_MS = 3 * HOUR_MS
_CAUSES = {
    "shed": "#0072B2",
    "split": "#E69F00",
    "merge": "#F0E442",
    "failover": "#D55E00",
    "drain": "#009E73",
    "admin": "#CC79A7",
    "restart": "#56B4E9",
}


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
    def mean(self) -> float:
        """Mean of the known imbalances; infinite without samples."""
        return float(np.nanmean(self.imbalances)) if len(self.imbalances) else math.inf


def drawn_run(title: str, strategy: str, run: Run) -> DrawnRun:
    """Return the data to draw of a run beside others."""
    samples = run.recorder.samples
    return DrawnRun(
        title=title,
        strategy=strategy,
        run_ms=run.scenario.run_ms,
        times_ms=[sample.at_ms for sample in samples],
        imbalances=_values(samples, floor_adjusted_of),
        moved_ms=[one.move.at_ms for one in run.recorder.moves],
    )


def draw_run(title: str, run: Run, load_map: LoadMap, where: Path) -> list[Path]:
    """Write the picture of a run in every format; returns the files. Raises OSError."""
    with _picture(4, title, run.scenario.run_ms, where) as (panels, unit_ms, files):
        _mark_events(panels, run, unit_ms)
        _draw_loads(panels[0], run, unit_ms)
        _draw_imbalance(panels[1], run, unit_ms)
        _draw_moves(panels[2], run, unit_ms)
        _draw_heat(panels[3], run, load_map, unit_ms)
    return files


def draw_strategies(runs: Sequence[DrawnRun], where: Path) -> list[Path]:
    """Write the picture of runs under several strategies side by side. Raises OSError."""
    title = f"Strategies side by side\n{runs[0].title}"
    with _picture(2, title, runs[0].run_ms, where) as ((even, moved), unit_ms, files):
        even.set_ylabel("floor-adjusted\nimbalance (1 = even)")
        moved.set_ylabel("bundles moved so far")
        for number, drawn in enumerate(sorted(runs, key=lambda one: (one.mean, one.strategy))):
            label = f"{drawn.strategy}: {drawn.mean:.2f} in the mean"
            even.plot(
                np.array(drawn.times_ms) / unit_ms, drawn.imbalances, label=label, **_style(number)
            )
            at = np.sort(np.array(drawn.moved_ms)) / unit_ms
            steps = np.arange(len(at) + 2).clip(max=len(at))
            label = f"{drawn.strategy}: {len(at)}"
            times = [0.0, *at, drawn.run_ms / unit_ms]
            moved.step(times, steps, where="post", label=label, **_style(number))
        even.axhline(1.2, color="#999999", linewidth=0.8, linestyle=":", label="1.2")
        moved.yaxis.get_major_locator().set_params(integer=True)
    return files


@contextmanager
def _picture(
    panels: int, title: str, run_ms: int, where: Path
) -> Iterator[tuple[Sequence[Axes], float, list[Path]]]:
    """Yield panels over one time axis, its unit in ms, and the files to be written."""
    where.parent.mkdir(parents=True, exist_ok=True)
    files = [where.with_name(f"{where.name}.{suffix}") for suffix in FORMATS]
    unit_ms = HOUR_MS if run_ms >= _HOURS_FROM_MS else MINUTE_MS
    with mpl.rc_context({"svg.hashsalt": "ballast", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(WIDTH_IN, PANEL_IN * panels), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left")
        found = figure.subplots(panels, 1, sharex=True)
        yield found, unit_ms, files
        for axes in found:
            axes.spines[["top", "right"]].set_visible(False)
            if axes.get_legend_handles_labels()[1]:
                axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
        found[-1].set_xlabel("time, hours" if unit_ms > MINUTE_MS else "time, minutes")
        found[-1].set_xlim(0.0, run_ms / unit_ms)
        for path in files:
            about = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=DPI, metadata=about)


def _style(number: int) -> dict[str, Any]:
    return {
        "color": f"C{number % _COLOURS}",
        "ls": "-" if number < _COLOURS else "--",
        "linewidth": 1.4,
    }


def _values(samples: Iterable[Any], read: Callable[[Any], float | None]) -> list[float]:
    """A measure of each sample, NaN where there is none."""
    found = map(read, samples)
    return [math.nan if value is None else value for value in found]


def _mark_events(panels: Sequence[Axes], run: Run, unit_ms: float) -> None:
    """Mark the scenario's events, with labels above the first panel where they fit."""
    last, room = -math.inf, run.scenario.run_ms / unit_ms / _LABELS_MAX
    for one in run.scenario.scenario_events:
        at = one.at_ms / unit_ms
        for axes in panels:
            axes.axvline(at, color="#555555", linewidth=0.7, linestyle=":")
        if at - last >= room:
            more = f" +{len(one.brokers) - 1}" if len(one.brokers) > 1 else ""
            label = f"{one.options.get('kind', one.verb)} {''.join(one.brokers[:1])}{more}"
            place = {"xycoords": ("data", "axes fraction"), "rotation": 12, "va": "bottom"}
            panels[0].annotate(label.strip(), (at, 1.0), fontsize=8, color="#444444", **place)
            last = at


def _draw_loads(axes: Axes, run: Run, unit_ms: float) -> None:
    """Draw each broker's load; triangles up and down: it took or gave a bundle."""
    axes.set_title("Load of each broker", loc="left", fontsize=11, pad=24)
    axes.set_ylabel("load, % of the broker's capacity")
    names, samples = list(run.nodes), run.recorder.samples
    times = np.array([sample.at_ms for sample in samples]) / unit_ms
    loads = np.full((len(samples), len(names)), np.nan)  # NaN before a broker was there
    for row, sample in enumerate(samples):
        loads[row, : len(sample.loads)] = sample.loads
    if len(names) <= BROKERS_NAMED:
        for number, name in enumerate(names):
            axes.plot(times, loads[:, number], label=name, **_style(number))
    else:
        axes.plot(times, loads, color="#9db4c8", linewidth=0.5)
        axes.plot([], [], color="#9db4c8", label=f"each of {len(names)} brokers")
        is_known = ~np.isnan(loads).all(axis=1)
        for percent, label, colour in (
            (100, "highest", "#D55E00"),
            (50, "median", "#000000"),
            (0, "lowest", "#0072B2"),
        ):
            values = np.nanpercentile(loads[is_known], percent, axis=1)
            axes.plot(times[is_known], values, color=colour, label=label)
    moves = run.recorder.moves
    marked = moves[:: max(1, len(moves) // MOVES_MARKED)] if len(times) else []
    for side, shape, word in (("destination", "^", "takes"), ("source", "v", "gives")):
        at = [one.move.at_ms / unit_ms for one in marked]
        rows = np.searchsorted(times, at).clip(max=len(times) - 1)
        columns = [names.index(getattr(one.move, side)) for one in marked]
        label = f"{word} a bundle ({len(moves)} moves)"
        style = {"color": "#222222", "alpha": 0.6, "linewidths": 0}
        axes.scatter(at, loads[rows, columns], marker=shape, s=16, zorder=3, label=label, **style)
    axes.set_ylim(bottom=0)


def _draw_imbalance(axes: Axes, run: Run, unit_ms: float) -> None:
    """Imbalance of load, with and without the part that no move can undo."""
    axes.set_title("Imbalance", loc="left", fontsize=11)
    axes.set_ylabel("highest load / mean load (1 = all alike)")
    samples = run.recorder.samples
    times = [sample.at_ms / unit_ms for sample in samples]
    for read, label, colour, width in (  # widths so that both are seen where they are one
        (imbalance_of, "imbalance", "#9cc4e4", 4.0),
        (floor_adjusted_of, "floor-adjusted: against\nmax(mean, hottest bundle)", "#D55E00", 1.4),
    ):
        axes.plot(times, _values(samples, read), label=label, color=colour, linewidth=width)
    axes.axhline(1.2, color="#999999", linewidth=0.8, linestyle=":", label="1.2")


def _draw_moves(axes: Axes, run: Run, unit_ms: float) -> None:
    edges = np.linspace(0.0, run.scenario.run_ms / unit_ms, _BARS + 1)
    axes.set_title("Moves by reason", loc="left", fontsize=11)
    axes.set_ylabel(f"bundles moved in each {edges[1] * unit_ms / 1_000:.0f} s")
    totals = Counter(one.cause for one in run.recorder.moves)
    bottom = np.zeros(_BARS)
    for cause, total in totals.most_common():
        at = [one.move.at_ms / unit_ms for one in run.recorder.moves if one.cause == cause]
        counts = np.histogram(at, edges)[0]
        colour, label = _CAUSES.get(cause, "#777777"), f"{cause}: {total}"
        axes.bar(
            edges[:-1], counts, np.diff(edges), bottom, align="edge", label=label, color=colour
        )
        bottom += counts
    splits = run.recorder.splits
    if splits:
        at = [at_ms / unit_ms for at_ms in splits]
        axes.plot(at, np.zeros(len(at)), "k^", clip_on=False, label=f"splits: {len(at)}")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _draw_heat(axes: Axes, run: Run, load_map: LoadMap, unit_ms: float) -> None:
    """Each bundle's load over time, the hash space from top to bottom; dots: it moved."""
    names = [row.namespace for row in load_map.rows]
    title = "Load of each bundle" if len(names) < ROWS_MAX else "Load over the hash space"
    loads = np.array(load_map.loads).T if load_map.loads else np.zeros((len(names), 1))
    known = loads[~np.isnan(loads)]
    highest = float(known.max(initial=0.0))
    if len(known) and np.ptp(known) <= _ALIKE * highest:  # one colour, that of neither end
        title, highest = f"{title}: {highest:.3g} % of a broker, alike and always", 2 * highest
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel("bundles, by namespace and hash")
    extent = (0.0, run.scenario.run_ms / unit_ms, float(len(names)), 0.0)
    style = {"interpolation": "nearest", "vmin": 0.0, "vmax": highest or 1.0}
    image = axes.imshow(np.ma.masked_invalid(loads), aspect="auto", extent=extent, **style)
    label = "load, % of a broker of capacity 1 (white: no service)"
    axes.figure.colorbar(image, ax=axes, label=label)
    marked = run.recorder.moves[:: max(1, len(run.recorder.moves) // MOVES_MARKED)]
    at = [one.move.at_ms / unit_ms for one in marked]
    rows = [load_map.row_of(one.move.bundle) + 0.5 for one in marked]
    axes.scatter(at, rows, s=9, color="#ffffff", edgecolors="#D55E00", label="a bundle moved")
    places = {name: [at for at, one in enumerate(names) if one == name] for name in names}
    axes.set_yticks([(some[0] + some[-1] + 1) / 2 for some in places.values()], list(places))
    for some in list(places.values())[1:]:
        axes.axhline(some[0], color="#ffffff", linewidth=1.2)
