"""Simulated brokers in virtual time: what they say, and when."""

from itertools import pairwise

import pytest

from jobs.fleet.broker import Timetable
from jobs.fleet.fleet import UnknownBrokerError
from lbcore.wire.messages import Topic
from tests.support.processes.agent_talk import assigning, owned, releasing
from tests.support.worlds.virtual_fleet import NS, START_MS, VirtualFleet

BUNDLE = f"{NS}/0x00000000_0x40000000"


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
    record = assigning(BUNDLE, "b1", made.incarnation("b1"))
    made.write(record)
    made.run(40)
    assert made.fleet.truth(made.now_ms) == {}
    made.run(300)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b1", 1)]}
    made.write(owned(record), releasing(owned(record)))
    made.run(400)
    assert made.fleet.truth(made.now_ms) == {}
    noted = [(e["event"], e["bundle"], e["version"]) for e in made.events if "bundle" in e]
    assert noted == [("opened", BUNDLE, 1), ("closed", BUNDLE, 3)]
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
    made.write(assigning(BUNDLE, "b1", made.incarnation("b1")))
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
    made.write(assigning(BUNDLE, "b1", made.incarnation("b1")))
    made.fleet.pause("b1", made.now_ms)
    count = len(made.sender.sent)
    made.run(5_000)
    assert (made.fleet.truth(made.now_ms), len(made.sender.sent)) == ({}, count)
    made.fleet.resume("b1", made.now_ms)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b1", 1)]}
    made.run(5_000)
    assert len(made.sender.sent) > count + 2


def test_broker_restarted_reads_records_that_name_it_but_not_its_new_incarnation() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    before = made.incarnation("b1")
    made.write(assigning(BUNDLE, "b1", before))
    made.run(500)
    made.fleet.start("b1", made.now_ms)
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {}
    made.write(assigning(BUNDLE, "b1", made.incarnation("b1"), version=2))
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b1", 2)]}


def test_broker_that_hangs_reports_on_and_opens_when_it_goes_on() -> None:
    made = VirtualFleet()
    made.fleet.start("b1", START_MS)
    made.fleet.hang("b1", made.now_ms)
    made.write(assigning(BUNDLE, "b1", made.incarnation("b1")))
    made.run(20_000)
    assert made.fleet.truth(made.now_ms) == {}
    assert made.times(Topic.BROKER_LOAD, "b1")[-1] > 15_000
    made.fleet.resume("b1", made.now_ms)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b1", 1)]}


def test_broker_that_loses_a_bundle_while_paused_closes_it_late() -> None:
    """Two serve meanwhile, as the fencing mode `token` allows: /truth tells it."""
    made = VirtualFleet()
    for name in ("b1", "b2"):
        made.fleet.start(name, START_MS)
    made.write(assigning(BUNDLE, "b1", made.incarnation("b1")))
    made.run(500)
    made.fleet.pause("b1", made.now_ms)
    made.write(assigning(BUNDLE, "b2", made.incarnation("b2"), version=2))
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b1", 1), ("b2", 2)]}
    made.fleet.resume("b1", made.now_ms)
    made.run(500)
    assert made.fleet.truth(made.now_ms) == {BUNDLE: [("b2", 2)]}


def test_topics_are_read_when_a_bundle_opens_and_only_so_many_at_once() -> None:
    made = VirtualFleet(topics_per_read=1)
    made.fleet.start("b1", START_MS)
    bundles = [BUNDLE, f"{NS}/0x40000000_0x80000000", f"{NS}/0x80000000_0xc0000000"]
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
        VirtualFleet().fleet.pause("b9", START_MS)
