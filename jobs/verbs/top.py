"""Watch a running cluster in the terminal: brokers, load, imbalance, moves, last decisions.

From the tables, or with --url from a lookup service. Keys: arrows select a broker, s sorts, e
explains it, Esc goes back, q quits. With --once or --json one look is written.
"""

import argparse
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live

from jobs.console import CommandError, Exit, MisuseError, answer
from jobs.operating.durations import parse_duration_ms
from jobs.operating.keyboard import keyboard
from jobs.operating.sources import ServiceSource, Source, TablesSource, explanation_lines
from jobs.operating.stack_words import add_stack_arguments, whereabouts
from jobs.operating.top_view import Shown, TopState, after_key, ordered, render

_EVERY_MS = 2_000
_KEY_WAIT_S = 0.2
_LAST_LOOK_S = 30.0
_WIDTH, _LINES_AROUND = 110, 14


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is watched, and how often."""
    parser.add_argument("--url", default="", metavar="URL", help="of a lookup service to ask")
    parser.add_argument(
        "--every",
        type=parse_duration_ms,
        default=_EVERY_MS,
        metavar="TIME",
        help="between two looks (2s)",
    )
    parser.add_argument("--once", action="store_true", help="write one look and end")
    parser.epilog = "example: ballast top --url http://127.0.0.1:8080"
    add_stack_arguments(parser, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Draw until q is pressed; 130 after Ctrl-C, 143 after SIGTERM."""
    source: Source = ServiceSource(args.url) if args.url else TablesSource(whereabouts(args))
    if args.json or args.once:
        overview = dict(source.overview())
        answer(args, overview, _one_look(overview))
        return Exit.DONE
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise MisuseError(
            "`top` needs a terminal",
            why="standard input or output is none",
            next_step="use `ballast top --once`, or `ballast status`",
        )
    source.overview()  # what can't be seen at all is said before the screen is cleared
    watcher = _Watcher(source, args.every)
    watcher.start()
    try:
        _watch(watcher)
    finally:
        watcher.stop()
    return Exit.DONE


def _one_look(overview: Mapping[str, Any]) -> str:
    """The view as text, without colours, and as long as it takes to name every broker."""
    console = Console(width=_WIDTH, color_system=None)
    status = overview["status"]
    height = 2 * (len(status["broker_rows"]) + len(status["alarms"])) + _LINES_AROUND
    with console.capture() as drawn:
        console.print(render(TopState(), Shown(overview=overview), height))
    kept = [line.rstrip() for line in drawn.get().splitlines()]
    return "\n".join(kept[:-1])  # the last line names keys


def _watch(watcher: "_Watcher") -> None:
    console, state, drawn = Console(), TopState(), None
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not state.is_over:
            shown = watcher.shown
            if drawn != (state, shown, console.size):
                drawn = (state, shown, console.size)
                live.update(render(state, shown, console.size.height), refresh=True)
            for key in keys.keys(_KEY_WAIT_S):
                names = [row["broker"] for row in ordered(watcher.shown.overview, state.order)]
                state = after_key(state, key, names)
                watcher.ask(state.explained)


class _Watcher(threading.Thread):
    """Looks again and again, and explains, so that keys never wait for tables or the network."""

    def __init__(self, source: Source, every_ms: int) -> None:
        super().__init__(name="ballast-top", daemon=True)
        self.shown = Shown()
        self._source = source
        self._every_s = every_ms / 1_000
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._explained = ""

    def ask(self, broker: str) -> None:
        """Explain this broker from now on, "" = none; returns at once."""
        if broker != self._explained:
            self._explained = broker
            self.shown = replace(self.shown, explanation=())
            self._asked.put(broker)

    def stop(self) -> None:
        """End after the look that is under way: Delta's threads must not outlive the program."""
        self._asked.put(None)
        self.join(_LAST_LOOK_S)

    def run(self) -> None:
        """Look, then wait for a question or until it is time to look again."""
        is_over = False
        while not is_over:
            self._look()
            try:
                is_over = self._asked.get(timeout=self._every_s) is None
            except queue.Empty:
                continue

    def _look(self) -> None:
        broker = self._explained
        try:
            lines = explanation_lines(self._source.explain(broker)) if broker else []
            overview = self._source.overview()
        except CommandError as error:
            self.shown = replace(self.shown, trouble=f"{error.what}: {error.why}"[:300])
            return
        if broker == self._explained:
            self.shown = Shown(overview=overview, explanation=tuple(lines))
