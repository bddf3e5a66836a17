"""Agents on the real Kafka: the documented service, order of acks, a misbehaving service."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.adapters.processes.preflight import free_ports
from jobs.agent import Agent, Callbacks, Options
from jobs.console import CommandError
from lbcore.agent.reporting import Identity
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership.records import State
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    BrokerLoad,
    BundleLoad,
    Heartbeat,
    Topic,
    TopicLoad,
)
from tests.support.processes.agent_talk import (
    CLUSTER,
    AgentTalk,
    assigning,
    owned,
    releasing,
)
from tests.support.processes.kafka_cluster import KafkaNode, make_topics
from tests.support.processes.misbehaving_service import ROOT, StoreFile, load, write_service
from tests.support.processes.programs import until

BROKER = "store-1"
WHOLE = "public/default/0x00000000_0xffffffff"
HALVES = ("public/default/0x00000000_0x80000000", "public/default/0x80000000_0xffffffff")
FAST = ("agent.heartbeat_interval_ms=200", "signals.report_check_ms=200")


@dataclass
class Running:
    """One agent's process, what it says, its service's port and store."""

    talk: AgentTalk
    process: "subprocess.Popen[str]"
    port: int
    store: StoreFile

    def incarnation(self) -> str:
        until(lambda: bool(self.talk.said(BROKER)))
        return str(self.talk.said(BROKER)[0].envelope.incarnation)

    def own(self, bundle: str, version: int = 1) -> None:
        first = assigning(bundle, BROKER, self.incarnation(), version)
        self.talk.write(first)
        until(lambda: ack(bundle, version, AckOutcome.OPENED) in self.talk.acks(BROKER))
        self.talk.write(owned(first))

    def ask(self, topic: str, line: str | None = None) -> tuple[int, str]:
        """A client's request: append a line, or read them; status and text."""
        url = f"http://127.0.0.1:{self.port}/{topic.replace('://', '/')}"
        request = urllib.request.Request(url, None if line is None else line.encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 (loopback)
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self) -> tuple[int, str]:
        """Wait for its end: the exit code, and what it wrote to standard error."""
        told = self.process.communicate(timeout=60)[1]
        return self.process.returncode, told


def command(address: KafkaAddress, service: str, *settings: str) -> list[str]:
    words = [sys.executable, "-m", "jobs.cli", "run-agent", "--service", service]
    words += ["--cluster", CLUSTER]
    words += ["--broker", BROKER, "--bootstrap", address.bootstrap]
    words += ["--web-service-url", "http://store:80"]
    every = (*FAST, f"pipeline.topic_prefix={address.topic_prefix}", *settings)
    return words + [word for setting in every for word in ("--set", setting)]


@contextmanager
def started(words: Sequence[str], address: KafkaAddress, folder: Path) -> Iterator[Running]:
    """The process, with the service's files and store in the folder."""
    write_service(folder)
    (port,) = free_ports(1)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
        "WORD_STORE": str(folder / "words.db"),
        "WORD_PORT": str(port),
    }
    process = subprocess.Popen(
        words, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        with closing(AgentTalk(address)) as talk:
            yield Running(
                talk=talk, process=process, port=port, store=StoreFile(folder / "words.db")
            )
    finally:
        process.kill()
        process.communicate(timeout=30)


@contextmanager
def started_agent(kafka: KafkaNode, folder: Path, *settings: str) -> Iterator[Running]:
    address = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=f"{folder.name}.")
    make_topics(kafka, address)
    words = command(address, "word_store:make", *settings)
    with started(words, address, folder) as running:
        yield running


@pytest.fixture
def running(kafka: KafkaNode, tmp_path: Path) -> Iterator[Running]:
    with started_agent(kafka, tmp_path) as made:
        yield made


def ack(bundle: str, version: int, outcome: AckOutcome, reason: str = "") -> Ack:
    return Ack(bundle=bundle, version_id=version, outcome=outcome, reason=reason)


def topic_in(half: int) -> str:
    names = map("persistent://public/default/t-{}".format, range(99))
    return next(name for name in names if crc32(name.encode()) >> 31 == half)


def test_agent_of_the_documented_service_opens_serves_reports_and_splits(
    running: Running,
) -> None:
    talk, topics = running.talk, (topic_in(0), topic_in(1))
    running.incarnation()  # who speaks has started the service
    assert running.ask(topics[0], "too early")[0] == 503
    running.own(WHOLE)
    assert running.store.claims() == {(0, 1 << 32): 1}
    for topic in topics:
        assert running.ask(topic, "one") == (200, "")
        assert running.ask(topic, "two") == (200, "")
    assert running.ask(topics[1]) == (200, "one\ntwo")

    def topic_loads() -> list[tuple[str, tuple[str, ...]]]:
        said = [m for m in talk.said(BROKER) if isinstance(m, TopicLoad)]
        return [(message.bundle, message.topics) for message in said]

    until(lambda: (WHOLE, tuple(sorted(topics))) in topic_loads())
    loads = [m for m in talk.said(BROKER) if isinstance(m, BundleLoad) and m.names == (WHOLE,)]
    assert any(load.stats[0, 0] > 0 for load in loads)
    load = next(m for m in talk.said(BROKER) if isinstance(m, BrokerLoad))
    assert load.web_service_url == "http://store:80"
    assert any(isinstance(m, Heartbeat) for m in talk.said(BROKER))

    record = owned(assigning(WHOLE, BROKER, running.incarnation()))
    children = dict.fromkeys(HALVES, "")
    talk.write(replace(releasing(record), state=State.SPLITTING, children=children))
    until(lambda: ack(WHOLE, 3, AckOutcome.SPLIT) in talk.acks(BROKER))
    until(lambda: running.ask(topics[0], "three")[0] == 200)
    assert running.ask(topics[0]) == (200, "one\ntwo\nthree")


def test_agent_told_to_stop_serves_until_it_is_drained_and_ends_in_order(
    running: Running,
) -> None:
    talk, topic = running.talk, topic_in(0)
    running.own(HALVES[0])
    running.process.send_signal(signal.SIGTERM)
    until(lambda: any(isinstance(m, BrokerLoad) and m.is_draining for m in talk.said(BROKER)))
    assert running.process.poll() is None
    assert running.ask(topic, "late")[0] == 200
    record = owned(assigning(HALVES[0], BROKER, running.incarnation()))
    talk.write(releasing(record, destination="other"))
    code, told = running.end()
    assert code == 0, told
    assert "handed on every bundle" in told
    until(lambda: ack(HALVES[0], 3, AckOutcome.CLOSED) in talk.acks(BROKER))


@pytest.mark.long
def test_agent_whose_bundles_nobody_takes_ends_in_its_time_and_says_so(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    with started_agent(kafka, tmp_path, "agent.shutdown_timeout_ms=1000") as running:
        running.own(HALVES[0])
        running.process.send_signal(signal.SIGTERM)
        code, told = running.end()
        assert code == 1
        assert f"ended while 1 of its bundles had no new owner: {HALVES[0]}" in told
        assert "Traceback" not in told
        stopping = ack(HALVES[0], 2, AckOutcome.FAILED, "the broker is stopping")
        until(lambda: stopping in running.talk.acks(BROKER))


@pytest.mark.long
def test_agent_told_again_to_stop_does_not_wait_any_longer(running: Running) -> None:
    talk = running.talk
    running.own(HALVES[0])
    for _ in range(2):  # what comes twice at once is one signal
        running.process.send_signal(signal.SIGTERM)
    until(lambda: any(isinstance(m, BrokerLoad) and m.is_draining for m in talk.said(BROKER)))
    assert running.process.poll() is None
    time.sleep(1.1)
    running.process.send_signal(signal.SIGTERM)
    code, told = running.end()
    assert code == 1
    assert "ended at once" in told


def test_agent_of_a_service_that_refuses_says_failed_with_the_reason(running: Running) -> None:
    talk = running.talk
    incarnation = running.incarnation()
    running.store.claim("public/default", 99)
    talk.write(assigning(WHOLE, BROKER, incarnation, version=50))
    until(lambda: any(a.outcome is AckOutcome.FAILED for a in talk.acks(BROKER)))
    failed = next(a for a in talk.acks(BROKER) if a.outcome is AckOutcome.FAILED)
    assert (failed.bundle, failed.version_id) == (WHOLE, 50)
    assert "was claimed with 99, this is 50" in failed.reason


def test_documented_process_of_ones_own_serves_and_hands_on_when_it_is_told_to_stop(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    words = [sys.executable, "word_broker.py", CLUSTER, BROKER, kafka.bootstrap]
    with started(words, KafkaAddress(bootstrap=kafka.bootstrap), tmp_path) as running:
        running.own(HALVES[1])
        until(lambda: running.ask(topic_in(1), "hello")[0] == 200)
        running.process.send_signal(signal.SIGTERM)
        record = owned(assigning(HALVES[1], BROKER, running.incarnation()))
        running.talk.write(releasing(record, destination="other"))
        code, told = running.end()
        assert (code, told) == (0, "")
        assert running.store.lines() == [(topic_in(1), "hello")]


@pytest.mark.long
def test_agent_stopped_while_kafka_is_away_ends_in_its_time(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    with started_agent(kafka, tmp_path, "agent.shutdown_timeout_ms=1000") as running:
        running.own(HALVES[0])
        until(lambda: running.ask(topic_in(0), "hello")[0] == 200)
        kafka.stop()
        try:
            running.process.send_signal(signal.SIGTERM)
            code, told = running.end()
        finally:
            kafka.start()
        assert code == 1
        assert f"ended while 1 of its bundles had no new owner: {HALVES[0]}" in told


def nothing(*_: Any) -> None:
    return None


@pytest.fixture
def address(kafka: KafkaNode, tmp_path: Path) -> KafkaAddress:
    """Topics of its own for each test."""
    made = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=f"{tmp_path.name}.")
    make_topics(kafka, made)
    return made


def test_permit_is_withdrawn_before_anybody_hears_that_the_bundle_is_closed(
    address: KafkaAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens_at_send: list[int | None] = []
    send = Sender.send

    def watched(sender: Sender, topic: Topic, *words: Any, **more: Any) -> None:
        if topic is Topic.ACKS:
            tokens_at_send.append(agent.permits.token(WHOLE))
        send(sender, topic, *words, **more)

    monkeypatch.setattr(Sender, "send", watched)
    agent = Agent(
        identity(),
        address,
        Callbacks(
            load=partial(load, bundles=(WHOLE,), stats=np.zeros((1, 8))),
            open=nothing,
            close=nothing,
            split=nothing,
        ),
        Options(agent=AgentConfig(heartbeat_interval_ms=200)),
    )
    with closing(AgentTalk(address)) as talk, closing(agent):
        agent.start()
        record = assigning(WHOLE, BROKER, "i1")
        talk.write(record)
        until(lambda: ack(WHOLE, 1, AckOutcome.OPENED) in talk.acks(BROKER))
        opened = list(tokens_at_send)
        talk.write(owned(record))
        until(lambda: agent.permits.token(WHOLE) is not None)
        tokens_at_send.clear()
        talk.write(releasing(owned(record)))
        until(lambda: ack(WHOLE, 3, AckOutcome.CLOSED) in talk.acks(BROKER))
    assert opened
    assert tokens_at_send
    assert set(tokens_at_send) == {None}


HANGS, EXITS, WORDS, FINE = (f"t/{name}/0x00000000_0xffffffff" for name in "abcd")
IMPATIENT = Options(
    agent=AgentConfig(heartbeat_interval_ms=200, ack_repeat_ms=200, callback_timeout_ms=1_000),
    signals=SignalsConfig(report_check_ms=100),
    threads=1,
)


def test_agent_outlives_callbacks_that_hang_exit_and_say_what_no_message_can_carry(
    address: KafkaAddress,
) -> None:
    end = threading.Event()

    def open_badly(bundle: str, _: int) -> None:
        does: dict[str, Callable[[], Any]] = {HANGS: end.wait, EXITS: exit, WORDS: speak}
        does.get(bundle, str)()

    def speak() -> None:
        raise RuntimeError("\udc80" + "x" * 10_000)

    callbacks = Callbacks(load=exit, open=open_badly, close=nothing, split=nothing, topics=exit)
    agent = Agent(identity(), address, callbacks, IMPATIENT)
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
