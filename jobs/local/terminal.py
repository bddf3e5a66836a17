"""Live views in the terminal, and the lines and JSON lines that a local run shows.

`ballast status --watch` and `run-local` draw over the whole screen by the same function.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.console import json_line, printable, say
from jobs.local.stack import Wiring
from jobs.local.status import RunStatus

_BAR_CELLS = 30
_MOVES_SHOWN = 8
_EVENTS_SHOWN = 4

Show = Callable[[RunStatus], None]


@contextmanager
def live_lines() -> Iterator[Callable[[Iterable[str]], None]]:
    """Draw lines on a screen of its own; the terminal is restored at the end.

    Lines beyond the screen's height are cut.
    """

    def draw(lines: Iterable[str]) -> None:
        live.update(escaped_text(lines), refresh=True)

    console = Console(markup=False, emoji=False, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield draw


def escaped_text(lines: Iterable[str]) -> Text:
    """The lines as drawn: what a terminal would obey is an escape."""
    return Text("\n".join(map(printable, lines)), no_wrap=True, overflow="ellipsis")


@contextmanager
def run_display(wiring: Wiring, *, is_headless: bool) -> Iterator[Show]:
    """Show a run: a live view, or one JSON line a status."""
    if is_headless:
        yield _JsonLines().show
        return
    hints = _hints(wiring)
    with live_lines() as draw:
        yield lambda status: draw([*run_lines(status), "", *hints])


class _JsonLines:
    """One line of JSON a status, on standard output; each event only once."""

    def __init__(self) -> None:
        self._told: tuple[str, ...] = ()

    def show(self, status: RunStatus) -> None:
        """Write the line."""
        line = status.to_json()
        line["events"] = [event for event in status.events if event not in self._told]
        self._told = status.events
        say(json_line(line))


def run_lines(status: RunStatus) -> Iterator[str]:
    """A run's status for people: troubles, brokers, the newest moves, how the job is."""
    minutes, seconds = divmod(status.elapsed_ms // 1_000, 60)
    uneven = "" if status.imbalance is None else f"   imbalance {status.imbalance:.2f}"
    opened = f"bundles open {status.bundles_open}/{status.bundles}"
    yield f"ballast  {minutes:02d}:{seconds:02d}  {status.phase}   {opened}{uneven}"
    yield from status.troubles
    yield ""
    yield from _broker_lines(status)
    yield ""
    yield "moves, the newest first" if status.recent_moves else "no moves yet"
    for move in reversed(status.recent_moves[-_MOVES_SHOWN:]):
        way = f"{move.source or '(nobody)'} → {move.destination or '(nobody)'}"
        yield f"  {move.bundle}  {way}  {move.cause}"
    yield ""
    yield f"job {status.job or 'not heard yet'}"
    yield (
        f"batches {status.batches}, cycle p50 {_ms(status.cycle_p50_ms)}, "
        f"p95 {_ms(status.cycle_p95_ms)}, moves {status.moves}, in flight {status.in_flight}"
    )
    if status.lookups is not None:
        counts = status.lookups
        yield (
            f"lookups {counts.sent}: {counts.right} right, {counts.wrong} wrong, "
            f"{counts.unavailable} told to wait, {counts.failed} failed, {counts.pending} under way"
        )
    again = [f"{name} × {count}" for name, count in status.restarts.items() if count]
    if again:
        yield f"restarted: {', '.join(again)}"
    yield from status.events[-_EVENTS_SHOWN:]


def _broker_lines(status: RunStatus) -> Iterator[str]:
    width = max((len(row.name) for row in status.brokers), default=0)
    top = max((row.msg_rate for row in status.brokers), default=0.0)
    yield f"{'broker':<{width}}  {'state':<9}  {'msg/s':>9}  {'':<{_BAR_CELLS}}  bundles  score"
    for row in status.brokers:
        bar = "█" * (round(row.msg_rate / top * _BAR_CELLS) if top > 0 else 0)
        score = "" if row.score is None else f"{row.score:.0%}"
        yield (
            f"{row.name:<{width}}  {row.state:<9}  {row.msg_rate:>9,.0f}  {bar:<{_BAR_CELLS}}"
            f"  {row.bundles:>7}  {score:>5}"
        )


def _hints(wiring: Wiring) -> Sequence[str]:
    """Commands that a user may try beside the run."""
    topic = "persistent/demo/crc32-1/my-topic"
    state = wiring.layout.root
    called = sys.argv[0] if Path(sys.argv[0]).name == "ballast" else "ballast"
    return [
        f"who serves a topic:  curl -i {wiring.lookup_url}/lookup/v2/topic/{topic}",
        f"crash a broker:      {called} kill-broker broker-1 --state-dir {state}",
        f"logs and tables:     {wiring.layout.logs}  {wiring.layout.tables}",
        "end it all:          Ctrl-C",
    ]


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"
