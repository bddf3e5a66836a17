"""The agent: callbacks, acknowledgements, incarnations, stopping, lease."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lbcore.agent.agent import STOPPING, AgentMachine
from lbcore.agent.reporting import NEVER_MS, Identity
from lbcore.agent.state import (
    AgentState,
    Effect,
    EndConfirmed,
    Event,
    Lease,
    RecordRead,
    RecordTombstone,
    ReportConfirmed,
    Send,
    Stop,
    Stopped,
)
from lbcore.config.ownership import FENCING_LEASE, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership import protocol
from lbcore.ownership.holding import Call, Callback, CallDone
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import AckOutcome, Acks
from tests.support.values.ownership_records import (
    A2,
    BUNDLE,
    CLUSTER,
    LEFT,
    ORIGIN,
    RIGHT,
    A,
    B,
    assigning,
    deleted,
    owned,
    record_of,
    releasing,
    served,
    splitting,
)

CONFIG = AgentConfig()
REPEAT_MS = CONFIG.ack_repeat_ms
OPEN, CLOSE, SPLIT = Callback.OPEN, Callback.CLOSE, Callback.SPLIT


class Driver:
    """An agent of broker-a with its state and clock; `seen` are the effects of the last step."""

    def __init__(self, config: AgentConfig = CONFIG) -> None:
        identity = Identity(cluster=CLUSTER, broker=A.broker, incarnation=A.incarnation)
        self.agent = AgentMachine(identity, config, SignalsConfig())
        self.state: AgentState | None = None
        self.now_ms = 0
        self.seen: Sequence[Effect] = ()
        self.wake_at_ms: int | None = None
        self.give()

    def give(self, *events: Event, after_ms: int = 1) -> "Driver":
        """One step with these events."""
        self.now_ms += after_ms
        step = self.agent.step(self.state, events, self.now_ms)
        self.state, self.seen, self.wake_at_ms = step.state, step.effects, step.wake_at_ms
        return self

    def read(self, *records: OwnershipRecord) -> "Driver":
        """One step with records."""
        return self.give(*(RecordRead(record=record) for record in records))

    def done(self, callback: Callback, version_id: int, failure: str = "") -> "Driver":
        """One step with a callback's result."""
        done = CallDone(callback=callback, bundle=BUNDLE, version_id=version_id, failure=failure)
        return self.give(done)

    def calls(self) -> list[tuple[Callback, str, int]]:
        """The callbacks that the last step asked for."""
        return [(c.callback, c.bundle, c.version_id) for c in self.seen if isinstance(c, Call)]

    def acks(self) -> list[tuple[str, int, AckOutcome, str]]:
        """What the last step said."""
        return [
            (ack.bundle, ack.version_id, ack.outcome, ack.reason)
            for effect in self.seen
            if isinstance(effect, Send) and isinstance(effect.message, Acks)
            for ack in effect.message.acks
        ]

    def served(self) -> dict[str, int]:
        """What the agent believes to serve."""
        assert self.state is not None
        return served(self.state)

    def opened(self) -> "Driver":
        """Assigned at version 2, opened, Owned at version 3."""
        return self.read(assigning()).done(OPEN, 2).read(owned())


def test_close_that_fails_for_another_owner_is_tried_again() -> None:
    driver = Driver().opened().read(record_of(protocol.reassign(owned(), B, ORIGIN)))
    driver.done(CLOSE, 4, "clients hang")
    assert driver.served() == {BUNDLE: 2}
    tries = [driver.give(after_ms=REPEAT_MS).calls() for _ in range(2)]
    assert [(CLOSE, BUNDLE, 4)] in tries
    assert driver.done(CLOSE, 4).served() == {}


def test_split_cancelled_after_it_was_done_opens_the_parent_over_its_children() -> None:
    driver = Driver().opened().read(splitting()).done(SPLIT, 4)
    driver.read(record_of(protocol.cancel(splitting(), ORIGIN)))
    assert driver.calls() == [(OPEN, BUNDLE, 5)]
    assert driver.served() == {LEFT: 2, RIGHT: 2}
    assert driver.done(OPEN, 5).served() == {BUNDLE: 5}


def test_child_waits_for_a_parent_that_is_still_closing() -> None:
    driver = Driver().opened().read(record_of(protocol.reassign(owned(), B, ORIGIN)))
    child = replace(assigning(), bundle=LEFT, version_id=9)
    assert driver.calls() == [(CLOSE, BUNDLE, 4)]
    assert driver.read(child).calls() == []
    assert driver.done(CLOSE, 4).calls() == [(OPEN, LEFT, 9)]


@pytest.mark.parametrize("late", [assigning(), releasing()])
def test_bundle_of_a_former_life_is_left_alone_while_another_is_open_there(
    late: OwnershipRecord,
) -> None:
    newer = replace(assigning(), bundle=LEFT, version_id=9)
    driver = Driver().read(newer)
    driver.give(CallDone(callback=OPEN, bundle=LEFT, version_id=9))
    assert driver.read(late).calls() == []
    assert driver.read(replace(deleted(), version_id=8)).calls() == []
    assert driver.served() == {LEFT: 9}


def test_bundle_of_a_new_life_waits_for_what_the_former_left_open() -> None:
    driver = Driver().opened().read(replace(assigning(), bundle=LEFT, version_id=9))
    assert driver.calls() == []
    assert driver.read(replace(deleted(), version_id=8)).calls() == [(CLOSE, BUNDLE, 8)]
    assert driver.done(CLOSE, 8).calls() == [(OPEN, LEFT, 9)]


def test_key_that_is_deleted_closes_what_is_left_and_forgets_the_version() -> None:
    driver = Driver().opened().give(RecordTombstone(bundle=BUNDLE))
    assert driver.calls() == [(CLOSE, BUNDLE, 3)]
    driver.done(CLOSE, 3)
    assert driver.state.holdings == {}
    assert BUNDLE not in driver.state.versions


def test_stop_after_its_time_closes_what_is_left_and_says_that_it_failed() -> None:
    driver = Driver().opened().give(Stop())
    driver.give(after_ms=CONFIG.shutdown_timeout_ms)
    assert driver.calls() == [(CLOSE, BUNDLE, 3)]
    driver.done(CLOSE, 3)
    assert driver.acks() == [(BUNDLE, 3, AckOutcome.FAILED, STOPPING)]
    assert Stopped(left=(BUNDLE,)) in driver.seen


def test_stop_with_a_callback_that_never_ends_is_bounded() -> None:
    driver = Driver().opened().give(Stop())
    driver.give(after_ms=CONFIG.shutdown_timeout_ms)
    assert Stopped(left=(BUNDLE,)) not in driver.seen
    assert Stopped(left=(BUNDLE,)) in driver.give(after_ms=CONFIG.stop_grace_ms).seen


def test_assignment_to_a_stopping_agent_is_refused_at_once() -> None:
    other = replace(assigning(), bundle=LEFT)
    driver = Driver().opened().give(Stop()).read(other)
    assert driver.calls() == []
    assert driver.acks() == [(LEFT, 2, AckOutcome.FAILED, STOPPING)]
    driver.read(releasing(A, B)).done(CLOSE, 4)
    assert Stopped() in driver.seen


def test_acks_of_one_step_travel_together_in_messages_of_bounded_size() -> None:
    driver = Driver(replace(CONFIG, bundles_per_part=2))
    records = [replace(splitting(), bundle=f"t/n{i}/0x00000000_0xffffffff") for i in range(5)]
    driver.read(*records)
    messages = [
        effect.message
        for effect in driver.seen
        if isinstance(effect, Send) and isinstance(effect.message, Acks)
    ]
    assert [len(message.acks) for message in messages] == [2, 2, 1]
    assert [message.envelope.seq for message in messages] == [1, 2, 3]


LEASE_MS = AgentConfig().agent_lease_ms


class Leased:
    """An agent of broker-a with a lease; time is what the test says."""

    def __init__(self, fencing: str = FENCING_LEASE) -> None:
        identity = Identity(cluster=CLUSTER, broker=A.broker, incarnation=A.incarnation)
        self.agent = AgentMachine(identity, AgentConfig(), SignalsConfig(), fencing)
        self.state: AgentState | None = None
        self.give(0)

    def give(self, now_ms: int, *events: Event) -> "Leased":
        self.state = self.agent.step(self.state, events, now_ms).state
        return self

    def read(self, now_ms: int, *records: OwnershipRecord) -> "Leased":
        return self.give(now_ms, *(RecordRead(record=record) for record in records))

    def confirm(self, now_ms: int) -> "Leased":
        """Kafka has a report that was sent now, and ownership is read up to now."""
        return self.give(now_ms, ReportConfirmed(sent_ms=now_ms), EndConfirmed(asked_ms=now_ms))

    def done(self, now_ms: int, callback: Callback, version_id: int) -> "Leased":
        return self.give(now_ms, CallDone(callback=callback, bundle=BUNDLE, version_id=version_id))

    def opened(self) -> "Leased":
        """Owned at version 3 under token 2, everything confirmed at 0."""
        return self.read(0, assigning()).done(0, Callback.OPEN, 2).read(0, owned()).confirm(0)

    def uses(self, now_ms: int) -> dict[str, int]:
        """What a use at this time is allowed to touch."""
        assert self.state is not None
        is_allowed = now_ms <= self.agent.until_ms(self.state)
        return self.agent.usable(self.state) if is_allowed else {}


def test_lease_that_nothing_has_confirmed_allows_nothing() -> None:
    assert Lease().until_ms(LEASE_MS) == NEVER_MS
    agent = Leased().read(0, assigning()).done(0, Callback.OPEN, 2).read(0, owned())
    assert agent.uses(0) == {}
    assert agent.give(1, ReportConfirmed(sent_ms=1)).uses(1) == {}
    assert agent.give(2, EndConfirmed(asked_ms=2)).uses(2) == {BUNDLE: 2}


def test_lease_ends_by_the_clock_of_the_use_without_any_step() -> None:
    agent = Leased().opened()
    assert agent.uses(LEASE_MS) == {BUNDLE: 2}
    assert agent.uses(LEASE_MS + 1) == {}


def test_lease_counts_from_the_sending_of_a_report_not_from_its_acknowledgement() -> None:
    agent = Leased().opened()
    agent.give(9_000, ReportConfirmed(sent_ms=3_000), EndConfirmed(asked_ms=9_000))
    assert agent.uses(3_000 + LEASE_MS) == {BUNDLE: 2}
    assert agent.uses(3_001 + LEASE_MS) == {}


def test_lease_ends_also_when_only_ownership_cannot_be_read() -> None:
    agent = Leased().opened()
    for now_ms in range(3_000, 30_000, 3_000):
        agent.give(now_ms, ReportConfirmed(sent_ms=now_ms))
    assert agent.uses(LEASE_MS + 1) == {}


def test_return_waits_one_lease_under_confirmations_then_resumes_what_is_still_ours() -> None:
    agent = Leased().opened()
    returned_ms = 60_000
    for now_ms in range(returned_ms, returned_ms + LEASE_MS, 2_000):
        assert agent.confirm(now_ms).uses(now_ms) == {}
    assert agent.confirm(returned_ms + LEASE_MS).uses(returned_ms + LEASE_MS) == {BUNDLE: 2}


def test_return_to_records_that_name_others_resumes_nothing() -> None:
    for record in (
        record_of(protocol.reassign(owned(), B, ORIGIN)),
        record_of(protocol.reassign(owned(), A2, ORIGIN)),
    ):
        agent = Leased().opened().confirm(60_000).read(61_000, record)
        for now_ms in range(62_000, 90_000, 2_000):
            assert agent.confirm(now_ms).uses(now_ms) == {}


def test_second_gap_during_the_return_begins_the_wait_anew() -> None:
    agent = Leased().opened().confirm(60_000).confirm(60_000 + LEASE_MS + 1)
    assert agent.uses(60_000 + LEASE_MS + 1) == {}
    agent.confirm(60_001 + LEASE_MS + LEASE_MS)
    assert agent.uses(60_001 + LEASE_MS + LEASE_MS) == {BUNDLE: 2}


def test_confirmation_taken_in_too_late_counts_as_a_return() -> None:
    """A process frozen between the acknowledgement's arrival and its being taken in."""
    agent = Leased().opened()
    agent.give(LEASE_MS + 1, ReportConfirmed(sent_ms=9_000), EndConfirmed(asked_ms=9_000))
    assert agent.uses(LEASE_MS + 1) == {}


def test_bundle_with_a_lease_is_used_once_the_balancer_knows_that_it_is_open() -> None:
    agent = Leased().confirm(0).read(0, assigning()).done(0, Callback.OPEN, 2)
    assert served(agent.state) == {BUNDLE: 2}
    assert agent.uses(0) == {}
    assert agent.read(0, owned()).uses(0) == {BUNDLE: 2}
    assert agent.read(0, releasing(A, B)).uses(0) == {BUNDLE: 2}
    assert agent.done(0, Callback.CLOSE, 4).uses(0) == {}


def test_bundle_given_to_another_is_not_used_while_it_still_closes() -> None:
    for fencing in (FENCING_LEASE, "token"):
        agent = Leased(fencing).opened()
        agent.read(1, record_of(protocol.reassign(owned(), B, ORIGIN)))
        assert served(agent.state) == {BUNDLE: 2}
        assert agent.uses(1) == {}
