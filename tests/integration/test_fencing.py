"""Brokers that are frozen or cut off from Kafka, and a Kafka that is away: who serves what.

Three agents of the service of docs/agent.md, which share its store: `leased` and `tokened` reach
Kafka through a network that can be cut, `taker` directly. The test is the balancer: it takes a
broker for dead when nothing of it has come for BROKER_TIMEOUT_S. Orders are held against the
machine's monotonic clock; nothing is said about how long anything takes.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.processes.preflight import free_ports
from lbcore.model.bundles import Bundle
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import AckContext, Instance
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.processes.agent_talk import CLUSTER, AgentTalk, assigning
from tests.support.processes.fenced_notes import Hold, Noted, Notes, topic_of
from tests.support.processes.frozen import freeze
from tests.support.processes.kafka_cluster import KafkaNode, make_topics
from tests.support.processes.lying_proxy import Forwarder
from tests.support.processes.misbehaving_service import ROOT, StoreFile, write_service
from tests.support.processes.programs import until
from tests.support.values.ownership_records import ORIGIN, record_of

LEASED, TOKENED, TAKER = "leased:1", "tokened:1", "taker:1"
BROKER_TIMEOUT_S = 5
LEASE_MS = 1_666  # five sixths of what a clock step and a batch leave
SETTINGS = (
    f"ownership.broker_timeout_ms={BROKER_TIMEOUT_S * 1_000}",
    "agent.heartbeat_interval_ms=200",
    "signals.report_check_ms=60000",  # nobody is to be frozen while he looks into the store
)


def bundle_number(number: int) -> str:
    low = number << 28
    return f"public/default/0x{low:08x}_0x{low + (1 << 28):08x}"


FROZEN = {LEASED: bundle_number(0), TOKENED: bundle_number(1)}
CUT_OFF = {LEASED: bundle_number(2), TOKENED: bundle_number(3)}
KEPT = {LEASED: bundle_number(4), TOKENED: bundle_number(5), TAKER: bundle_number(6)}


@dataclass
class Broker:
    """One agent's process."""

    name: str
    process: "subprocess.Popen[str]"
    notes: Notes
    hold: Hold
    me: Instance

    def noted(self, bundle: str, *what: str, after_ns: int = 0) -> list[Noted]:
        """What it noted of the bundle that ended after a moment, in order."""
        every = [note for note in self.notes.read() if note.bundle == bundle]
        return [note for note in every if note.what in what and note.at_ns > after_ns]

    def wait_for(self, bundle: str, *what: str, after_ns: int = 0) -> Noted:
        """Wait until it has noted one of these after a moment; the first."""
        until(lambda: bool(self.noted(bundle, *what, after_ns=after_ns)))
        return self.noted(bundle, *what, after_ns=after_ns)[0]


@dataclass
class Scene:
    """Kafka, a network that can be cut, three brokers, and what the test says as the balancer."""

    kafka: KafkaNode
    network: Forwarder
    talk: AgentTalk
    brokers: dict[str, Broker]
    store: StoreFile

    def own(self, bundle: str, name: str) -> OwnershipRecord:
        """Have the bundle owned and used there; a bundle that it had before stays its."""
        owned = self._opened(assigning(bundle, name, self.brokers[name].me.incarnation))
        self.brokers[name].wait_for(bundle, "used")
        return owned

    def give_away(self, record: OwnershipRecord) -> int:
        """Have the taker open it, by force, and wait until it is used there; when that began."""
        given_ns = time.monotonic_ns()
        self._opened(record_of(protocol.reassign(record, self.brokers[TAKER].me, ORIGIN)))
        self.brokers[TAKER].wait_for(record.bundle, "used")
        return given_ns

    def wait_for_silence(self, *names: str) -> None:
        """Wait until nothing has come of these brokers for BROKER_TIMEOUT_S."""
        counts, since_s = dict.fromkeys(names, 0), time.monotonic()
        while time.monotonic() - since_s < BROKER_TIMEOUT_S:
            heard = {name: len(self.talk.said(name)) for name in names}
            if heard != counts:
                counts, since_s = heard, time.monotonic()
            time.sleep(0.05)

    def writers(self, bundle: str) -> list[str]:
        """Who has written into the bundle's topic, in the store's order, without repetition."""
        topic = topic_of(Bundle.parse(bundle))
        lines = [line for name, line in self.store.lines() if name == topic]
        return [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]

    def _opened(self, record: OwnershipRecord) -> OwnershipRecord:
        ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=AckOutcome.OPENED)
        self.talk.write(record)
        until(lambda: ack in self.talk.acks(record.destination))
        sender = self.brokers[record.destination].me
        owned = record_of(acknowledge(record, ack, sender, ORIGIN, AckContext()))
        self.talk.write(owned)
        return owned


def kafka_behind(folder: Path, port: int, target_port: int) -> KafkaNode:
    """A Kafka with a second listener on target_port, which it tells its clients to find at port."""
    plain = KafkaNode(folder)
    direct = f"CLIENT://{plain.bootstrap}"
    listeners = f"{direct},BEHIND://127.0.0.1:{target_port}"
    controller = f"CONTROLLER://127.0.0.1:{plain.controller_port}"
    properties = {
        "listeners": f"{listeners},{controller}",
        "advertised.listeners": f"{direct},BEHIND://127.0.0.1:{port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return KafkaNode(folder, KafkaOptions(properties=properties))


@contextmanager
def started(name: str, bootstrap: str, fencing: str, folder: Path) -> Iterator[Broker]:
    words = [sys.executable, "-m", "jobs.cli", "run-agent", "--cluster", CLUSTER]
    words += ["--service", "tests.support.processes.fenced_service:make"]
    words += ["--broker", name, "--bootstrap", bootstrap]
    for setting in (*SETTINGS, f"ownership.fencing={fencing}"):
        words += ["--set", setting]
    short = name.partition(":")[0]
    files = {
        "WORD_STORE": folder / "words.db",
        "FENCED_NOTES": folder / f"{short}.jsonl",
        "FENCED_HOLD": folder / f"{short}.hold",
    }
    environment = {
        **os.environ,
        **{variable: str(path) for variable, path in files.items()},
        "FENCED_LINE": name,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
    }
    process = subprocess.Popen(words, env=environment, text=True)
    try:
        yield Broker(
            name=name,
            process=process,
            notes=Notes(files["FENCED_NOTES"]),
            hold=Hold(files["FENCED_HOLD"]),
            me=Instance(broker=name, incarnation=""),
        )
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("fencing")
    write_service(folder)
    port, target_port = free_ports(2)
    kafka = kafka_behind(folder / "kafka", port, target_port)
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        kafka.start()
        direct = KafkaAddress(bootstrap=kafka.bootstrap)
        make_topics(kafka, direct)
        network = stack.enter_context(closing(Forwarder(port, target_port)))
        behind = f"127.0.0.1:{port}"
        ways = {
            LEASED: (behind, "lease"),
            TOKENED: (behind, "token"),
            TAKER: (kafka.bootstrap, "lease"),
        }
        brokers = {
            name: stack.enter_context(started(name, *way, folder)) for name, way in ways.items()
        }
        talk = stack.enter_context(closing(AgentTalk(direct)))
        for name, broker in brokers.items():
            until(lambda name=name: bool(talk.said(name)))
            broker.me = Instance(broker=name, incarnation=talk.said(name)[0].envelope.incarnation)
        made = Scene(
            kafka=kafka,
            network=network,
            talk=talk,
            brokers=brokers,
            store=StoreFile(folder / "words.db"),
        )
        for name, bundle in KEPT.items():
            made.own(bundle, name)
        yield made


@pytest.fixture(autouse=True)
def healed(scene: Scene) -> Iterator[None]:
    """After a test that failed halfway the next one has its network and its brokers."""
    yield
    scene.network.mend()
    for broker in scene.brokers.values():
        broker.process.send_signal(signal.SIGCONT)


def frozen(brokers: Sequence[Broker]) -> int:
    """Freeze processes; a moment when none of them runs any more."""
    freeze(*(broker.process.pid for broker in brokers))
    return time.monotonic_ns()


def test_frozen_broker_serves_nothing_that_was_given_away_and_its_call_in_flight_is_refused(
    scene: Scene,
) -> None:
    brokers = [scene.brokers[name] for name in FROZEN]
    records = [scene.own(bundle, name) for name, bundle in FROZEN.items()]
    for name, bundle in FROZEN.items():
        scene.brokers[name].hold.put(bundle)
        scene.brokers[name].wait_for(bundle, "held")
    stopped_ns = frozen(brokers)
    scene.wait_for_silence(*FROZEN)
    given_ns = {record.bundle: scene.give_away(record) for record in records}
    scene.network.cut()  # so that they don't read at once what has become of their bundles
    for broker in brokers:
        broker.hold.lift()
        broker.process.send_signal(signal.SIGCONT)
    for name, bundle in FROZEN.items():
        in_flight = scene.brokers[name].wait_for(bundle, "refused")
        assert in_flight.began_ns < stopped_ns < given_ns[bundle] < in_flight.at_ns
        assert in_flight.token < scene.brokers[TAKER].noted(bundle, "opened")[0].token
    leased, tokened = brokers
    leased.wait_for(FROZEN[LEASED], "not_served", after_ns=stopped_ns)
    until(lambda: len(tokened.noted(FROZEN[TOKENED], "refused")) > 1)
    scene.network.mend()
    for name, bundle in FROZEN.items():
        scene.brokers[name].wait_for(bundle, "closed")
        assert scene.brokers[name].noted(bundle, "used", after_ns=given_ns[bundle]) == []
        assert scene.writers(bundle) == [name, TAKER]
    assert len(leased.noted(FROZEN[LEASED], "refused")) == 1  # with a lease it did not try again


def test_broker_cut_off_stops_in_time_with_a_lease_and_goes_on_without_one(scene: Scene) -> None:
    leased, tokened = scene.brokers[LEASED], scene.brokers[TOKENED]
    records = [scene.own(bundle, name) for name, bundle in CUT_OFF.items()]
    leased.wait_for(KEPT[LEASED], "used", after_ns=time.monotonic_ns())
    scene.network.cut()
    cut_ns = time.monotonic_ns()
    scene.wait_for_silence(LEASED, TOKENED)
    silent_ns = time.monotonic_ns()
    tokened.wait_for(CUT_OFF[TOKENED], "used", after_ns=silent_ns)
    given_ns = {record.bundle: scene.give_away(record) for record in records}

    bundle = CUT_OFF[LEASED]
    assert leased.noted(bundle, "not_served", after_ns=cut_ns)
    assert leased.noted(bundle, "used", "refused", after_ns=silent_ns) == []
    assert silent_ns < given_ns[bundle]

    bundle = CUT_OFF[TOKENED]
    tokened.wait_for(bundle, "refused")
    taken = scene.brokers[TAKER].noted(bundle, "opened")[0]
    assert all(use.began_ns < taken.at_ns for use in tokened.noted(bundle, "used"))
    assert leased.noted(KEPT[LEASED], "used", after_ns=silent_ns) == []

    scene.network.mend()
    mended_ns = time.monotonic_ns()
    for name, mine in CUT_OFF.items():
        scene.brokers[name].wait_for(mine, "closed", after_ns=mended_ns)
    leased.wait_for(KEPT[LEASED], "used", after_ns=mended_ns)
    assert len(leased.noted(KEPT[LEASED], "opened")) == 1
    assert leased.noted(CUT_OFF[LEASED], "used", "refused", after_ns=silent_ns) == []
    for name, mine in CUT_OFF.items():
        assert scene.writers(mine) == [name, TAKER]


@pytest.mark.long
def test_kafka_away_for_longer_than_the_lease_stops_who_has_one_until_it_is_back(
    scene: Scene,
) -> None:
    for name, mine in KEPT.items():
        scene.brokers[name].wait_for(mine, "used", after_ns=time.monotonic_ns())
    scene.kafka.stop()
    away_ns = time.monotonic_ns()
    stops = [
        scene.brokers[name].wait_for(KEPT[name], "not_served", after_ns=away_ns)
        for name in (LEASED, TAKER)
    ]
    stopped_ns = max(stop.at_ns for stop in stops)
    scene.brokers[TOKENED].wait_for(KEPT[TOKENED], "used", after_ns=stopped_ns)
    scene.kafka.start()
    back_ns = time.monotonic_ns()
    for name, mine in KEPT.items():
        scene.brokers[name].wait_for(mine, "used", after_ns=back_ns)
    for name in (LEASED, TAKER):
        used = scene.brokers[name].noted(KEPT[name], "used", after_ns=stopped_ns)
        assert used[0].began_ns - stopped_ns > LEASE_MS * 1_000_000
    for name, mine in KEPT.items():
        assert [note.token for note in scene.brokers[name].noted(mine, "opened")] == [1]
        assert {note.token for note in scene.brokers[name].noted(mine, "used")} == {1}
        assert scene.writers(mine) == [name]
