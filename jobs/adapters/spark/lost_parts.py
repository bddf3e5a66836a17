"""What the streaming job needs beside it, its JVM and Kafka, told in words when it is lost.

Decides only what is said: the job ends in either case, and whoever started it starts it again.
Source: ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka.errors import KafkaError
from py4j.protocol import Py4JError

from jobs.console import CommandError


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
