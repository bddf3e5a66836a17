"""What the job says when its JVM or Kafka is gone."""

import pytest
from kafka.errors import KafkaTimeoutError
from py4j.protocol import Py4JNetworkError

from jobs.adapters.spark.lost_parts import said_of, told_in_words
from jobs.console import CommandError


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "lost its JVM"),
        (ConnectionRefusedError(111, "Connection refused"), "lost its JVM"),
        (KafkaTimeoutError("Unable to bootstrap"), "can't go on without Kafka"),
    ],
)
def test_part_that_is_lost_is_told_in_words(found: Exception, said: str) -> None:
    with pytest.raises(CommandError) as raised, told_in_words():
        raise found
    assert said in str(raised.value)
    assert "start" in str(raised.value)


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), told_in_words():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("java.X\npy4j: TableBusyError: error: busy\n  why: w\n next: n\n  at ...",
         "error: busy\n  why: w\n next: n"),
        ("StoreError: no such bucket", "error: the job has ended\n  why: no such bucket"),
        ("java.lang.NullPointerException", ""),
    ],
)  # fmt: skip
def test_error_of_ours_in_sparks_text_is_told_in_its_own_words(error: str, said: str) -> None:
    assert said_of(error) == said
