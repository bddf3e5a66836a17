"""An embedded Kafka with the wire's topics, for tests that need the real one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from lbcore.wire.messages import Topic

PARTITIONS = 2
QUICK_JAVA = ("-XX:TieredStopAtLevel=1",)
"""For a JVM that lives for a minute: the thorough compiler takes more than it gives (a job starts
with 12 s of CPU instead of 18)."""


@contextmanager
def running_kafka(folder: Path) -> Iterator[EmbeddedKafka]:
    """A broker with every topic of the wire, two partitions each."""
    broker = EmbeddedKafka(folder, KafkaOptions(java_options=QUICK_JAVA))
    broker.start()
    try:
        make_topics(broker, KafkaAddress(bootstrap=broker.bootstrap))
        yield broker
    finally:
        broker.stop()


def make_topics(broker: EmbeddedKafka, address: KafkaAddress) -> None:
    admin = KafkaAdminClient(
        **{**address.client_options("test-topics"), "bootstrap_servers": broker.bootstrap}
    )
    configs = {"message.timestamp.type": "LogAppendTime"}
    compacted = {**configs, "cleanup.policy": "compact"}
    admin.create_topics(
        [
            NewTopic(
                address.topic_name(topic),
                PARTITIONS,
                1,
                topic_configs=compacted if topic is Topic.OWNERSHIP else configs,
            )
            for topic in Topic
        ]
    )
    admin.close()
