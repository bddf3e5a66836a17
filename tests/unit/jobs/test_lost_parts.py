"""What the job says when its JVM or Kafka is gone."""

import pytest
from kafka.errors import KafkaTimeoutError
from py4j.protocol import Py4JNetworkError

from jobs.adapters.spark.lost_parts import told_in_words
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
