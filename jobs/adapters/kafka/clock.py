"""When Kafka took the newest message of `broker-load`, by its own clock.

Decides nothing. The job sends a tick a second there, so this is Kafka's clock to a second or two.
Source: ours.
"""

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.console import CommandError
from lbcore.wire.messages import Topic


def newest_record_ms(address: KafkaAddress, timeout_ms: int) -> int | None:
    """Its LogAppendTime, ms since 1970; None when the topic is empty.

    Raises CommandError when Kafka can't be asked.
    """
    topic = address.topic_name(Topic.BROKER_LOAD)
    try:
        consumer = KafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            **{**address.client_options("doctor"), "bootstrap_timeout_ms": timeout_ms},
        )
        try:
            return _newest(consumer, topic, timeout_ms)
        finally:
            consumer.close()
    except KafkaError as cause:
        raise CommandError(
            f"{topic} can't be read",
            why=str(cause),
            next_step="check the address, and this user's rights Describe and Read on it",
        ) from None


def _newest(consumer: KafkaConsumer, topic: str, timeout_ms: int) -> int | None:
    parts = [TopicPartition(topic, n) for n in sorted(consumer.partitions_for_topic(topic) or ())]
    ends = consumer.end_offsets(parts, timeout_ms=timeout_ms) if parts else {}
    filled = [part for part in parts if ends[part] > 0]
    if not filled:
        return None
    consumer.assign(filled)
    for part in filled:
        consumer.seek(part, ends[part] - 1)
    batches = consumer.poll(timeout_ms=timeout_ms)
    times = [record.timestamp for batch in batches.values() for record in batch]
    return max(times, default=None)
