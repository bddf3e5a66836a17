"""Time of the newest message of `broker-load`, by Kafka's clock.

The job sends a tick a second there, so this is Kafka's clock to a second or two. It stands in the
header of a batch, so nothing that anybody sent is inflated.
"""

from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.raw_fetch import RawFetcher, connection_text, latest_offsets
from jobs.adapters.kafka.record_batches import split_batches
from jobs.console import CommandError
from lbcore.wire.messages import Topic


def newest_record_ms(address: KafkaAddress, timeout_ms: int) -> int | None:
    """Its LogAppendTime, ms since 1970; None when the topic is empty.

    Raises CommandError when Kafka can't be asked.
    """
    topic = address.topic_name(Topic.BROKER_LOAD)
    try:
        return _newest(connection_text(address, bootstrap_timeout_ms=timeout_ms), topic)
    except KafkaError as cause:
        raise CommandError(
            f"{topic} can't be read",
            why=str(cause),
            next_step="check the address, and this user's rights Describe and Read on it",
        ) from None


def _newest(connection: str, topic: str) -> int | None:
    ends = latest_offsets(connection, [topic])
    wanted = {place: end - 1 for place, end in ends.items() if end > 0}
    if not wanted:
        return None
    fetcher = RawFetcher(connection, (topic,))
    try:
        found = fetcher.fetch(wanted)
    finally:
        fetcher.close()
    times = [
        batch.newest_ms
        for place, part in found.items()
        for batch in split_batches(part.log, wanted[place])
    ]
    return max(times, default=None)
