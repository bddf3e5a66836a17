"""The actuator on brokers that refuse, are slow, or answer nonsense: what is asked and answered."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jobs.bridge.actuator import Actuator, AskingLimits
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.collector import Collector, Rhythm
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.bridge.acting import RetryPolicy
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import AckOutcome, Acks, Message
from tests.support.admin.fake_pulsar import CLUSTER, FakePulsar, fake_pulsar

BUNDLE = "acme/ns/0x00000000_0xffffffff"
UNLOAD = f"/admin/v2/namespaces/{BUNDLE}/unload"
SOON_S = 20.0


class Hands:
    """A collector that knows both brokers' starts, and an actuator that may act."""

    def __init__(self, fake: FakePulsar) -> None:
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=0.5))
        self.sent: list[Message] = []
        self.collector = Collector(admin, ("local", CLUSTER), Config(), Rhythm(), self.sent.append)
        self.starts = {fake.broker(0): "1", fake.broker(1): "1"}
        self.collector.incarnations = lambda: self.starts  # type: ignore[method-assign]
        self.actuator = Actuator(admin, self.collector, "local", AskingLimits(), self.sent.append)
        self.actuator.bounds = RetryPolicy()
        self.newest = 7
        self.record = OwnershipRecord(
            cluster="local",
            bundle=BUNDLE,
            state=State.RELEASING,
            version_id=7,
            source=fake.broker(0),
            source_incarnation="1",
            destination=fake.broker(1),
            destination_incarnation="1",
            timestamp_ms=time.time_ns() // 1_000_000,
        )

    def begin(self) -> None:
        self.actuator.consider({BUNDLE: self.record}, lambda _: self.newest)

    def wait(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + SOON_S
        while not condition():
            assert time.monotonic() < deadline_s, "it did not come"
            time.sleep(0.01)

    def answer(self) -> tuple[AckOutcome, str]:
        """The one acknowledgement."""
        self.wait(lambda: not self.actuator.busy())
        (acks,) = self.sent
        assert isinstance(acks, Acks)
        (ack,) = acks.acks
        assert (ack.bundle, ack.version_id) == (BUNDLE, 7)
        return ack.outcome, ack.reason


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with fake_pulsar() as running:
        running.own({0: [BUNDLE], 1: []})
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
    threading.Timer(0.2, lambda: fake.own({0: [], 1: [BUNDLE]})).start()
    fake.hang.add(UNLOAD)
    threading.Timer(0.3, fake.release.set).start()
    hands.begin()
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
    assert hands.actuator.counts == {"refused": 3, "failed": 1}


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
    fake.own({0: [], 1: [BUNDLE]})
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
    hands.actuator.bounds = RetryPolicy(forbidden="it only observes")
    hands.begin()
    assert hands.answer() == (AckOutcome.FAILED, "it only observes")
    assert unloads(fake) == 0


def test_record_is_answered_once_more_only_after_a_rest(fake: FakePulsar, hands: Hands) -> None:
    fake.own({0: [], 1: [BUNDLE]})
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
        AskingLimits(per_minute=2),
        made.sent.append,
    )
    made.actuator.bounds = RetryPolicy()
    made.begin()
    made.wait(lambda: unloads(fake) == 2)
    time.sleep(1.2)
    assert unloads(fake) == 2
    assert made.sent == []
    made.actuator.close()
    made.collector.close()


@pytest.mark.parametrize("manager", ["modular", "extensible"])
def test_modular_broker_takes_one_bundle_at_a_time(
    fake: FakePulsar, hands: Hands, manager: str
) -> None:
    hands.collector.is_extensible = lambda: manager == "extensible"  # type: ignore[method-assign]
    fake.hang.add(UNLOAD)
    other = "acme/other/0x00000000_0xffffffff"
    records = {BUNDLE: hands.record, other: replace(hands.record, bundle=other)}
    hands.actuator.consider(records, lambda _: hands.newest)
    assert hands.actuator.busy() == (set(records) if manager == "extensible" else {BUNDLE})
    hands.newest = 8
    fake.release.set()
