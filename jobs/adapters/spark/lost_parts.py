"""What ends the streaming job, told in words: the loss of its JVM or of Kafka, an error of ours.

Decides only what is said: the job ends in either case, and whoever started it starts it again.
Source: ours.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka.errors import KafkaError
from py4j.protocol import Py4JError

from jobs.console import CommandError

_OUR_ERRORS = (
    "FencedError: ",
    "StoreError: ",
    "ForkedError: ",
    "TableBusyError: ",
    "UnknownStateSchemaError: ",
    "MalformedBlobError: ",
    "OffsetsLostError: ",
)


class JvmLostError(CommandError):
    """The JVM in which Spark runs has ended."""

    def __init__(self, found: BaseException) -> None:
        super().__init__(
            "the streaming job has lost its JVM, in which Spark runs, and ends",
            why=f"it answers no more ({type(found).__name__}): it was killed, by the kernel for"
            " want of memory or by somebody, or it crashed",
            next_step="start the job again, where nothing does so by itself: nothing is lost. If it"
            " comes again, look for hs_err_pid*.log and into the kernel's log (dmesg)",
        )


class KafkaLostError(CommandError):
    """Kafka could not be reached in time."""

    def __init__(self, found: KafkaError) -> None:
        super().__init__(
            "the streaming job can't go on without Kafka and ends",
            why=f"{type(found).__name__}: {found}",
            next_step="start Kafka, then the job again, where nothing does so by itself",
        )


@contextmanager
def told_in_words() -> Iterator[None]:
    """Raise what is lost as a CommandError, instead of what the clients of JVM and Kafka raise."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:  # of Spark's own socket to the JVM
        raise JvmLostError(error) from error
    except KafkaError as error:
        raise KafkaLostError(error) from error


def said_of(error: str) -> str:
    """What to say of an error of ours that Spark has kept the text of; "" when it is none."""
    lines = error.splitlines()
    for number, line in enumerate(lines):
        for name in _OUR_ERRORS:
            if name in line:
                return _in_our_words(line.split(name, 1)[1], lines[number + 1 :])
    return ""


def _in_our_words(first: str, rest: Sequence[str]) -> str:
    if not first.startswith("error: "):
        return f"error: the job has ended\n  why: {first}"
    parts = [line for line in rest[:2] if line.startswith(("  why: ", " next: "))]
    return "\n".join([first, *parts])
