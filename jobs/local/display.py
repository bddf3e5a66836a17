"""Where a run's status goes: a live view in a terminal, or one JSON line a second.

Decides only that. Source: ours.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live

from jobs.console import json_line, say
from jobs.local.options import RunOptions
from jobs.local.stack import Wiring
from jobs.local.status import RunStatus
from jobs.local.terminal import Escaped, render

_IMBALANCES_KEPT = 300


class Display(Protocol):
    """Shows one status after another, one a second."""

    def show(self, status: RunStatus) -> None:
        """Show this one."""
        ...


class JsonLines:
    """One line of JSON a status, on standard output; events only once."""

    def __init__(self) -> None:
        self._told: tuple[str, ...] = ()

    def show(self, status: RunStatus) -> None:
        """Write the line."""
        line = status.to_json()
        line["events"] = [event for event in status.events if event not in self._told]
        self._told = status.events
        say(json_line(line))


class LiveView:
    """The view that is drawn over itself."""

    def __init__(self, live: Live, hint_lines: Sequence[str]) -> None:
        self._live = live
        self._hints = hint_lines
        self._imbalances: list[float | None] = []

    def show(self, status: RunStatus) -> None:
        """Draw it."""
        self._imbalances = [*self._imbalances, status.imbalance][-_IMBALANCES_KEPT:]
        self._live.update(Escaped(render(status, self._imbalances, self._hints)), refresh=True)


@contextmanager
def make_display(options: RunOptions, hint_lines: Sequence[str]) -> Iterator[Display]:
    """The display that suits the run; leaves the terminal as it was."""
    if options.is_headless:
        yield JsonLines()
        return
    with Live(console=Console(markup=False, emoji=False), screen=True, auto_refresh=False) as live:
        yield LiveView(live, hint_lines)


def hints(wiring: Wiring) -> list[str]:
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
