"""Simulated brokers: control requests, ownership feed, arguments, virtual time."""

import http.client
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import Received
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.console import CommandError, MisuseError
from jobs.fleet.broker import Timetable
from jobs.fleet.control import ControlServer, FleetClient, event_log
from jobs.fleet.fleet import UnknownBrokerError
from jobs.run_fleet import model_of, parse_namespace, parser, settings_of
from lbcore.agent.state import RecordForgotten, RecordRead
from lbcore.model.bundles import HashFunction
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.sim.load.load import LoadShape, NamespaceLoad
from lbcore.sim.summary import BundleOpened
from lbcore.wire.messages import Topic
from tests.support.processes.agent_talk import assigning, owned, read_events, read_opened, releasing
from tests.support.worlds.simulated_brokers import NS, START_MS, VirtualFleet


class Loop:
    """Counts what is asked of the fleet."""

    calls = 0

    def call(self, work: Any) -> object:
        """Not carried out: nobody is there."""
        del work
        self.calls += 1
        return {}


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def server(loop: Loop) -> Iterator[ControlServer]:
    running = ControlServer(loop)  # type: ignore[arg-type]
    yield running
    running.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Referer": "http://evil.example/x"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Length": "1000000000"}, 413),
        ({"Content-Length": "x"}, 413),
        ({"Content-Length": "-1"}, 413),
        ({"Transfer-Encoding": "chunked"}, 413),
    ],
)
def test_page_and_endless_body_are_refused_before_anything_happens(
    server: ControlServer, loop: Loop, method: str, headers: dict[str, str], status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    path = "/health" if method == "GET" else "/kill/broker-1"
    given = {"Host": f"127.0.0.1:{server.port}", **headers}
    connection.putrequest(method, path, skip_host=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    assert loop.calls == (status == 200)
    connection.close()


def test_its_own_client_is_served(server: ControlServer, loop: Loop) -> None:
    client = FleetClient(server.port)
    client.health()
    client.act("drain", "broker-1")
    assert loop.calls == 2


def test_request_without_a_host_is_its_clients(server: ControlServer, loop: Loop) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        wire.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 200 " in wire.recv(1_000)
    assert loop.calls == 1


BUNDLE = "t/n/0x00000000_0xffffffff"


def message(record: OwnershipRecord) -> Received:
    key, value = format_record(record)
    return raw(key.decode(), value)


def raw(key: str, value: bytes | None) -> Received:
    return Received(partition=0, offset=0, timestamp_ms=0, key=key, value=value)


def test_feed_drops_versions_that_are_not_newer() -> None:
    first = assigning(BUNDLE, "b1", "i", version=4)
    feed = OwnershipFeed("c")
    taken = feed.take([message(first), message(first), message(assigning(BUNDLE, "b2", "i", 3))])
    assert [(news.event, news.brokers) for news in taken] == [(RecordRead(record=first), ("b1",))]


def test_feed_tells_former_owners_too() -> None:
    first = assigning(BUNDLE, "b1", "i")
    moved = releasing(owned(first), destination="b2")
    later = assigning(BUNDLE, "b3", "i", version=9)
    feed = OwnershipFeed("c")
    taken = feed.take([message(record) for record in (first, moved, later)])
    assert [news.brokers for news in taken] == [("b1",), ("b1", "b2"), ("b1", "b2", "b3")]


def test_feed_of_a_tombstone_forgets_the_bundle() -> None:
    feed = OwnershipFeed("c")
    feed.take([message(assigning(BUNDLE, "b1", "i", version=7))])
    (gone,) = feed.take([raw(f"c/{BUNDLE}", None)])
    assert (gone.event, gone.brokers) == (RecordForgotten(bundle=BUNDLE), ("b1",))
    assert feed.records == {}


def test_feed_ignores_other_clusters_and_counts_what_is_no_record() -> None:
    feed = OwnershipFeed("c")
    other = message(assigning(BUNDLE, "b1", "i"))
    assert feed.take([raw(f"cc/{BUNDLE}", other.value), raw(f"c/{BUNDLE}", b"{")]) == []
    assert feed.rejected == 1


def test_feed_gives_a_starting_broker_the_newest_records_that_name_it() -> None:
    low, high = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
    feed = OwnershipFeed("c")
    moved = releasing(owned(assigning(high, "b1", "i")), destination="b2")
    feed.take(
        [message(moved), message(assigning(low, "b1", "i")), message(assigning(BUNDLE, "b3", "i"))]
    )
    assert [read.record.bundle for read in feed.current("b1")] == [low, high]
    assert [read.record.bundle for read in feed.current("b2")] == [high]
    assert feed.current("b9") == []


def test_feed_of_one_broker_remembers_no_other_that_ever_was() -> None:
    feed, all_of_it = OwnershipFeed("c", told=("b7",)), OwnershipFeed("c")
    for version in range(1, 1_000):
        news = message(assigning(BUNDLE, f"b{version}", "i", version=version))
        ((mine,), (told,)) = (feed.take([news]), all_of_it.take([news]))
        assert mine.brokers == (("b7",) if version >= 7 else ())
        assert "b7" in told.brokers or version < 7
    assert feed._concerned == {BUNDLE: {"b7"}}  # noqa: SLF001 (what grew is seen nowhere else)


REQUIRED = ["--bootstrap", "k:1", "--state-dir", "s", "--namespace", "t/n:murmur3_32:8"]


def test_settings_follow_the_command_line() -> None:
    words = [*REQUIRED, "--report-interval-ms", "2000", "--heartbeat-interval-ms", "700"]
    words += ["--callback-ms", "10-20", "--capacity", "broker-2=0.5", "--speed", "30"]
    words += ["--bundle-report-interval-ms", "60000"]
    made = settings_of(parser().parse_args(words))
    assert (made.signals.report_check_ms, made.signals.report_max_interval_ms) == (2000, 1999)
    assert made.signals.bundle_report_interval_ms == 60_000
    assert (made.agent.heartbeat_interval_ms, made.callback_ms) == (700, (10, 20))
    assert (made.capacities, made.speed) == ({"broker-2": 0.5}, 30.0)


def test_model_follows_the_command_line() -> None:
    words = [*REQUIRED, "--load", "daily-wave", "--brokers", "3", "--seed", "9"]
    made = model_of(parser().parse_args(words))
    assert (made.profile.shape, made.profile.brokers, made.profile.seed) == (
        LoadShape.DAILY_WAVE,
        3,
        9,
    )
    expected = NamespaceLoad(name="t/n", hash_function=HashFunction.MURMUR3_32, bundles=8)
    assert made.namespaces == (expected,)


@pytest.mark.parametrize("text", ["t/n", "t/n:crc32", "t/n:md5:8", "t/n:crc32:many", "a:b:c:d"])
def test_namespace_that_is_malformed_says_how_it_is_written(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_namespace(text)
    assert "TENANT/NS:HASH:BUNDLES" in caught.value.next_step


def test_capacity_that_is_malformed_says_how_it_is_written() -> None:
    with pytest.raises(CommandError) as caught:
        settings_of(parser().parse_args([*REQUIRED, "--capacity", "broker-2"]))
    assert "BROKER=X" in caught.value.next_step


@pytest.mark.parametrize("text", ["fast", "300-50", "-5", "1-2-3", ""])
def test_time_of_callbacks_that_is_malformed_says_how_it_is_written(text: str) -> None:
    with pytest.raises(MisuseError) as caught:
        settings_of(parser().parse_args([*REQUIRED, f"--callback-ms={text}"]))
    assert "MIN-MAX" in caught.value.next_step


def test_lease_that_heartbeats_cannot_carry_is_refused() -> None:
    words = [*REQUIRED, "--agent-lease-ms", "4000"]
    assert settings_of(parser().parse_args(words)).agent.agent_lease_ms == 4000
    with pytest.raises(MisuseError, match="--agent-lease-ms 4000"):
        settings_of(parser().parse_args([*words, "--fencing", "lease"]))


def test_event_log_is_appended_and_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    opening = {"at_ms": 5, "event": "opened", "broker": "b", "bundle": "t/n/0x0"}
    for _ in range(2):
        with event_log(path) as note:
            note({"at_ms": 1, "event": "broker alive", "broker": "b"})
            note(opening)
    with path.open("a") as file:
        file.write('{"at_ms": 6, "eve')
    assert len(read_events(path)) == 4
    assert read_opened(path) == [BundleOpened(bundle="t/n/0x0", broker="b", at_ms=5)] * 2


BUNDLE_OF_VIRTUAL_FLEET = f"{NS}/0x00000000_0x40000000"


def test_timetable_gives_what_is_due_by_time_then_by_order_of_adding() -> None:
    table: Timetable[str] = Timetable()
    for due_ms, item in ((30, "c"), (10, "a"), (30, "d"), (10, "b"), (50, "e")):
        table.add(due_ms, item)
    assert table.due(9) == []
    assert table.due(30) == [(10, "a"), (10, "b"), (30, "c"), (30, "d")]
    assert (table.next_ms(), table.due(50), table.next_ms()) == (50, [(50, "e")], None)


def test_broker_reports_at_once_then_every_interval_at_a_phase_of_its_own() -> None:
    made = VirtualFleet()
    for number in range(20):
        made.fleet.start(f"b{number}", START_MS)
    made.run(60_000)
    phases = set()
    for number in range(20):
        first, second, *later = made.times(Topic.BROKER_LOAD, f"b{number}", "cpu")
        assert first == 0
        phases.add(second)
        gaps = [after - before for before, after in pairwise([second, *later])]
        assert set(gaps) <= {10_000, 10_010, 10_020}
        assert len(gaps) in (4, 5)
    assert len(phases) > 15
    assert min(phases) < 3_000
    assert max(phases) > 7_000


def test_broker_sends_heartbeats_between_reports_and_no_more_than_that() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.run(60_000)
    times = made.times(Topic.BROKER_LOAD, "b1")
    assert max(after - before for before, after in pairwise(times)) <= 3_020
    assert len(times) <= 28  # wake-ups must not multiply
    seqs = [fields["seq"] for _, topic, _, fields in made.sender.sent if topic is Topic.BROKER_LOAD]
    assert seqs == list(range(1, len(seqs) + 1))


def test_broker_opens_and_closes_after_a_while_and_notes_both() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    record = assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1"))
    made.write(record)
    made.run(40)
    assert made.fleet.truth(made.now_ms) == {}
    made.run(300)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b1", 1)]}
    made.write(owned(record), releasing(owned(record)))
    made.run(400)
    assert made.fleet.truth(made.now_ms) == {}
    noted = [(e["event"], e["bundle"], e["version"]) for e in made.events if "bundle" in e]
    assert noted == [("opened", BUNDLE_OF_VIRTUAL_FLEET, 1), ("closed", BUNDLE_OF_VIRTUAL_FLEET, 3)]
    outcomes = [
        ack["outcome"]
        for _, topic, _, fields in made.sender.sent
        if topic is Topic.ACKS
        for ack in fields["acks"]
    ]
    assert outcomes == ["opened", "closed"]


def test_broker_killed_while_opening_never_opens() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1")))
    made.run(20)
    assert made.fleet.kill("b1", made.now_ms)["bundles"] == ()
    made.run(1_000)
    made.fleet.start("b1", made.now_ms)
    made.run(1_000)
    assert made.fleet.truth(made.now_ms) == {}
    assert not [event for event in made.events if event["event"] == "opened"]


def test_broker_paused_while_opening_opens_when_it_goes_on() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1")))
    made.fleet.act("pause", "b1", made.now_ms)
    count = len(made.sender.sent)
    made.run(5_000)
    assert (made.fleet.truth(made.now_ms), len(made.sender.sent)) == ({}, count)
    made.fleet.act("resume", "b1", made.now_ms)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b1", 1)]}
    made.run(5_000)
    assert len(made.sender.sent) > count + 2


def test_broker_restarted_reads_records_that_name_it_but_not_its_new_incarnation() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    before = made.incarnation("b1")
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", before))
    made.run(500)
    made.fleet.start("b1", made.now_ms)
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {}
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1"), version=2))
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b1", 2)]}


def test_broker_that_hangs_reports_on_and_opens_when_it_goes_on() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.fleet.act("hang", "b1", made.now_ms)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1")))
    made.run(20_000)
    assert made.fleet.truth(made.now_ms) == {}
    assert made.times(Topic.BROKER_LOAD, "b1")[-1] > 15_000
    made.fleet.act("resume", "b1", made.now_ms)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b1", 1)]}


def test_broker_that_loses_a_bundle_while_paused_closes_it_late() -> None:
    """Two serve meanwhile, as the fencing mode `token` allows: /truth tells it."""
    made = VirtualFleet()
    for name in ("b1", "b2"):
        made.fleet.start(name, START_MS)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1")))
    made.run(500)
    made.fleet.act("pause", "b1", made.now_ms)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b2", made.incarnation("b2"), version=2))
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b1", 1), ("b2", 2)]}
    made.fleet.act("resume", "b1", made.now_ms)
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE_OF_VIRTUAL_FLEET: [("b2", 2)]}


def test_topics_are_read_when_a_bundle_opens_and_only_so_many_at_once() -> None:
    made = VirtualFleet(topics_per_read=1)
    made.fleet.start("b1", START_MS)
    bundles = [
        BUNDLE_OF_VIRTUAL_FLEET,
        f"{NS}/0x40000000_0x80000000",
        f"{NS}/0x80000000_0xc0000000",
    ]
    made.write(*(assigning(bundle, "b1", made.incarnation("b1")) for bundle in bundles))
    made.run(60_000)
    reported = [
        (at_ms, fields["bundle"])
        for at_ms, topic, _, fields in made.sender.sent
        if topic is Topic.TOPIC_LOAD
    ]
    assert sorted(bundle for _, bundle in reported) == bundles
    assert len({at_ms for at_ms, _ in reported}) == 3


def test_control_of_an_unknown_broker_raises() -> None:
    with pytest.raises(UnknownBrokerError):
        VirtualFleet().fleet.act("pause", "b9", START_MS)
