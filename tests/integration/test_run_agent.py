"""The agent around the service of docs/agent.md, on the real Kafka."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import pytest

from jobs.adapters.embedded_kafka import EmbeddedKafka
from jobs.adapters.kafka_clients import KafkaAddress
from lbcore.ownership.records import State
from lbcore.wire.messages import Ack, AckOutcome, BrokerLoad, BundleLoad, Heartbeat, TopicLoad
from tests.agent_talk import AgentTalk, assigning, owned, releasing, until
from tests.kafka_cluster import make_topics, running_kafka

BROKER = "store-1"
ROOT = Path(__file__).parents[2]
WHOLE = "public/default/0x00000000_0xffffffff"
HALVES = ("public/default/0x00000000_0x80000000", "public/default/0x80000000_0xffffffff")
FAST = ("agent.heartbeat_interval_ms=200", "signals.report_check_ms=200", "agent.ack_repeat_ms=500")


def example() -> str:
    """The module that the documentation shows."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "agent.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


@dataclass
class Running:
    """One agent's process, what it says, and its service's folder."""

    talk: AgentTalk
    process: "subprocess.Popen[str]"
    folder: Path

    def incarnation(self) -> str:
        """Which start it is, once it has spoken."""
        until(lambda: bool(self.talk.said(BROKER)))
        return str(self.talk.said(BROKER)[0].envelope.incarnation)

    def lines(self, bundle: str) -> list[str]:
        """What the store has of the bundle."""
        return (self.folder / bundle.replace("/", "~")).read_text().splitlines()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def command(address: KafkaAddress, service: str = "word_store:make") -> list[str]:
    words = [sys.executable, "-m", "jobs.run_agent", "--service", service, "--cluster", "c"]
    words += ["--broker", BROKER, "--bootstrap", address.bootstrap]
    words += ["--web-service-url", "http://store:80"]
    settings = (*FAST, f"pipeline.topic_prefix={address.topic_prefix}")
    return words + [word for setting in settings for word in ("--set", setting)]


@pytest.fixture
def running(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "word_store.py").write_text(example())
    address = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=f"{tmp_path.name}.")
    make_topics(kafka, address)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "WORD_STORE": str(tmp_path / "words"),
    }
    process = subprocess.Popen(
        command(address),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with closing(AgentTalk(address)) as talk:
            yield Running(talk=talk, process=process, folder=tmp_path / "words")
    finally:
        process.kill()
        process.communicate(timeout=30)


def ack(bundle: str, version: int, outcome: AckOutcome, reason: str = "") -> Ack:
    return Ack(bundle=bundle, version_id=version, outcome=outcome, reason=reason)


def test_agent_of_the_documented_service_opens_reports_splits_and_hands_on(
    running: Running,
) -> None:
    talk = running.talk
    first = assigning(WHOLE, BROKER, running.incarnation())
    talk.write(first)
    until(lambda: ack(WHOLE, 1, AckOutcome.OPENED) in talk.acks(BROKER))
    assert running.lines(WHOLE) == ["1"]

    low, high = (next(t for t in map("t-{}".format, range(99)) if half(t) == i) for i in (0, 1))
    (running.folder / WHOLE.replace("/", "~")).write_text(
        f"1\n{low} one\n{high} two\n{low} three\n"
    )
    until(lambda: any(m.names == (WHOLE,) for m in talk.said(BROKER) if isinstance(m, BundleLoad)))
    both = (WHOLE, tuple(sorted((low, high))))
    until(
        lambda: (
            both in [(m.bundle, m.topics) for m in talk.said(BROKER) if isinstance(m, TopicLoad)]
        )
    )
    load = next(m for m in talk.said(BROKER) if isinstance(m, BrokerLoad))
    assert load.web_service_url == "http://store:80"
    assert any(isinstance(m, Heartbeat) for m in talk.said(BROKER))

    talk.write(owned(first))
    splitting = replace(
        releasing(owned(first)), state=State.SPLITTING, children=dict.fromkeys(HALVES, "")
    )
    talk.write(splitting)
    until(lambda: ack(WHOLE, 3, AckOutcome.SPLIT) in talk.acks(BROKER))
    assert running.lines(HALVES[0]) == ["1", f"{low} one", f"{low} three"]
    assert running.lines(HALVES[1]) == ["1", f"{high} two"]


def half(topic: str) -> int:
    """Which of HALVES holds the topic."""
    return crc32(topic.encode()) >> 31


def test_agent_told_to_stop_is_drained_and_ends_in_order(running: Running) -> None:
    talk = running.talk
    first = assigning(HALVES[0], BROKER, running.incarnation())
    talk.write(first, owned(first))
    until(lambda: running.folder.exists() and len(list(running.folder.iterdir())) == 1)
    running.process.send_signal(signal.SIGTERM)
    until(lambda: any(isinstance(m, BrokerLoad) and m.is_draining for m in talk.said(BROKER)))
    assert running.process.poll() is None
    talk.write(releasing(owned(first), destination="other"))
    assert running.process.wait(60) == 0
    assert ack(HALVES[0], 3, AckOutcome.CLOSED) in talk.acks(BROKER)


def test_agent_told_twice_to_stop_does_not_wait(running: Running) -> None:
    talk = running.talk
    first = assigning(HALVES[0], BROKER, running.incarnation())
    talk.write(first, owned(first))
    until(lambda: running.folder.exists() and len(list(running.folder.iterdir())) == 1)
    running.process.send_signal(signal.SIGTERM)
    until(lambda: any(isinstance(m, BrokerLoad) and m.is_draining for m in talk.said(BROKER)))
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 1


def test_agent_of_a_service_that_refuses_says_failed_with_the_reason(running: Running) -> None:
    talk = running.talk
    incarnation = running.incarnation()
    running.folder.mkdir(exist_ok=True)
    (running.folder / WHOLE.replace("/", "~")).write_text("99\n")
    talk.write(assigning(WHOLE, BROKER, incarnation, version=50))
    until(lambda: any(a.outcome is AckOutcome.FAILED for a in talk.acks(BROKER)))
    failed = next(a for a in talk.acks(BROKER) if a.outcome is AckOutcome.FAILED)
    assert (failed.bundle, failed.version_id) == (WHOLE, 50)
    assert "newer token than 50" in failed.reason


def test_agent_of_an_unknown_service_says_what_to_do(kafka: EmbeddedKafka) -> None:
    words = command(KafkaAddress(bootstrap=kafka.bootstrap), "no_such_module:make")
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert ended.returncode == 2
    assert "the service no_such_module:make can't be loaded" in ended.stderr
    assert "Traceback" not in ended.stderr
