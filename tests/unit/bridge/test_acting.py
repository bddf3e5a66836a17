"""The actuator: next step of each record, and brokers that refuse or answer nonsense."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobs.bridge.actuator import Actuator, RequestLimits
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.collector import Collector, PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.acting import (
    Attempts,
    Leave,
    LookAgain,
    Lookup,
    PulsarState,
    RecordAnswer,
    Split,
    Unload,
    next_action,
    positions_for,
)
from lbcore.bridge.answers import topic_within
from lbcore.bridge.guardian import Finding, Trouble
from lbcore.config.tree import Config
from lbcore.model.bundles import crc32
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import AckOutcome, Acks, Message
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar

NS = "acme/ns"
BUNDLE = f"{NS}/0x00000000_0x80000000"
STARTS = {"a": "1", "b": "1", "c": "1"}
CHILDREN = {f"{NS}/0x00000000_0x20000000": "", f"{NS}/0x20000000_0x60000000": "",
            f"{NS}/0x60000000_0x80000000": ""}  # fmt: skip
SPLIT = (0x20000000, 0x60000000)


def releasing(destination: str = "b", **changes: Any) -> OwnershipRecord:
    return OwnershipRecord(
        cluster="local",
        bundle=BUNDLE,
        state=State.RELEASING,
        version_id=7,
        source="a",
        source_incarnation="1",
        destination=destination,
        destination_incarnation="1" if destination else "",
        **changes,
    )


ASSIGNING = OwnershipRecord(
    cluster="local",
    bundle=BUNDLE,
    state=State.ASSIGNING,
    version_id=8,
    source="a",
    source_incarnation="1",
    destination="b",
    destination_incarnation="1",
)
SPLITTING = OwnershipRecord(
    cluster="local",
    bundle=BUNDLE,
    state=State.SPLITTING,
    version_id=7,
    source="a",
    source_incarnation="1",
    children=CHILDREN,
)


def action(record: OwnershipRecord, owner: str | None = "", **more: Any) -> Any:
    boundaries = more.pop("boundaries", ())
    incarnations = more.pop("incarnations", STARTS)
    seen = PulsarState(owner=owner, incarnations=incarnations, boundaries=boundaries)
    return next_action(record, seen, Attempts(**more))


@pytest.mark.parametrize("record", [releasing(), ASSIGNING, SPLITTING])
def test_record_of_a_broker_that_is_not_measured_yet_waits(record: OwnershipRecord) -> None:
    unmeasured = dict.fromkeys(STARTS, "")
    assert action(record, "a", incarnations=unmeasured) == LookAgain()
    late = action(record, "a", incarnations=unmeasured, waited_ms=90_001)
    assert isinstance(late, Leave)


CLOSED = RecordAnswer(broker="a", incarnation="1", outcome=AckOutcome.CLOSED)
OPENED = RecordAnswer(broker="b", incarnation="1", outcome=AckOutcome.OPENED)
RESTING = OwnershipRecord(cluster="local", bundle=BUNDLE, state=State.FREE, version_id=1)
LATE: dict[str, Any] = {"waited_ms": 91_000}
ACTIONS: list[tuple[OwnershipRecord, str | None, dict[str, Any], Any]] = [
    (releasing(), "a", {}, Unload(destination="b")),
    (releasing(""), "a", {}, Unload(destination="")),
    (releasing(), "b", {}, CLOSED),
    (releasing(""), "", {}, CLOSED),
    (releasing(""), "c", {}, CLOSED),
    (releasing(), "", {}, Lookup()),
    (releasing(), "", LATE, Leave),
    (releasing(), "c", {}, Leave),  # it went elsewhere: the mirror tells it
    (releasing(), "a", {"incarnations": {**STARTS, "a": "2"}}, Leave),
    (releasing(), "", {"incarnations": {"b": "1"}}, Leave),
    (releasing(), None, {}, LookAgain()),
    (releasing(), None, LATE, Leave),
    (ASSIGNING, "b", {}, OPENED),
    (ASSIGNING, None, {}, LookAgain()),
    (ASSIGNING, "", {}, Leave),
    (ASSIGNING, "a", {}, Leave),
    (ASSIGNING, "c", {}, Leave),
    (ASSIGNING, "b", {"incarnations": {"b": "2"}}, Leave),
    (RESTING, "", {}, Leave),
]


@pytest.mark.parametrize(("record", "owner", "more", "wanted"), ACTIONS)
def test_next_action_follows_from_the_record_and_who_has_the_bundle(
    record: OwnershipRecord, owner: str | None, more: dict[str, Any], wanted: Any
) -> None:
    found = action(record, owner, **more)
    assert found == wanted or (wanted is Leave and isinstance(found, Leave))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"forbidden": "only observing"}, "only observing"),
        ({"asked": 3, "refused": "HTTP 409"}, "HTTP 409"),
        ({"asked": 3}, "did nothing"),
        ({"waited_ms": 91_000}, "did nothing"),
        ({"is_old": True}, "waited too long"),
    ],
)
def test_unload_that_must_not_be_asked_for_has_failed_with_the_reason(
    more: dict[str, Any], reason: str
) -> None:
    found = action(releasing(), "a", **more)
    assert (found.broker, found.outcome) == ("a", AckOutcome.FAILED)
    assert reason in found.reason


def test_unload_that_was_done_while_nobody_looked_is_answered_whatever_its_age() -> None:
    found = action(releasing(), "b", is_old=True, forbidden="only observing")
    assert found.outcome is AckOutcome.CLOSED


def test_split_is_asked_for_at_all_positions_and_a_chain_takes_the_first() -> None:
    found = action(SPLITTING, boundaries=(0, 0x80000000, 0xFFFFFFFF))
    assert found == Split(bundle=BUNDLE, positions=SPLIT)
    assert positions_for(found, at_once=True) == SPLIT
    assert positions_for(found, at_once=False) == SPLIT[:1]


def test_split_goes_on_with_what_is_left_until_it_is_done_or_refused_too_often() -> None:
    first = action(SPLITTING, boundaries=(0, SPLIT[0], 0x80000000, 0xFFFFFFFF))
    assert first == Split(bundle=f"{NS}/0x20000000_0x80000000", positions=SPLIT[1:])
    other = action(SPLITTING, boundaries=(0, SPLIT[1], 0x80000000, 0xFFFFFFFF))
    assert other == Split(bundle=f"{NS}/0x00000000_0x60000000", positions=SPLIT[:1])
    whole = action(SPLITTING, boundaries=(0, *SPLIT, 0x80000000, 0xFFFFFFFF))
    assert whole.outcome is AckOutcome.SPLIT
    uncut = (0, 0x80000000, 0xFFFFFFFF)
    assert isinstance(action(SPLITTING, boundaries=uncut, asked=5, refused="x"), Split)
    assert action(SPLITTING, boundaries=uncut, asked=6, refused="x").reason == "x"


def test_split_that_pulsar_made_otherwise_has_failed() -> None:
    found = action(SPLITTING, boundaries=(0, 0x40000000, 0x80000000, 0xFFFFFFFF))
    assert (found.outcome, found.reason) == (AckOutcome.FAILED, "Pulsar has cut it otherwise")
    merged = action(
        OwnershipRecord(
            cluster="local",
            bundle=f"{NS}/0x40000000_0x80000000",
            state=State.SPLITTING,
            version_id=7,
            source="a",
            source_incarnation="1",
            children={f"{NS}/0x40000000_0x60000000": "", f"{NS}/0x60000000_0x80000000": ""},
        ),
        boundaries=(0, 0x80000000, 0xFFFFFFFF),
    )
    assert merged.outcome is AckOutcome.FAILED


@pytest.mark.parametrize("width", [0x10000000, 0x1000000])
def test_topic_that_is_made_up_lies_within_its_bundle(width: int) -> None:
    for lower in range(0, 0xFFFFFFFF - width, 0x33333333):
        topic = topic_within(f"{NS}/0x{lower:08x}_0x{lower + width:08x}")
        assert lower <= crc32(topic) < lower + width


BUNDLE_OF_ACTUATING = "acme/ns/0x00000000_0xffffffff"
UNLOAD = f"/admin/v2/namespaces/{BUNDLE_OF_ACTUATING}/unload"
SOON_S = 20.0


class Hands:
    """A collector that knows both brokers' starts, and an actuator that may act."""

    def __init__(self, fake: FakePulsar) -> None:
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=0.5))
        self.sent: list[Message] = []
        self.collector = Collector(
            admin, ("local", CLUSTER), Config(), PollOptions(), self.sent.append
        )
        self.starts = {fake.broker(0): "1", fake.broker(1): "1"}
        self.collector.incarnations = lambda: self.starts  # type: ignore[method-assign]
        self.actuator = Actuator(admin, self.collector, "local", RequestLimits(), self.sent.append)
        self.actuator.forbidden = ""
        self.newest = 7
        self.record = OwnershipRecord(
            cluster="local",
            bundle=BUNDLE_OF_ACTUATING,
            state=State.RELEASING,
            version_id=7,
            source=fake.broker(0),
            source_incarnation="1",
            destination=fake.broker(1),
            destination_incarnation="1",
            timestamp_ms=time.time_ns() // 1_000_000,
        )

    def begin(self) -> None:
        self.actuator.consider({BUNDLE_OF_ACTUATING: self.record}, lambda _: self.newest)

    def wait(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + SOON_S
        while not condition():
            assert time.monotonic() < deadline_s, "it did not come"
            time.sleep(0.01)

    def answer(self) -> tuple[AckOutcome, str]:
        self.wait(lambda: not self.actuator.busy())
        (acks,) = self.sent
        assert isinstance(acks, Acks)
        (ack,) = acks.acks
        assert (ack.bundle, ack.version_id) == (BUNDLE_OF_ACTUATING, 7)
        return ack.outcome, ack.reason


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [BUNDLE_OF_ACTUATING], 1: []})
        running.put(UNLOAD, b"", 204)
        yield running


@pytest.fixture
def hands(fake: FakePulsar) -> Iterator[Hands]:
    made = Hands(fake)
    yield made
    made.actuator.close()
    made.collector.close()


def unloads(fake: FakePulsar) -> int:
    return sum(path.startswith(UNLOAD) for _, path in list(fake.requests))


def test_unload_is_closed_when_the_destination_shows_the_bundle(
    fake: FakePulsar, hands: Hands
) -> None:
    fake.hang.add(UNLOAD)
    hands.begin()
    hands.wait(lambda: unloads(fake))
    fake.own({0: [], 1: [BUNDLE_OF_ACTUATING]})
    fake.release.set()
    assert hands.answer() == (AckOutcome.CLOSED, "")
    assert unloads(fake) == 1


def test_unload_that_is_refused_three_times_fails_in_pulsars_words(
    fake: FakePulsar, hands: Hands
) -> None:
    fake.put(UNLOAD, {"reason": "Policies are read-only"}, 409)
    hands.begin()
    outcome, reason = hands.answer()
    assert outcome is AckOutcome.FAILED
    assert "409 Policies are read-only" in reason
    assert unloads(fake) == 3
    name, labels = "ballast_bridge_failed_requests_total", {"cluster": "local", "result": "refused"}
    counter = hands.collector.metrics.registry.get_sample_value
    assert counter(name, labels) == 3
    labels = {"cluster": "local", "outcome": "failed"}
    assert counter("ballast_bridge_answers_total", labels) == 1


def test_unload_that_pulsar_says_yes_to_and_does_not_do_fails(
    fake: FakePulsar, hands: Hands
) -> None:
    hands.begin()
    assert hands.answer() == (AckOutcome.FAILED, "Pulsar said yes and did nothing")
    assert unloads(fake) == 3


def test_nothing_is_asked_or_answered_while_brokers_answer_nonsense(
    fake: FakePulsar, hands: Hands
) -> None:
    brokers = f"/admin/v2/brokers/{CLUSTER}"
    fake.put(brokers, b"<html>bad gateway</html>", 502)
    hands.begin()
    time.sleep(1.2)
    assert (unloads(fake), hands.sent) == (0, [])
    fake.own({0: [], 1: [BUNDLE_OF_ACTUATING]})
    assert hands.answer() == (AckOutcome.CLOSED, "")


def test_record_that_has_been_superseded_is_let_go(fake: FakePulsar, hands: Hands) -> None:
    fake.put(f"/admin/v2/brokers/{CLUSTER}", b"", 503)
    hands.begin()
    hands.newest = 8
    hands.wait(lambda: not hands.actuator.busy())
    assert (unloads(fake), hands.sent) == (0, [])


def test_bridge_that_only_observes_answers_why_and_asks_nothing(
    fake: FakePulsar, hands: Hands
) -> None:
    hands.actuator.forbidden = "it only observes"
    hands.begin()
    assert hands.answer() == (AckOutcome.FAILED, "it only observes")
    assert unloads(fake) == 0


def test_record_is_answered_once_more_only_after_a_rest(fake: FakePulsar, hands: Hands) -> None:
    fake.own({0: [], 1: [BUNDLE_OF_ACTUATING]})
    hands.begin()
    assert hands.answer()[0] is AckOutcome.CLOSED
    hands.begin()
    hands.begin()
    assert hands.actuator.busy() == frozenset()
    assert len(hands.sent) == 1


def test_no_more_is_asked_in_a_minute_than_is_allowed(fake: FakePulsar) -> None:
    made = Hands(fake)
    made.actuator.close()
    made.actuator = Actuator(
        PulsarAdmin(AdminAddress(url=fake.url, timeout_s=0.5)),
        made.collector,
        "local",
        RequestLimits(per_minute=2),
        made.sent.append,
    )
    made.actuator.forbidden = ""
    made.begin()
    made.wait(lambda: unloads(fake) == 2)
    time.sleep(1.2)
    assert unloads(fake) == 2
    assert made.sent == []
    made.actuator.close()
    made.collector.close()


@pytest.mark.parametrize("change", ["observes", "quarantined", "superseded", "ended"])
def test_what_waits_for_its_turn_is_not_asked_when_it_must_not_be_any_more(
    fake: FakePulsar, hands: Hands, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_turn() -> None:  # and meanwhile the world goes on
        if change == "observes":
            hands.actuator.forbidden = "it only observes"
        elif change == "quarantined":
            hands.actuator.quarantined = frozenset((BUNDLE_OF_ACTUATING,))
        elif change == "superseded":
            hands.newest = 8
        else:
            hands.actuator.close()

    monkeypatch.setattr(hands.actuator, "_wait_for_turn", wait_for_turn)
    hands.begin()
    hands.wait(lambda: not hands.actuator.busy())
    assert unloads(fake) == 0
    assert len(hands.sent) == (change in ("observes", "quarantined"))


def test_repair_that_waits_for_its_turn_is_not_asked_when_the_bridge_observes(
    fake: FakePulsar, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = threading.Event()

    def wait_for_turn() -> None:
        hands.actuator.forbidden = "it only observes"
        waited.set()

    monkeypatch.setattr(hands.actuator, "_wait_for_turn", wait_for_turn)
    stuck = Finding(
        trouble=Trouble.STUCK, subject=BUNDLE_OF_ACTUATING, since_ms=1, evidence="it is closed"
    )
    hands.actuator.repair(stuck)
    assert waited.wait(SOON_S)
    hands.actuator._pool.shutdown(wait=True)  # noqa: SLF001 (until it has ended)
    assert unloads(fake) == 0


@pytest.mark.parametrize("manager", ["modular", "extensible"])
def test_modular_broker_takes_one_bundle_at_a_time(
    fake: FakePulsar, hands: Hands, manager: str
) -> None:
    hands.collector.is_extensible = lambda: manager == "extensible"  # type: ignore[method-assign]
    fake.hang.add(UNLOAD)
    other = "acme/other/0x00000000_0xffffffff"
    records = {BUNDLE_OF_ACTUATING: hands.record, other: replace(hands.record, bundle=other)}
    hands.actuator.consider(records, lambda _: hands.newest)
    assert hands.actuator.busy() == (
        set(records) if manager == "extensible" else {BUNDLE_OF_ACTUATING}
    )
    hands.newest = 8
    fake.release.set()
