"""Many runs in processes: results in order, progress, and an orderly end.

Ctrl-C keeps what is done and gives the rest up. What a run comes to does not depend on how many run
beside it.
"""

import argparse
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

from jobs.console import CommandError, note
from jobs.parser import whole_number
from lbcore.model.times import duration

Result = TypeVar("Result")

_SAID_EACH_S = 10.0
_POLL_S = 0.25
_SHARE_MIN = 0.005
_SECONDS_MAX = 120.0


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

    def __init__(self, work: Callable[[Any], Result], workers: int, what: str = "runs") -> None:
        """work: what is done with an item. workers: from 1; with one it is this process.

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
        workers = min(self._workers, len(items))
        try:
            if workers > 1:
                with _until_interrupted(self._cut):
                    yield from self._beside(items, list(weights) or [1.0] * len(items), workers)
            else:
                yield from map(self._work, items)
        except KeyboardInterrupt:
            self._cut()
        except BrokenProcessPool:
            raise CommandError(
                "a process that ran a simulation was ended from outside",
                why="most often there was not enough memory for all of them",
                next_step="run fewer side by side with --workers",
            ) from None
        if self.is_cut:
            note("stopped: what follows is what was known by then")

    def _beside(
        self, items: Sequence[Any], weights: Sequence[float], workers: int
    ) -> Iterator[Result]:
        before = set(multiprocessing.active_children())
        ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
        with ProcessPoolExecutor(workers, initializer=signal.signal, initargs=ignore) as pool:
            futures = [pool.submit(self._work, item) for item in items]
            try:
                yield from self._awaited(futures, weights)
            finally:
                # none is cancelled: the pool, which ends with its processes, would trip over it
                if not all(future.done() for future in futures):
                    for process in set(multiprocessing.active_children()) - before:
                        process.terminate()

    def _awaited(
        self, futures: Sequence["Future[Result]"], weights: Sequence[float]
    ) -> Iterator[Result]:
        """Yield results in order, with progress; after a cut those that are done."""
        began_s = said_s = time.monotonic()
        for future in futures:
            while not (self.is_cut or wait([future], timeout=_POLL_S).done):
                now_s = time.monotonic()
                if now_s - said_s >= _SAID_EACH_S:
                    note(progress_message(futures, weights, self._what, now_s - began_s))
                    said_s = now_s
            if not self.is_cut or future.done():
                yield future.result()

    def _cut(self) -> None:
        self.is_cut = True


@contextmanager
def _until_interrupted(cut: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `cut`, where this is the main thread; the next one is as usual.

    An exception from anywhere would leave the pool with work that it waits for.
    """

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


def progress_message(
    futures: Sequence["Future[Any]"], weights: Sequence[float], what: str, passed_s: float
) -> str:
    """Return progress, such as 12 of 44 runs, 31%, about 4 min left.

    The rest is taken to be as long as what was done.
    """
    done = [max(1.0, one) for future, one in zip(futures, weights, strict=True) if future.done()]
    share = sum(done) / sum(max(1.0, one) for one in weights)
    words = f"{len(done)} of {len(futures)} {what}, {share:.0%}"
    if share < _SHARE_MIN:
        return words
    left_s = passed_s * (1.0 - share) / share
    rounded_s = round(left_s) if left_s < _SECONDS_MAX else 60 * round(left_s / 60.0)
    return f"{words}, about {duration(rounded_s * 1_000)} left"
