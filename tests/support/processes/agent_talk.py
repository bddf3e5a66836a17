"""What agents say on the real Kafka, parsed, and a pen for the records that they follow."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

from kafka import KafkaProducer

from jobs.adapters.kafka.clients import KafkaAddress, Tail
from lbcore.config.wire import Wire
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.wire_record import format_record
from lbcore.wire.messages import Ack, Acks, Message, Rejected, Topic
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules

CLUSTER = "c"
TIMEOUT_S = 180.0
_RULES = ParseRules(clusters=frozenset({CLUSTER}), limits=Wire())
_REPORTS = (Topic.BROKER_LOAD, Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD, Topic.ACKS)


class AgentTalk:
    """Reads every topic that agents write to; every message must be a good one."""

    def __init__(self, address: KafkaAddress) -> None:
        self.address = address
        self._tails = {topic: Tail(address, topic, f"test-{topic.value}") for topic in _REPORTS}
        self._said: list[Message] = []
        self._producer = KafkaProducer(
            bootstrap_servers=address.bootstrap, transactional_id="test-balancer"
        )
        self._producer.init_transactions()
        self._topic = address.topic_name(Topic.OWNERSHIP)

    def write(self, *records: OwnershipRecord) -> None:
        """Records in one transaction, as the job writes them."""
        self._producer.begin_transaction()
        for record in records:
            key, value = format_record(record)
            self._producer.send(self._topic, value, key)
        self._producer.flush()
        self._producer.commit_transaction()

    def said(self, broker: str) -> list[Any]:
        """All that the broker has said up to now, of every topic."""
        for topic, tail in self._tails.items():
            for message in tail.poll(50):
                parsed = parse(topic, message.key.encode(), message.value, _RULES)
                assert not isinstance(parsed, Rejected), parsed
                self._said.append(parsed)
        return [message for message in self._said if message.envelope.broker == broker]

    def acks(self, broker: str) -> set[Ack]:
        """The different things that it has acknowledged."""
        said = [message for message in self.said(broker) if isinstance(message, Acks)]
        return {ack for message in said for ack in message.acks}

    def close(self) -> None:
        """Disconnect."""
        self._producer.close()
        for tail in self._tails.values():
            tail.close()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what must come; fails after three minutes."""
    deadline = monotonic() + TIMEOUT_S
    while not is_so():
        assert monotonic() < deadline
        sleep(0.05)


def assigning(bundle: str, broker: str, incarnation: str, version: int = 1) -> OwnershipRecord:
    """The bundle shall be that broker's."""
    return OwnershipRecord(
        cluster=CLUSTER,
        bundle=bundle,
        state=State.ASSIGNING,
        version_id=version,
        destination=broker,
        destination_incarnation=incarnation,
    )


def owned(record: OwnershipRecord) -> OwnershipRecord:
    """The bundle is its destination's."""
    return replace(record, state=State.OWNED, version_id=record.version_id + 1)


def releasing(record: OwnershipRecord, destination: str = "") -> OwnershipRecord:
    """Its owner shall give it up."""
    return replace(
        record,
        state=State.RELEASING,
        version_id=record.version_id + 1,
        source=record.destination,
        source_incarnation=record.destination_incarnation,
        destination=destination,
        destination_incarnation="",
    )
