"""Watch a running cluster in the terminal: brokers, load, imbalance, moves, last decisions.

From the tables, or with --url from a lookup service. Keys: arrows select a broker, s sorts, /
filters, e explains it, b shows its bundles, D drains it, ? names all keys, q quits. With --once or
--json one look is written.
"""

import argparse
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live

from jobs.console import CommandError, Exit, MisuseError, answer
from jobs.local.terminal import Escaped
from jobs.operating.durations import parse_duration_ms
from jobs.operating.keyboard import keyboard
from jobs.operating.sources import (
    ServiceSource,
    Source,
    TablesSource,
    bundle_lines,
    explanation_lines,
)
from jobs.operating.stack_words import add_stack_arguments, whereabouts
from jobs.operating.top_view import (
    BUNDLES,
    DRAIN,
    EXPLAIN,
    Shown,
    TopState,
    after_key,
    ordered,
    render,
)

_EVERY_MS = 2_000
_KEY_WAIT_S = 0.2
_LAST_LOOK_S = 30.0
_WIDTH, _LINES_AROUND = 110, 14
_READ: Mapping[str, Callable[[Source, str], Sequence[str]]] = {
    EXPLAIN: lambda source, broker: explanation_lines(source.explain(broker)),
    BUNDLES: lambda source, broker: bundle_lines(source.bundles(broker)),
}
_ASKED = frozenset({*_READ, DRAIN})
_AFTER_A_DRAIN = (
    "`ballast broker cancel-drain` lets it take bundles again,",
    "`ballast plan undo --drain` fills it again",
)


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
    add_stack_arguments(parser)


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


def _one_look(overview: Mapping[str, Any]) -> list[str]:
    """The view as text, without colours, and as long as it takes to name every broker."""
    console = Console(width=_WIDTH, color_system=None, markup=False)
    status = overview["status"]
    told = len(status["alarms"]) + len(status.get("warnings", ()))
    height = 2 * (len(status["broker_rows"]) + told) + _LINES_AROUND
    with console.capture() as drawn:
        console.print(Escaped(render(TopState(), Shown(overview=overview), height)))
    kept = [line.rstrip() for line in drawn.get().split("\n")]
    return kept[:-2]  # the last line names keys


def _watch(watcher: "_Watcher") -> None:
    console, state, drawn = Console(markup=False), TopState(), None
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not state.is_over:
            shown = watcher.shown
            if drawn != (state, shown, console.size):
                drawn = (state, shown, console.size)
                live.update(Escaped(render(state, shown, console.size.height)), refresh=True)
            for key in keys.keys(_KEY_WAIT_S):
                rows = ordered(watcher.shown.overview, state.order, state.wanted)
                state = after_key(state, key, [row["broker"] for row in rows])
                watcher.ask(state.panel if state.panel in _ASKED else "", state.about)


class _Watcher(threading.Thread):
    """Looks again and again, and asks, so that keys never wait for tables or the network."""

    def __init__(self, source: Source, every_ms: int) -> None:
        super().__init__(name="ballast-top", daemon=True)
        self.shown = Shown()
        self._source = source
        self._every_s = every_ms / 1_000
        self._asked: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._question = ("", "")

    def ask(self, panel: str, broker: str) -> None:
        """Have this panel's lines from now on, "" = none; returns at once."""
        question = (panel, broker) if panel else ("", "")
        if question != self._question:
            self._question = question
            self.shown = replace(self.shown, lines=())
            self._asked.put(question)

    def stop(self) -> None:
        """End after the look that is under way: Delta's threads must not outlive the program."""
        self._asked.put(None)
        self.join(_LAST_LOOK_S)

    def run(self) -> None:
        """Look, then wait for a question or until it is time to look again."""
        self._look()
        while True:
            try:
                asked = self._asked.get(timeout=self._every_s)
            except queue.Empty:
                self._look()
                continue
            if asked is None:
                return
            if asked[0] == DRAIN:
                self._drain(asked)
            else:
                self._look()

    def _drain(self, question: tuple[str, str]) -> None:
        """Once, however often is looked."""
        try:
            found = self._source.drain(question[1])
            lines = [f"the drain is {found['status']}{found['reason'] and ': ' + found['reason']}"]
            lines += _AFTER_A_DRAIN
        except CommandError as error:
            lines = [error.what, f"why: {error.why}", f"next: {error.next_step}"]
        self._show(question, lines)

    def _look(self) -> None:
        question = self._question
        panel, broker = question
        lines = self.shown.lines
        try:
            if panel in _READ:
                lines = _READ[panel](self._source, broker)
            overview = self._source.overview()
        except CommandError as error:
            self.shown = replace(self.shown, trouble=f"{error.what}: {error.why}"[:300])
            return
        self.shown = replace(self.shown, overview=overview, trouble="")
        self._show(question, lines)

    def _show(self, question: tuple[str, str], lines: Sequence[str]) -> None:
        if question == self._question:
            self.shown = replace(self.shown, lines=tuple(lines))
