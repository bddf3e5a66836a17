"""Many runs side by side, in processes: results in order, progress, and an orderly end.

Decides how the work is dealt out, and what Ctrl-C does: what is done is kept, what is under way is
given up (a run in this process ends at its next sample), and a second Ctrl-C ends at once. What a
run comes to does not depend on how many run beside it.
"""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from types import FrameType
from typing import Any, Generic, TypeVar

from jobs.console import CommandError, note
from jobs.parser import whole_number
from lbcore.model.times import duration
from lbcore.sim.engine.scenario_run import OnProgress

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

    def update(self, done: int, share: float) -> None:
        """So many are done, and that share of all work; says so when it is time to."""
        now_s = self._clock_s()
        if now_s - self._told_s < (_DRAWN_EACH_S if self._is_terminal else _SAID_EACH_S):
            return
        self._told_s = now_s
        words = progress_message(done, self._count, self._what, share, now_s - self._began_s)
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


def progress_message(done: int, count: int, what: str, share: float, passed_s: float) -> str:
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


Result = TypeVar("Result")

_POLL_S = 0.25
_STOPPED = "stopped: what follows is what was known by then"
_shares: Any = None
"""In a process that works: how far each item is, shared with the process that waits."""


def add_workers_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of processes of `ManyRuns`."""
    parser.add_argument(
        "--workers",
        type=whole_number,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes side by side; the answer is the same with any number",
    )


class ManyRuns(Generic[Result]):
    """Items worked on by several processes. is_cut: whether Ctrl-C ended it early."""

    def __init__(
        self, work: Callable[[Any, OnProgress], Result | None], workers: int, what: str = "runs"
    ) -> None:
        """work: what is done with an item; None: it was given up. workers: from 1.

        Work runs in other processes: it is a function of a module, or a partial of one, and items
        and results are values.
        """
        self._work, self._workers, self._what = work, workers, what
        self.is_cut = False

    def results(self, items: Sequence[Any], weights: Sequence[float] = ()) -> Iterator[Result]:
        """Yield the result of each item, in their order, as soon as it is known.

        weights: duration of each in proportion to the others; none: all the same. Raises
        CommandError if somebody else ended a process.
        """
        if not items:
            return
        weights = [max(1.0, weight) for weight in weights] or [1.0] * len(items)
        progress = RunProgress(self._what, len(items))
        with _until_interrupted(self._cut):
            alone = self._workers == 1 or len(items) == 1
            found = (self._here if alone else self._beside)(items, weights, progress)
            for result in found:
                progress.clear()
                if result is not None:
                    yield result
            progress.clear()
        if self.is_cut:
            note(_STOPPED)

    def _here(
        self, items: Sequence[Any], weights: Sequence[float], progress: RunProgress
    ) -> Iterator[Result | None]:
        """One after the other, in this process."""
        shares = [0.0] * len(items)
        for at, item in enumerate(items):
            if self.is_cut:
                return

            def on_progress(share: float, *, at: int = at) -> bool:
                shares[at] = share
                progress.update(at, _passed(shares, weights))
                return not self.is_cut

            yield self._work(item, on_progress)
            shares[at] = 1.0

    def _beside(
        self, items: Sequence[Any], weights: Sequence[float], progress: RunProgress
    ) -> Iterator[Result | None]:
        """Several at once, each in a process of its own."""
        shares = RawArray("d", len(items))
        before = set(multiprocessing.active_children())
        workers = min(self._workers, len(items))
        with ProcessPoolExecutor(workers, initializer=_begin, initargs=(shares,)) as pool:
            futures = [pool.submit(_work_on, self._work, at, item) for at, item in enumerate(items)]
            try:
                for future in futures:
                    while not (future.done() or self.is_cut):
                        wait([future], timeout=_POLL_S)
                        done = sum(one.done() for one in futures)
                        progress.update(done, _passed(shares, weights))
                    if self.is_cut and not future.done():
                        continue
                    yield future.result()
            except BrokenProcessPool:
                raise CommandError(
                    "a process that ran a simulation was ended from outside",
                    why="most often there was not enough memory for all of them",
                    next_step="run fewer side by side with --workers",
                ) from None
            finally:
                # none is cancelled: the pool, which ends with its processes, would trip over it
                if not all(future.done() for future in futures):
                    for process in set(multiprocessing.active_children()) - before:
                        process.terminate()

    def _cut(self) -> None:
        self.is_cut = True


@contextmanager
def _until_interrupted(cut: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `cut`, where this is the main thread; the next one is as usual."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        cut()
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread: nobody interrupts it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _passed(shares: Iterable[float], weights: Sequence[float]) -> float:
    """The share of all work that is done, by each item's."""
    done = sum(share * weight for share, weight in zip(shares, weights, strict=True))
    return done / sum(weights)


def _begin(shares: Any) -> None:
    """A process begins: Ctrl-C is for the one that waits."""
    global _shares  # noqa: PLW0603 the only way into a process of a pool
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work_on(work: Callable[[Any, OnProgress], Any], at: int, item: Any) -> Any:
    def on_progress(share: float) -> bool:
        _shares[at] = share
        return True

    found = work(item, on_progress)
    _shares[at] = 1.0
    return found
