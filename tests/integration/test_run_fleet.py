"""The fleet's process on the real Kafka: it registers, reports, follows records, dies, returns."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.console import CommandError
from jobs.fleet.control import FleetClient
from lbcore.model.bundles import HashFunction
from lbcore.model.names import FULL_UPPER, format_bundle
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad
from lbcore.wire.messages import Ack, AckOutcome, BrokerLoad, BundleLoad, Heartbeat, TopicLoad
from tests.support.processes.agent_talk import (
    AgentTalk,
    assigning,
    owned,
    releasing,
)
from tests.support.processes.kafka_cluster import KafkaNode, make_topics
from tests.support.processes.programs import json_lines, until

NS = "public/default"
QUARTERS = [format_bundle(NS, low << 30, min((low + 1) << 30, FULL_UPPER)) for low in range(4)]


class Cluster(AgentTalk):
    """Kafka and a fleet of six on it."""

    def __init__(self, address: KafkaAddress, client: FleetClient, state_dir: Path) -> None:
        super().__init__(address)
        self.client = client
        self.state_dir = state_dir

    def row(self, broker: str) -> dict[str, Any]:
        """What the control server says of the broker, its bundles included."""
        rows = self.client.brokers(with_bundles=True)["brokers"]
        return next(row for row in rows if row["broker"] == broker)

    def assigning(self, bundle: str, broker: str, version: int = 1) -> OwnershipRecord:
        """The bundle shall be the broker's, as it lives now."""
        return assigning(bundle, broker, self.row(broker)["incarnation"], version)


def command(address: KafkaAddress, state_dir: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "jobs.run_fleet", "--bootstrap", address.bootstrap]
    words += ["--topic-prefix", address.topic_prefix]
    words += ["--cluster", "c", "--state-dir", str(state_dir), "--brokers", "6"]
    words += ["--namespace", f"{NS}:crc32:4", "--load", "zipf", "--capacity", "broker-6=2.0"]
    words += ["--heartbeat-interval-ms", "300", "--report-interval-ms", "1000"]
    return [*words, "--callback-ms", "20-60", *more]


@pytest.fixture(scope="module")
def cluster(kafka: KafkaNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("fleet")
    address = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=f"{folder.name}.")
    make_topics(kafka, address)
    port_file = folder / "port"
    process = subprocess.Popen(command(address, folder, "--port-file", str(port_file)))
    try:
        until(port_file.exists)
        client = FleetClient(int(port_file.read_text()))
        with closing(Cluster(address, client, folder)) as made:
            yield made
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(30)


def opened(cluster: Cluster, bundle: str, broker: str, version: int = 1) -> OwnershipRecord:
    """Have the bundle opened there, acknowledged, and Owned."""
    record = cluster.assigning(bundle, broker, version)
    cluster.write(record)
    until(lambda: cluster.row(broker)["bundles"].get(bundle) == version)
    ack = Ack(bundle=bundle, version_id=version, outcome=AckOutcome.OPENED)
    until(lambda: ack in cluster.acks(broker))
    cluster.write(owned(record))
    return owned(record)


def told(cluster: Cluster, bundle: str) -> list[tuple[str, str]]:
    """The fleet's log of a bundle: what happened, and at which broker."""
    events = json_lines(cluster.state_dir / "fleet-events.jsonl")
    return [(one["event"], one["broker"]) for one in events if one.get("bundle") == bundle]


def silent(cluster: Cluster, broker: str) -> int:
    """Wait until the broker says nothing while another says ten things; how much it has said."""
    for _ in range(20):
        before, others = len(cluster.said(broker)), len(cluster.said("broker-1"))
        until(lambda others=others: len(cluster.said("broker-1")) > others + 10)
        if len(cluster.said(broker)) == before:
            return before
    raise AssertionError(f"{broker} goes on talking")


def test_fleet_registers_each_broker_with_heartbeats_and_load(cluster: Cluster) -> None:
    for number in range(1, 7):
        name = f"broker-{number}"
        until(lambda name=name: any(isinstance(m, Heartbeat) for m in cluster.said(name)))
        until(lambda name=name: sum(isinstance(m, BrokerLoad) for m in cluster.said(name)) > 2)
        said = cluster.said(name)
        load = next(message for message in said if isinstance(message, BrokerLoad))
        assert load.web_service_url == f"http://{name}:8080"
        assert load.capacity == (2.0 if number == 6 else 1.0)
        assert {message.envelope.incarnation for message in said} == {
            cluster.row(name)["incarnation"]
        }
        seqs = [m.envelope.seq for m in said if isinstance(m, (BrokerLoad, Heartbeat))]
        assert seqs == list(range(1, len(seqs) + 1))


def test_fleet_opens_what_a_record_assigns_and_reports_its_load(cluster: Cluster) -> None:
    opened(cluster, QUARTERS[0], "broker-1")
    assert cluster.client.truth()[QUARTERS[0]] == [("broker-1", 1)]
    assert told(cluster, QUARTERS[0]) == [("opened", "broker-1")]

    def reported() -> list[BundleLoad]:
        said = cluster.said("broker-1")
        return [m for m in said if isinstance(m, BundleLoad) and m.names == (QUARTERS[0],)]

    until(lambda: bool(reported()))
    space = NamespaceLoad(name=NS, hash_function=HashFunction.CRC32, bundles=4)
    profile = LoadProfile(shape=LoadShape.ZIPF, brokers=6, seed=2)
    expected = LoadModel([space], profile).at(0).bundles(NS, np.array([0]), np.array([1 << 30]))
    assert np.array_equal(reported()[0].stats, expected)
    row = cluster.row("broker-1")
    assert row["load"] == expected[0, 0] + expected[0, 1] == row["hottest_bundle"]
    until(lambda: any(isinstance(m, TopicLoad) for m in cluster.said("broker-1")))
    topics = next(m for m in cluster.said("broker-1") if isinstance(m, TopicLoad))
    assert topics.bundle == QUARTERS[0]
    assert len(topics.topics) == expected[0, 4]
    assert np.array_equal(topics.traffic.sum(axis=0), expected[0, :4])


def test_fleet_closes_what_a_record_releases_and_says_so(cluster: Cluster) -> None:
    record = opened(cluster, QUARTERS[1], "broker-2")
    cluster.write(releasing(record))
    closed = Ack(bundle=QUARTERS[1], version_id=3, outcome=AckOutcome.CLOSED)
    until(lambda: closed in cluster.acks("broker-2"))
    assert QUARTERS[1] not in cluster.client.truth()
    assert told(cluster, QUARTERS[1]) == [("opened", "broker-2"), ("closed", "broker-2")]


def test_fleet_splits_as_a_record_says(cluster: Cluster) -> None:
    record = opened(cluster, QUARTERS[2], "broker-2")
    low, high = 2 << 30, 3 << 30
    children = [format_bundle(NS, low, low + 5000), format_bundle(NS, low + 5000, high)]
    splitting = replace(
        releasing(record), state=State.SPLITTING, children=dict.fromkeys(children, "")
    )
    cluster.write(splitting)
    split = Ack(bundle=QUARTERS[2], version_id=3, outcome=AckOutcome.SPLIT)
    until(lambda: split in cluster.acks("broker-2"))
    served = cluster.row("broker-2")["bundles"]
    assert [served.get(name) for name in (*children, QUARTERS[2])] == [3, 3, None]


def test_fleet_ignores_records_for_another_incarnation(cluster: Cluster) -> None:
    stale = replace(cluster.assigning(QUARTERS[3], "broker-5"), destination_incarnation="older")
    cluster.write(stale)
    fresh = cluster.assigning(QUARTERS[3], "broker-5", version=2)
    cluster.write(fresh)
    until(lambda: cluster.row("broker-5")["bundles"] == {QUARTERS[3]: 2})
    assert {ack.version_id for ack in cluster.acks("broker-5")} <= {2}


def test_killed_broker_falls_silent_and_comes_back_empty_as_another_incarnation(
    cluster: Cluster,
) -> None:
    opened(cluster, f"{NS}/0x00000000_0x00000010", "broker-3")
    before = cluster.row("broker-3")["incarnation"]
    until(lambda: cluster.row("broker-3")["last_report_ms"] > 0)
    crash = cluster.client.kill("broker-3")
    assert crash.bundles == (f"{NS}/0x00000000_0x00000010",)
    assert 0 < crash.last_report_ms <= crash.killed_at_ms + 1_000
    assert crash.bundles[0] not in cluster.client.truth()
    count = silent(cluster, "broker-3")
    assert cluster.row("broker-3")["life"] == "killed"

    cluster.client.act("restart", "broker-3")
    until(lambda: len(cluster.said("broker-3")) > count + 3)
    assert cluster.said("broker-3")[-1].envelope.incarnation != before
    assert cluster.row("broker-3")["bundles"] == {}


def test_paused_broker_says_nothing_and_goes_on_as_itself(cluster: Cluster) -> None:
    before = cluster.row("broker-4")["incarnation"]
    cluster.client.act("pause", "broker-4")
    count = silent(cluster, "broker-4")
    bundle = f"{NS}/0x00000010_0x00000020"
    cluster.write(cluster.assigning(bundle, "broker-4"))
    assert silent(cluster, "broker-4") == count
    cluster.client.act("resume", "broker-4")
    until(lambda: cluster.row("broker-4")["bundles"] == {bundle: 1})
    assert cluster.said("broker-4")[-1].envelope.incarnation == before


def test_drained_broker_asks_to_be_emptied_and_stops_when_it_is(cluster: Cluster) -> None:
    bundle = f"{NS}/0x00000020_0x00000030"
    record = opened(cluster, bundle, "broker-6")
    cluster.client.act("drain", "broker-6")
    until(
        lambda: any(isinstance(m, BrokerLoad) and m.is_draining for m in cluster.said("broker-6"))
    )
    assert cluster.row("broker-6")["life"] == "draining"
    cluster.write(releasing(record, destination="broker-1"))
    until(lambda: cluster.row("broker-6")["life"] == "stopped")
    closed = Ack(bundle=bundle, version_id=3, outcome=AckOutcome.CLOSED)
    until(lambda: closed in cluster.acks("broker-6"))  # Kafka may still have it on its way


def test_new_broker_joins_a_running_fleet(cluster: Cluster) -> None:
    cluster.client.act("start", "broker-7")
    until(lambda: any(isinstance(m, BrokerLoad) for m in cluster.said("broker-7")))
    assert cluster.client.health()["brokers"] == 7


def test_control_of_an_unknown_broker_is_refused(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match=r"refused POST /kill/broker-99") as caught:
        cluster.client.kill("broker-99")
    assert "no broker broker-99" in caught.value.why


def test_fleet_started_again_keeps_virtual_time_and_serves_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "load-origin.json").write_text('{"origin_ms": 1000}')
    port_file = tmp_path / "port"
    words = command(cluster.address, tmp_path, "--cluster", "d", "--port-file", str(port_file))
    again = subprocess.Popen(words)
    try:
        until(port_file.exists)
        found = FleetClient(int(port_file.read_text())).brokers()
        again.send_signal(signal.SIGTERM)
        assert again.wait(30) == 0
    finally:
        again.kill()
    assert found["virtual_ms"] == found["at_ms"] - 1000
    assert found["bundles_open"] == 0


@pytest.mark.long
def test_fleet_without_kafka_says_what_to_do(tmp_path: Path) -> None:
    words = command(KafkaAddress(bootstrap="127.0.0.1:9"), tmp_path)
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "Kafka at 127.0.0.1:9 can't be reached" in ended.stderr
    assert "Traceback" not in ended.stderr
