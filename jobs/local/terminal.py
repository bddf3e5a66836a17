"""The live view of a local run: each broker's load, the imbalance, what moved and why.

Decides only what it looks like; every number comes from `RunStatus`. Source: ours, drawn with rich.
"""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from jobs.console import printable
from jobs.local.job_log import ShownMove
from jobs.local.status import BrokerRow, RunStatus

_BAR_CELLS = 30
_MOVES_SHOWN = 8
_EVENTS_SHOWN = 4
_SPARKS = "▁▂▃▄▅▆▇█"
_EVEN, _UNEVEN = 1.15, 1.5
_STATE_STYLES = {
    "active": "green",
    "draining": "yellow",
    "hanging": "yellow",
    "paused": "yellow",
    "killed": "red",
    "silent": "red",
    "suspected": "yellow",
}


class Escaped:
    """Another view whose text is made printable after it was laid out."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        for segment in console.render(self._view, options):
            if segment.control:
                yield segment
            else:
                text = "\n".join(map(printable, segment.text.split("\n")))
                yield Segment(text, segment.style)


def render(
    status: RunStatus, imbalances: Sequence[float | None], hints: Sequence[str]
) -> RenderableType:
    """The whole view. imbalances: one a second, oldest first; hints: commands to try."""
    return Group(
        _headline(status, imbalances),
        Text("\n".join(status.troubles), style="bold red"),
        _brokers(status),
        Panel(_moves(status.recent_moves), title="moves", title_align="left"),
        Panel(_health(status), title="health", title_align="left"),
        Text("\n".join(hints), style="dim"),
    )


def sparkline(values: Sequence[float | None], cells: int) -> str:
    """The last values, one character each, from 1.0 (even) to the largest of them."""
    shown = [1.0 if value is None else value for value in values[-cells:]]
    top = max([*shown, _UNEVEN])
    return "".join(_SPARKS[_level(value, top)] for value in shown)


def _level(value: float, top: float) -> int:
    return min(len(_SPARKS) - 1, int((value - 1.0) / (top - 1.0) * len(_SPARKS)))


def _headline(status: RunStatus, imbalances: Sequence[float | None]) -> Text:
    text = Text(f"ballast  {_clock(status.elapsed_ms)}  {status.phase}", style="bold")
    text.append(f"   bundles open {status.bundles_open}/{status.bundles}", style="default")
    if status.imbalance is not None:
        text.append(f"   imbalance {status.imbalance:.2f} ", style=how_even(status.imbalance))
        text.append(sparkline(imbalances, _BAR_CELLS), style="cyan")
    return text


def _brokers(status: RunStatus) -> Table:
    table = Table(expand=True, box=None, pad_edge=False)
    for name, justify in (("broker", "left"), ("state", "left"), ("load, msg/s", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("", ratio=1)
    table.add_column("bundles", justify="right")
    table.add_column("score", justify="right")
    top = max((row.msg_rate for row in status.brokers), default=0.0)
    for row in status.brokers:
        table.add_row(*_broker(row, top))
    return table


def _broker(row: BrokerRow, top: float) -> tuple[RenderableType, ...]:
    score = "" if row.score is None else f"{row.score:.0%}"
    return (
        row.name,
        state_text(row.state),
        f"{row.msg_rate:,.0f}",
        load_bar(row.msg_rate, top),
        str(row.bundles),
        score,
    )


def _moves(moves: Sequence[ShownMove]) -> RenderableType:
    if not moves:
        return Text("none yet", style="dim")
    table = Table.grid(padding=(0, 2))
    for move in reversed(moves[-_MOVES_SHOWN:]):
        way = f"{move.source or '(nobody)'} → {move.destination or '(nobody)'}"
        table.add_row(move.bundle, way, Text(move.cause, style="magenta"))
    return table


def _health(status: RunStatus) -> Text:
    batches = (
        f"batches {status.batches}, cycle p50 {_ms(status.cycle_p50_ms)}, "
        f"p95 {_ms(status.cycle_p95_ms)}, moves {status.moves}, in flight {status.in_flight}"
    )
    lines = [f"job {status.job or 'not heard yet'}", batches]
    if status.lookups is not None:
        counts = status.lookups
        lines.append(
            f"lookups {counts.sent}: {counts.right} right, {counts.wrong} wrong, "
            f"{counts.unavailable} told to wait, {counts.failed} failed, {counts.pending} under way"
        )
    again = {name: count for name, count in status.restarts.items() if count}
    if again:
        lines.append("restarted: " + ", ".join(f"{name} × {n}" for name, n in again.items()))
    return Text("\n".join(map(printable, [*lines, *status.events[-_EVENTS_SHOWN:]])))


def state_text(state: str) -> Text:
    """A broker's state in its colour."""
    return Text(state, style=_STATE_STYLES.get(state, "default"))


def load_bar(value: float, top: float) -> Text:
    """A bar; full at `top`."""
    cells = round(value / top * _BAR_CELLS) if top > 0 else 0
    return Text("█" * cells, style="blue")


def how_even(imbalance: float) -> str:
    """The colour of an imbalance."""
    if imbalance <= _EVEN:
        return "green"
    return "yellow" if imbalance <= _UNEVEN else "red"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _clock(elapsed_ms: int) -> str:
    minutes, seconds = divmod(elapsed_ms // 1000, 60)
    return f"{minutes:02d}:{seconds:02d}"
