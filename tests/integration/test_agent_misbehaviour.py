"""A service at its worst beside a real agent on the real Kafka: the agent lives and tells."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.agent import Agent, Callbacks, Options
from jobs.console import CommandError
from lbcore.agent.reporting import Identity
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.wire.messages import AckOutcome, Heartbeat
from tests.support.processes.agent_talk import (
    CLUSTER,
    AgentTalk,
    assigning,
    owned,
    releasing,
    until,
)
from tests.support.processes.kafka_cluster import make_topics, running_kafka

BROKER = "store-1"
HANGS, EXITS, WORDS, FINE = (f"t/{name}/0x00000000_0xffffffff" for name in "abcd")
FAST = Options(
    agent=AgentConfig(heartbeat_interval_ms=200, ack_repeat_ms=200, callback_timeout_ms=1_000),
    signals=SignalsConfig(report_check_ms=100),
    threads=1,
)


def test_agent_outlives_callbacks_that_hang_exit_and_say_what_no_message_can_carry(
    tmp_path: Path,
) -> None:
    end = threading.Event()

    def open_badly(bundle: str, _: int) -> None:
        does: dict[str, Callable[[], Any]] = {HANGS: end.wait, EXITS: exit, WORDS: speak}
        does.get(bundle, str)()

    def speak() -> None:
        raise RuntimeError("\udc80" + "x" * 10_000)

    callbacks = Callbacks(load=exit, open=open_badly, close=nothing, split=nothing, topics=exit)
    with running_kafka(tmp_path / "kafka") as kafka:
        address = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix="worst.")
        make_topics(kafka, address)
        agent = Agent(identity(), address, callbacks, FAST)
        with closing(AgentTalk(address)) as talk, closing(agent):
            agent.start()
            records = {b: assigning(b, BROKER, "i1") for b in (HANGS, EXITS, WORDS, FINE)}
            talk.write(*records.values())
            until(lambda: len({ack.bundle for ack in talk.acks(BROKER)}) == len(records))
            told = {ack.bundle: ack.outcome for ack in talk.acks(BROKER)}
            assert told.pop(FINE) is AckOutcome.OPENED
            assert set(told.values()) == {AckOutcome.FAILED}
            assert agent.permits.token(FINE) == 1
            talk.write(owned(records[FINE]), releasing(owned(records[FINE])))
            until(lambda: any(a.outcome is AckOutcome.CLOSED for a in talk.acks(BROKER)))
            beats = len([m for m in talk.said(BROKER) if isinstance(m, Heartbeat)])
            until(lambda: len([m for m in talk.said(BROKER) if isinstance(m, Heartbeat)]) > beats)
            end.set()
        assert agent.permits.tokens() == {}


@pytest.mark.parametrize("change", [{"capacity": float("nan")}, {"web_service_url": "\udc80"}])
def test_identity_that_no_report_can_carry_is_refused_at_the_start(change: dict[str, Any]) -> None:
    nobody = KafkaAddress(bootstrap="127.0.0.1:1")
    with pytest.raises(CommandError, match="under its identity"):
        Agent(
            identity(**change),
            nobody,
            Callbacks(load=exit, open=nothing, close=nothing, split=nothing),
        )


def identity(**change: Any) -> Identity:
    return Identity(cluster=CLUSTER, broker=BROKER, incarnation="i1", **change)


def nothing(*_: Any) -> None:
    return None
