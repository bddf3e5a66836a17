"""An embedded Kafka with the wire's topics, for tests that need the real one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from jobs.adapters.processes.processes import Child
from jobs.console import CommandError
from lbcore.wire.messages import Topic

PARTITIONS = 2
QUICK_JAVA = ("-XX:TieredStopAtLevel=1",)
"""For a JVM that lives for a minute: the thorough compiler takes more than it gives (a job starts
with 12 s of CPU instead of 18)."""


class KafkaNode(EmbeddedKafka):
    """An embedded Kafka that a test starts, stops and kills; a context manager."""

    _child: Child | None = None

    @property
    def pid(self) -> int:
        """The id of the running Java process; 0 when it was not started."""
        return self._child.pid if self._child else 0

    def __enter__(self) -> "KafkaNode":  # noqa: PYI034 (Self is 3.11's)
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers. Raises CommandError with the reason."""
        self.prepare()
        self._child = Child(self.spec())
        try:
            self._child.wait_until_ready()
        except CommandError:
            self._child.kill()
            raise

    def stop(self) -> None:
        """Stop it in order (about 1 s); nothing if it does not run."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would; `start` recovers its data."""
        if self._child is not None:
            self._child.kill()
            self._child = None


@contextmanager
def running_kafka(folder: Path) -> Iterator[KafkaNode]:
    """A broker with every topic of the wire, two partitions each."""
    broker = KafkaNode(folder, KafkaOptions(java_options=QUICK_JAVA))
    broker.start()
    try:
        make_topics(broker, KafkaAddress(bootstrap=broker.bootstrap))
        yield broker
    finally:
        broker.stop()


def make_topics(broker: KafkaNode, address: KafkaAddress) -> None:
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
