"""Progress and remaining time of a long computation, a line on standard error.

Decides the words and their frequency: a bar redrawn in place on a terminal, a line each half minute
elsewhere. What ends within seconds shows nothing.
"""

import sys
import time
from collections.abc import Callable

from jobs.console import note
from lbcore.model.times import duration

_SILENT_S = 3.0
_DRAWN_EACH_S, _SAID_EACH_S = 0.5, 30.0
_BAR = 24
_SHARE_MIN = 0.005
_SECONDS_MAX = 120.0


class RunProgress:
    """The line of one computation. what: what is counted, "runs"."""

    def __init__(
        self, what: str, count: int, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._count = what, count
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._is_terminal = sys.stderr.isatty()
        self._told_s = self._began_s + (_SILENT_S - _DRAWN_EACH_S if self._is_terminal else 0.0)
        self._width = 0

    def tell(self, done: int, share: float) -> None:
        """So many are done, and that share of all work; says so when it is time to."""
        now_s = self._clock_s()
        if now_s - self._told_s < (_DRAWN_EACH_S if self._is_terminal else _SAID_EACH_S):
            return
        self._told_s = now_s
        words = progress_words(done, self._count, self._what, share, now_s - self._began_s)
        if not self._is_terminal:
            note(words)
            return
        full = round(share * _BAR)
        line = f"[{'#' * full}{'.' * (_BAR - full)}] {words}"
        sys.stderr.write(f"\r{line:{self._width}}")
        sys.stderr.flush()
        self._width = len(line)

    def clear(self) -> None:
        """Take the bar away, so that something else can be written."""
        if self._width:
            sys.stderr.write(f"\r{'':{self._width}}\r")
            sys.stderr.flush()
            self._width = 0


def progress_words(done: int, count: int, what: str, share: float, passed_s: float) -> str:
    """E.g. 12 of 44 runs, 31%, about 4 min left.

    What is left takes as long as what was done, share for share; nothing is foretold of less than
    half a percent.
    """
    words = f"{done} of {count} {what}, {share:.0%}"
    if share < _SHARE_MIN:
        return words
    left_s = passed_s * (1.0 - share) / share
    return f"{words}, about {duration(_rounded_s(left_s) * 1_000)} left"


def _rounded_s(seconds: float) -> int:
    """Whole seconds below two minutes, whole minutes above."""
    return round(seconds) if seconds < _SECONDS_MAX else 60 * round(seconds / 60.0)
