"""Many runs side by side: order, one answer with any number of processes, and an orderly end."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from jobs.console import CommandError
from jobs.operating.many_runs import ManyRuns, progress_message

HERE = os.getpid()


def doubled(item: int) -> int:
    """The later ones are done first."""
    time.sleep(0.02 * (5 - item))
    return 2 * item


def interrupting(item: int) -> int:
    """The third gets Ctrl-C, as everybody in front of the terminal does, and is given up."""
    if item == 2:
        os.kill(HERE, signal.SIGINT)
        time.sleep(600)
    return item


def long_interrupted(item: int) -> int:
    """The first gets Ctrl-C; most have not begun by then."""
    if item == 0:
        os.kill(HERE, signal.SIGINT)
    time.sleep(600)
    return item


def endless(item: int) -> int:
    """Nobody waits for the end of it."""
    time.sleep(600)
    return item


class InterruptedItems(list[int]):
    """Ctrl-C comes while the items are handed to the processes."""

    def __iter__(self) -> Iterator[int]:
        for at, item in enumerate(super().__iter__()):
            if at == 3:
                os.kill(HERE, signal.SIGINT)
            yield item


def killed(_item: int) -> int:
    """Nobody sees the end of it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_results_come_in_the_order_of_their_items(workers: int) -> None:
    assert list(ManyRuns(doubled, workers).results(range(5))) == [0, 2, 4, 6, 8]


def test_nothing_to_run_comes_to_nothing() -> None:
    assert list(ManyRuns(doubled, 2).results([])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_is_done_and_gives_up_the_rest(
    workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: ManyRuns[int] = ManyRuns(interrupting, workers)
    before = signal.getsignal(signal.SIGINT)
    found = list(runs.results([0, 1, 2, 3, 4, 5]))
    assert runs.is_cut
    if workers == 1:
        assert found == [0, 1]
    # of several, others may be done by then or not: what is done is kept, in order
    assert set(found) <= {0, 1, 3, 4, 5}
    assert found == sorted(found)
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_many_have_not_begun_leaves_no_trace_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr("threading.excepthook", failed.append)
    assert list(ManyRuns(long_interrupted, 2).results(range(2_000))) == []
    assert failed == []


def test_ctrl_c_while_work_is_handed_out_waits_for_none_of_it() -> None:
    runs: ManyRuns[int] = ManyRuns(endless, 2)
    assert list(runs.results(InterruptedItems(range(10)))) == []
    assert runs.is_cut


def test_process_that_is_killed_is_told() -> None:
    with pytest.raises(CommandError, match="ended from outside"):
        list(ManyRuns(killed, 2).results([0, 1]))


@pytest.mark.parametrize(
    ("done", "passed_s", "words"),
    [
        (0, 5.0, "0 of 2 runs, 0%"),
        (1, 30.0, "1 of 2 runs, 75%, about 10 s left"),
        (2, 30.0, "2 of 2 runs, 100%, about 0 ms left"),
    ],
)
def test_what_is_left_is_in_proportion_to_what_is_done(
    done: int, passed_s: float, words: str
) -> None:
    futures = [Future[int](), Future[int]()]
    for future in futures[:done]:
        future.set_result(1)
    assert progress_message(futures, [30.0, 10.0], "runs", passed_s) == words
