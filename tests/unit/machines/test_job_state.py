"""How the job is: one judgement, in the same words wherever it is shown."""

import pytest

from lbcore.config.pipeline import Pipeline
from lbcore.explain.job_state import CycleGap, JobWord, gaps, judge_job

RHYTHM = Pipeline(heartbeat_commit_ms=10_000, decision_interval_ms=5_000)
SECOND_MS = 1_000


@pytest.mark.parametrize(
    ("wrote_s", "cycle_s", "word"),
    [
        (-1, -1, JobWord.NEVER_STARTED),
        (2, 3, JobWord.AT_WORK),
        (14, 18, JobWord.AT_WORK),
        (19, 23, JobWord.LATE),
        (29, 33, JobWord.LATE),
        (31, 35, JobWord.AWAY),
        (2, 21, JobWord.WITHOUT_CYCLES),
        (2, 19, JobWord.AT_WORK),
    ],
)
def test_job_is_judged_by_its_newest_commit_and_cycle(
    wrote_s: int, cycle_s: int, word: JobWord
) -> None:
    found = judge_job(wrote_s * SECOND_MS, cycle_s * SECOND_MS, RHYTHM)
    assert found.word is word
    assert found.message().startswith(f"{word.value}: ")


@pytest.mark.parametrize("frozen_s", range(0, 3_600, 7))
def test_frozen_job_is_never_said_to_write(frozen_s: int) -> None:
    for between_s in (0, 2, 4):
        found = judge_job(frozen_s * SECOND_MS, (frozen_s + between_s) * SECOND_MS, RHYTHM)
        assert found.word is not JobWord.WITHOUT_CYCLES
        assert (found.word is JobWord.AT_WORK) == (frozen_s <= 15)


def test_late_job_says_how_late_it_is() -> None:
    why = judge_job(19_000, 23_000, RHYTHM).why()
    assert why == "the streaming job is late: last commit 19 s ago, one is due every 10 s"


def test_times_without_cycles_are_told_afterwards_in_any_order_of_rows() -> None:
    rows = [{"cycle": n, "kind": "skip", "at_ms": n * 5_000} for n in (5, 1, 2, 50, 3, 4, 51)]
    late = {"cycle": 5, "kind": "failover", "at_ms": 100_000}  # bears the last cycle's number
    found = gaps([*rows, late], RHYTHM, 256_000)
    assert found == (CycleGap(from_ms=25_000, until_ms=250_000),)
    message = "no cycles from 1970-01-01 00:00:25 UTC to 1970-01-01 00:04:10 UTC (3 min 45 s)"
    assert found[0].message() == f"{message}: nothing was decided"
    assert gaps(rows, RHYTHM, 300_000)[-1] == CycleGap(from_ms=255_000, until_ms=0)
