"""Live views in the terminal, and a local run's own lines and JSON lines.

`ballast status --watch` and `run-local` draw a status by the same function.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.console import json_line, printable, say
from jobs.local.stack import RunProcesses
from jobs.local.status import RunStatus

_EVENTS_SHOWN = 4

Show = Callable[[RunStatus], None]


@contextmanager
def live_lines() -> Iterator[Callable[[Iterable[str]], None]]:
    """Draw lines on an alternate screen; the terminal is restored at the end.

    Lines beyond the screen's height are cut.
    """

    def draw(lines: Iterable[str]) -> None:
        live.update(escaped_text(lines), refresh=True)

    console = Console(markup=False, emoji=False, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield draw


def escaped_text(lines: Iterable[str]) -> Text:
    """Return the lines as text, with terminal control characters escaped."""
    return Text("\n".join(map(printable, lines)), no_wrap=True, overflow="ellipsis")


class JsonLines:
    """Writer of one JSON line per status, with each event once."""

    def __init__(self) -> None:
        self._written_events: tuple[str, ...] = ()

    def show(self, status: RunStatus) -> None:
        """Write the line."""
        line = asdict(status)
        line["events"] = [event for event in status.events if event not in self._written_events]
        self._written_events = status.events
        say(json_line(line))


def run_lines(status: RunStatus) -> Iterator[str]:
    """Yield a run's own lines: phase, troubles, lookups, restarts, events."""
    minutes, seconds = divmod(status.elapsed_ms // 1_000, 60)
    opened = f"bundles open {status.bundles_open}/{status.bundles}"
    yield f"ballast  {minutes:02d}:{seconds:02d}  {status.phase}   {opened}"
    yield from status.troubles
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


def hints(processes: RunProcesses) -> list[str]:
    """Return commands to try beside the run."""
    topic = "persistent/demo/crc32-1/my-topic"
    layout = processes.layout
    called = sys.argv[0] if Path(sys.argv[0]).name == "ballast" else "ballast"
    return [
        f"who serves a topic:  curl -i {processes.lookup_url}/lookup/v2/topic/{topic}",
        f"crash a broker:      {called} kill-broker broker-1 --state-dir {layout.root}",
        f"logs and tables:     {layout.logs}  {layout.tables}",
        "end it all:          Ctrl-C",
    ]
