"""Answers of a service to its agent: its load, its topics and its exceptions.

Decides nothing (`lbcore.agent.load_validation` says what can be reported). Makes sure that no
answer, whatever it is, ends the thread that asks.
"""

import logging
from collections.abc import Callable, Iterator
from traceback import format_exception

from jobs.agent_host.service_callbacks import Callbacks
from lbcore.agent.load_validation import Checked, check_load, check_topics, shown_type
from lbcore.agent.reporting import LoadRead, TopicsRead

logger = logging.getLogger(__name__)

_FAILURE_CHARS_MAX = 4_096


def failure_of(error: BaseException) -> str:
    """Return an exception as a sentence, even if its own text can't be read."""
    try:
        words = str(error)[:_FAILURE_CHARS_MAX]
    except BaseException:  # noqa: BLE001 its __str__ raises, whatever that is
        words = "what it says can't be had"
    return f"{type(error).__name__}: {words}"


def log_failure(error: BaseException, what: str) -> None:
    """Log what was raised, with its stack, in characters that every log can hold."""
    try:
        stack = "".join(format_exception(error))
    except BaseException:  # noqa: BLE001 of a foreign class, whose words may raise again
        stack = ""
    fields = {"error": _printable(failure_of(error)), "stack": _printable(stack)}
    logger.error(what, extra={"fields": fields})


def _printable(text: str) -> str:
    return text[-_FAILURE_CHARS_MAX:].encode("utf-8", "backslashreplace").decode()


def read_load(
    callbacks: Callbacks, tell: Callable[[LoadRead | TopicsRead], None], is_late: Callable[[], bool]
) -> str:
    """Ask for load and topics, and return what is wrong ("" = nothing).

    What can't be reported is named. is_late: whether this has taken so long that topics, which may
    never end, are read no further.
    """
    faults = []
    try:
        for checked in _answers(callbacks):
            if is_late():
                break
            if checked.read is not None:
                tell(checked.read)
            faults.append(checked.fault)
    except BaseException as error:  # noqa: BLE001 SystemExit, too: it is not this thread's
        log_failure(error, "load can't be read")
        faults.append(failure_of(error))
    return next(filter(None, faults), "")


def _answers(callbacks: Callbacks) -> Iterator[Checked[LoadRead] | Checked[TopicsRead]]:
    yield check_load(callbacks.load())
    answer: object = callbacks.topics()
    try:
        topics = iter(answer)  # type: ignore[call-overload]  # that is what is tried
    except TypeError:
        fault = f"topics() must return a list of TopicsRead, got {shown_type(answer)}"
        yield Checked(read=None, fault=fault)
        return
    for read in topics:
        yield check_topics(read)
