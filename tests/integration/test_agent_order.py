"""What an agent has said about a bundle is true already when it says it, on the real Kafka."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.agent import Agent, Callbacks, Options
from lbcore.agent.reporting import Identity, LoadRead
from lbcore.config.ownership import AgentConfig
from lbcore.model.resources import COUNT
from lbcore.wire.messages import Ack, AckOutcome, Topic
from tests.support.processes.agent_talk import (
    CLUSTER,
    AgentTalk,
    assigning,
    owned,
    releasing,
    until,
)
from tests.support.processes.kafka_cluster import make_topics, running_kafka

BROKER, BUNDLE = "store-1", "public/default/0x00000000_0xffffffff"


def idle() -> LoadRead:
    return LoadRead(
        usage=np.zeros(COUNT),
        limit=np.full(COUNT, 100.0),
        traffic=np.zeros(4),
        bundles=(BUNDLE,),
        stats=np.zeros((1, 8)),
    )


def nothing(*_: Any) -> None:
    return None


def test_permit_is_withdrawn_before_anybody_hears_that_the_bundle_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens_at_send: list[int | None] = []
    send = Sender.send

    def watched(sender: Sender, topic: Topic, *words: Any, **more: Any) -> None:
        if topic is Topic.ACKS:
            tokens_at_send.append(agent.permits.token(BUNDLE))
        send(sender, topic, *words, **more)

    with running_kafka(tmp_path / "kafka") as kafka:
        address = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix="order.")
        make_topics(kafka, address)
        monkeypatch.setattr(Sender, "send", watched)
        agent = Agent(
            Identity(cluster=CLUSTER, broker=BROKER, incarnation="i1"),
            address,
            Callbacks(load=idle, open=nothing, close=nothing, split=nothing),
            Options(agent=AgentConfig(heartbeat_interval_ms=200)),
        )
        with closing(AgentTalk(address)) as talk, closing(agent):
            agent.start()
            record = assigning(BUNDLE, BROKER, "i1")
            talk.write(record)
            until(lambda: ack(1, AckOutcome.OPENED) in talk.acks(BROKER))
            opened = list(tokens_at_send)
            talk.write(owned(record))
            until(lambda: agent.permits.token(BUNDLE) is not None)
            tokens_at_send.clear()
            talk.write(releasing(owned(record)))
            until(lambda: ack(3, AckOutcome.CLOSED) in talk.acks(BROKER))
    assert opened
    assert tokens_at_send
    assert set(tokens_at_send) == {None}


def ack(version: int, outcome: AckOutcome) -> Ack:
    return Ack(bundle=BUNDLE, version_id=version, outcome=outcome)
