"""The agent in a merge: parents stay in use until the merged bundle is open."""

from dataclasses import replace

from lbcore.agent.state import RecordTombstone
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import AckContext, Transition
from lbcore.ownership.holding import Callback, CallDone, CallOverdue
from lbcore.ownership.protocol import cancel, merge
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.values.ownership_records import (
    BUNDLE,
    LEFT,
    ORIGIN,
    RIGHT,
    A,
    assigning,
    owned,
)
from tests.unit.machines.test_agent import CLOSE, OPEN, Driver

MERGE = Callback.MERGE
PARENTS = {LEFT: 2, RIGHT: 2}


def of(bundle: str, record: OwnershipRecord) -> OwnershipRecord:
    return replace(record, bundle=bundle)


def merging() -> list[OwnershipRecord]:
    """The records of both parents, the lower one first."""
    made = merge(of(LEFT, owned()), of(RIGHT, owned()), ORIGIN)
    assert isinstance(made, Transition)
    return sorted((change.after for change in made.changes), key=lambda record: record.bundle)


def merged() -> list[OwnershipRecord]:
    """The records of the end: the merged bundle, then the lower and the upper parent."""
    low, high = merging()
    ack = Ack(bundle=low.bundle, version_id=low.version_id, outcome=AckOutcome.MERGED)
    made = acknowledge(low, ack, A, ORIGIN, AckContext(partner=high))
    assert isinstance(made, Transition)
    return sorted(
        (change.after for change in made.changes), key=lambda r: (r.bundle != BUNDLE, r.bundle)
    )


def done(driver: Driver, callback: Callback, bundle: str, version_id: int, why: str = "") -> Driver:
    return driver.give(
        CallDone(callback=callback, bundle=bundle, version_id=version_id, failure=why)
    )


def serving() -> Driver:
    """Both parents are open, and their merge is asked for."""
    driver = Driver()
    for bundle in (LEFT, RIGHT):
        driver.read(of(bundle, assigning()))
        done(driver, OPEN, bundle, 2)
        driver.read(of(bundle, owned()))
    return driver.read(*merging())


def usable(driver: Driver) -> dict[str, int]:
    assert driver.state is not None
    return driver.agent.usable(driver.state)


def test_service_that_fails_the_merge_says_so_and_opens_what_it_keeps() -> None:
    driver = done(serving(), MERGE, LEFT, 4, "this service can't merge bundles")
    assert driver.acks() == [(LEFT, 4, AckOutcome.FAILED, "this service can't merge bundles")]
    given_back = [cancel(record, ORIGIN) for record in merging()]
    driver.read(*(made.record for made in given_back if isinstance(made, Transition)))
    assert driver.calls() == [(OPEN, LEFT, 5), (OPEN, RIGHT, 5)]


def test_open_that_hangs_takes_the_parents_out_of_use_and_ends_them_when_it_returns() -> None:
    driver = done(serving(), MERGE, LEFT, 4).read(*merged())
    driver.give(CallOverdue(callback=OPEN, bundle=BUNDLE, version_id=5, failure="it hangs"))
    assert usable(driver) == {}
    assert driver.calls() == []
    done(driver, OPEN, BUNDLE, 5)
    assert not [call for call in driver.calls() if call[1] != BUNDLE]
    assert set(driver.served()) == {BUNDLE}
    assert usable(driver) == {}


def test_parents_are_closed_when_their_keys_are_deleted_before_the_merged_bundle_is_read() -> None:
    driver = done(serving(), MERGE, LEFT, 4).read(*merged()[1:])
    driver.give(RecordTombstone(bundle=LEFT), RecordTombstone(bundle=RIGHT))
    assert driver.calls() == [(CLOSE, LEFT, 4), (CLOSE, RIGHT, 4)]


def test_old_tombstone_of_the_merged_bundle_leaves_its_parents_open() -> None:
    driver = serving()
    old = replace(merged()[1], bundle=BUNDLE, version_id=3)
    assert driver.read(old).calls() == []
    assert usable(driver) == PARENTS
