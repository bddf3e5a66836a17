"""What agents say on the real Kafka, parsed, and a pen for the records that they follow."""

import asyncio
from dataclasses import replace
from typing import Any

from kafka import KafkaProducer
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jobs.adapters.http.protocol import Account, BoundedProtocol, Bounds
from jobs.adapters.kafka.clients import KafkaAddress, Tail
from lbcore.model.names import Wire
from lbcore.ownership.records import OwnershipRecord, State, format_record
from lbcore.wire.fields import ParseRules
from lbcore.wire.messages import Ack, Acks, Message, Rejected, Topic
from lbcore.wire.parse import parse

CLUSTER = "c"
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
        self._producer.close()
        for tail in self._tails.values():
            tail.close()


def assigning(bundle: str, broker: str, incarnation: str, version: int = 1) -> OwnershipRecord:
    return OwnershipRecord(
        cluster=CLUSTER,
        bundle=bundle,
        state=State.ASSIGNING,
        version_id=version,
        destination=broker,
        destination_incarnation=incarnation,
    )


def owned(record: OwnershipRecord) -> OwnershipRecord:
    return replace(record, state=State.OWNED, version_id=record.version_id + 1)


def releasing(record: OwnershipRecord, destination: str = "") -> OwnershipRecord:
    return replace(
        record,
        state=State.RELEASING,
        version_id=record.version_id + 1,
        source=record.destination,
        source_incarnation=record.destination_incarnation,
        destination=destination,
        destination_incarnation="",
    )


class Transport(asyncio.Transport):
    """A connection whose other end takes everything."""

    def __init__(self, protocol: Any) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self.protocol, self.written, self.is_closed, self.is_paused = protocol, b"", False, False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.written += bytes(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0


def bounded_protocol(bounds: Bounds, account: Account) -> type[HttpToolsProtocol]:
    """The protocol class with these bounds, whose connections share the account."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds, "account": account})
