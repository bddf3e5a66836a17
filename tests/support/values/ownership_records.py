"""Ownership records for tests, and the invariants they must keep."""

from collections.abc import Mapping

from lbcore.agent.state import AgentState
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import NOBODY, AckContext, Consequence, Instance, Origin, Transition
from lbcore.ownership.holding import NO_TOKEN
from lbcore.ownership.invariants import Violation, of_bundles, of_pair, of_record
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.messages import Ack, AckOutcome

CLUSTER = "local"
NAMESPACE = "tenant/ns"
BUNDLE = f"{NAMESPACE}/0x00000000_0xffffffff"
LEFT = f"{NAMESPACE}/0x00000000_0x80000000"
RIGHT = f"{NAMESPACE}/0x80000000_0xffffffff"
A = Instance(broker="broker-a", incarnation="a1")
A2 = Instance(broker="broker-a", incarnation="a2")
B = Instance(broker="broker-b", incarnation="b1")
B2 = Instance(broker="broker-b", incarnation="b2")
C = Instance(broker="broker-c", incarnation="c1")
ORIGIN = Origin(now_ms=1_000, cause=Cause.ADMIN, decision_id="d1", command_id="c1", writer_epoch=7)


def record_of(answer: Consequence) -> OwnershipRecord:
    """The record that a transition made; fails on a refusal."""
    assert isinstance(answer, Transition), answer
    return answer.record


def say(
    record: OwnershipRecord | None,
    outcome: AckOutcome,
    sender: Instance,
    version_id: int | None = None,
    context: AckContext | None = None,
) -> Consequence:
    """The consequence of an ack; at the record's own version when none is given."""
    version = version_id if version_id is not None else (record.version_id if record else 1)
    ack = Ack(bundle=BUNDLE, version_id=version, outcome=outcome)
    return acknowledge(record, ack, sender, ORIGIN, context or AckContext())


def free() -> OwnershipRecord:
    """Free, version 1."""
    return record_of(protocol.create(CLUSTER, BUNDLE, ORIGIN))


def assigning(to: Instance = A) -> OwnershipRecord:
    """Assigning, version 2."""
    return record_of(protocol.assign(free(), to, ORIGIN))


def owned(by: Instance = A) -> OwnershipRecord:
    """Owned, version 3."""
    return record_of(say(assigning(by), AckOutcome.OPENED, by))


def releasing(of: Instance = A, to: Instance = NOBODY) -> OwnershipRecord:
    """Releasing, version 4."""
    return record_of(protocol.unload(owned(of), ORIGIN, to))


def splitting() -> OwnershipRecord:
    """Splitting into halves, the right one for broker-b; version 4."""
    children = {LEFT: "", RIGHT: B.broker}
    return record_of(protocol.split(owned(), children, ORIGIN))


def deleted() -> OwnershipRecord:
    """Deleted by force from Owned, version 4."""
    return record_of(protocol.delete(owned(), ORIGIN))


MAKERS = {
    State.FREE: free,
    State.ASSIGNING: assigning,
    State.OWNED: owned,
    State.RELEASING: releasing,
    State.SPLITTING: splitting,
    State.DELETED: deleted,
}


def is_next(before: OwnershipRecord, after: OwnershipRecord) -> bool:
    """Whether its version is the next; a new life of a bundle begins anywhere above the last."""
    is_new_life = before.state is State.DELETED and after.state is not State.DELETED
    expected = before.version_id + 1
    return after.version_id == expected or (is_new_life and after.version_id > expected)


def served(state: AgentState) -> dict[str, int]:
    """The bundles open here, by name, with their tokens; a bundle closing is still open."""
    return {
        name: holding.token
        for name, holding in sorted(state.holdings.items())
        if holding.token != NO_TOKEN and not holding.split_into
    }


def violations(
    records: Mapping[str, OwnershipRecord],
    previous: Mapping[str, OwnershipRecord] | None = None,
) -> list[Violation]:
    """Every violation among a cluster's records (by bundle name), sorted by place. O(n log n).

    The live (not Deleted) bundles of each namespace that has any cover the hash space and are
    disjoint, so no hash has two owners; state and brokers agree; and, where the records of an
    earlier time are given: no version went back, no version has two contents, no live bundle is
    gone without a trace.
    """
    found: list[Violation] = []
    live: dict[str, list[str]] = {}
    for name, record in sorted(records.items()):
        found += of_record(name, record)
        if record.state is not State.DELETED:
            live.setdefault(name.rpartition("/")[0], []).append(name)
    for namespace, names in live.items():
        found += of_bundles(namespace, names)
    for name, before in sorted((previous or {}).items()):
        found += of_pair(before, records.get(name))
    return sorted(found, key=lambda violation: (violation.where, violation.invariant.value))
