"""Simulated brokers: control requests, ownership feed, arguments, virtual time."""

import http.client
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from jobs.adapters.kafka.clients import Received
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.console import CommandError, MisuseError
from jobs.fleet.control import ControlServer
from jobs.fleet.fleet import Timetable
from jobs.run_fleet import model_of, parser, settings_of
from lbcore.agent.state import RecordRead, RecordTombstone
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.wire.messages import Topic
from tests.support.processes.agent_talk import assigning, owned, releasing
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


def test_feed_drops_old_versions_other_clusters_and_what_is_no_record() -> None:
    first = assigning(BUNDLE, "b1", "i", version=4)
    feed = OwnershipFeed("c")
    taken = feed.take([message(first), message(first), message(assigning(BUNDLE, "b2", "i", 3))])
    assert [(news.event, news.brokers) for news in taken] == [(RecordRead(record=first), ("b1",))]
    other = message(assigning(BUNDLE, "b1", "i"))
    assert feed.take([raw(f"cc/{BUNDLE}", other.value), raw(f"c/{BUNDLE}", b"{")]) == []
    assert feed.rejected == 1


def test_feed_tells_former_owners_too_and_forgets_the_bundle_of_a_tombstone() -> None:
    first = assigning(BUNDLE, "b1", "i")
    moved = releasing(owned(first), destination="b2")
    later = assigning(BUNDLE, "b3", "i", version=9)
    feed = OwnershipFeed("c")
    taken = feed.take([message(record) for record in (first, moved, later)])
    assert [news.brokers for news in taken] == [("b1",), ("b1", "b2"), ("b1", "b2", "b3")]
    (gone,) = feed.take([raw(f"c/{BUNDLE}", None)])
    assert (gone.event, gone.brokers) == (RecordTombstone(bundle=BUNDLE), ("b1", "b2", "b3"))
    assert feed.records == {}


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
    feed, all_of_it = OwnershipFeed("c", recipients=("b7",)), OwnershipFeed("c")
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


NAMESPACES = ("t/n", "t/n:crc32", "t/n:md5:8", "t/n:crc32:many", "a:b:c:d")
TIMES = ("fast", "300-50", "-5", "1-2-3", "")
MALFORMED = {
    **{f"--namespace={text}": "TENANT/NS:HASH:BUNDLES" for text in NAMESPACES},
    **{f"--callback-ms={text}": "MIN-MAX" for text in TIMES},
    "--capacity=broker-2": "BROKER=X",
}


@pytest.mark.parametrize("word", MALFORMED)
def test_word_that_is_malformed_is_answered_with_how_it_is_written(word: str) -> None:
    args = parser().parse_args([*REQUIRED, word])
    with pytest.raises(CommandError) as caught:
        (settings_of(args), model_of(args))
    assert MALFORMED[word] in caught.value.next_step


def test_lease_that_heartbeats_cannot_carry_is_refused() -> None:
    words = [*REQUIRED, "--agent-lease-ms", "4000"]
    assert settings_of(parser().parse_args(words)).agent.agent_lease_ms == 4000
    with pytest.raises(MisuseError, match="--agent-lease-ms 4000"):
        settings_of(parser().parse_args([*words, "--fencing", "lease"]))


BUNDLE_OF_VIRTUAL_FLEET = f"{NS}/0x00000000_0x40000000"


def test_timetable_gives_what_is_due_by_time_then_by_order_of_adding() -> None:
    table: Timetable[str] = Timetable()
    for due_ms, item in ((30, "c"), (10, "a"), (30, "d"), (10, "b"), (50, "e")):
        table.add(due_ms, item)
    assert table.due(9) == []
    assert table.due(30) == [(10, "a"), (10, "b"), (30, "c"), (30, "d")]
    assert (table.due(50), table.due(50)) == ([(50, "e")], [])


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


def test_broker_killed_while_opening_never_opens() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.write(assigning(BUNDLE_OF_VIRTUAL_FLEET, "b1", made.incarnation("b1")))
    made.run(20)
    assert made.fleet.act("kill", "b1", made.now_ms)["bundles"] == ()
    made.run(1_000)
    made.fleet.start("b1", made.now_ms)
    made.run(1_000)
    assert made.fleet.truth(made.now_ms) == {}
    assert not [event for event in made.events if event["event"] == "opened"]


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
