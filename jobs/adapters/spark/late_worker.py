"""Queries that end before their first batch because a Python worker came too late.

Decides that such a query is begun again, so many times. Spark waits ten seconds, which no setting
changes, for the worker with which the driver prepares the state of a query that begins
(`PythonWorkerFactory` of Spark 4.2.1); on a busy machine its imports alone take longer. Source:
ours.
"""

from collections.abc import Callable

from jobs.console import CommandError, note

STARTS_MAX = 6
_SAID = "Python worker failed to connect back"


class LateWorkerError(Exception):
    """A query has ended for it before anything was worked on."""


def is_late_worker(error: str) -> bool:
    """Return True if a query's error, as Spark words it, is this one."""
    return _SAID in error


def in_time(attempt: Callable[[], int]) -> int:
    """Return an attempt's result; try again when it raises LateWorkerError.

    STARTS_MAX attempts in all. Raises CommandError when the last one was late, too.
    """
    for number in range(1, STARTS_MAX + 1):
        try:
            return attempt()
        except LateWorkerError:  # noqa: PERF203 (six at most)
            note(
                f"Spark's Python worker did not start within 10 s ({number} of {STARTS_MAX} tries):"
                " the machine is busy"
            )
    raise CommandError(
        "the streaming query could not begin",
        why=f"Spark waits 10 s for a Python worker, and none of {STARTS_MAX} started so quickly",
        next_step="start the job again when the machine is less busy, or give it more cores",
    )
