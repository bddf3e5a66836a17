"""The lease: how long an agent may serve, what ends it, and how it comes back."""

from dataclasses import replace

from lbcore.agent.agent import AgentMachine
from lbcore.agent.lease import (
    FOR_EVER_MS,
    NEVER_MS,
    EndConfirmed,
    Lease,
    ReportConfirmed,
)
from lbcore.agent.reporting import Identity
from lbcore.agent.state import AgentState, Event, RecordRead
from lbcore.config.ownership import FENCING_LEASE, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership import protocol
from lbcore.ownership.holding import Callback, CallDone
from lbcore.ownership.records import OwnershipRecord
from tests.support.values.ownership_records import (
    A2,
    BUNDLE,
    CLUSTER,
    ORIGIN,
    A,
    B,
    assigning,
    owned,
    record_of,
    releasing,
)

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


def test_acknowledgement_out_of_order_takes_nothing_back() -> None:
    agent = Leased().opened().confirm(6_000)
    agent.give(7_000, ReportConfirmed(sent_ms=3_000), EndConfirmed(asked_ms=3_000))
    assert agent.uses(6_000 + LEASE_MS) == {BUNDLE: 2}


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
    assert agent.agent.served(agent.state) == {BUNDLE: 2}
    assert agent.uses(0) == {}
    assert agent.read(0, owned()).uses(0) == {BUNDLE: 2}
    assert agent.read(0, releasing(A, B)).uses(0) == {BUNDLE: 2}
    assert agent.done(0, Callback.CLOSE, 4).uses(0) == {}


def test_bundle_given_to_another_is_not_used_while_it_still_closes() -> None:
    for fencing in (FENCING_LEASE, "token"):
        agent = Leased(fencing).opened()
        agent.read(1, record_of(protocol.reassign(owned(), B, ORIGIN)))
        assert agent.agent.served(agent.state) == {BUNDLE: 2}
        assert agent.uses(1) == {}


def test_token_mode_needs_no_confirmation() -> None:
    agent = Leased("token").read(0, assigning()).done(0, Callback.OPEN, 2)
    assert agent.agent.until_ms(agent.state) == FOR_EVER_MS
    assert agent.uses(10**9) == {BUNDLE: 2}


def test_lease_packs_and_unpacks_equal() -> None:
    agent = Leased().opened().confirm(60_000)
    packed = agent.agent.pack(agent.state)
    assert agent.agent.unpack(packed) == agent.state
    assert replace(agent.state, lease=Lease()) != agent.state
