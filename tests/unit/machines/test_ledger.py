"""The ledger: name order, records in and out, packing."""

from typing import Any

import numpy as np
import pytest

from lbcore import packing
from lbcore.balancer.batch_context import BalancerState, BatchContext
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.report import make_gauges
from lbcore.config.tree import Config
from lbcore.machine import UnknownStateSchemaError
from lbcore.ownership.liveness import Liveness
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.plan.decision import PlanState


def record(bundle: str, version: int = 1, **fields: object) -> OwnershipRecord:
    values: dict[str, Any] = {"state": State.OWNED, "destination": "b"}
    values |= {"destination_incarnation": "i", **fields}
    return OwnershipRecord(cluster="c", bundle=bundle, version_id=version, **values)


def ledger_of(*records: OwnershipRecord) -> Ledger:
    ledger = Ledger("c")
    ledger.add(r.bundle for r in records)
    for r in records:
        ledger.put(r, 0)
    return ledger


@pytest.mark.parametrize("schema", [0, 99])
def test_ledger_packed_by_another_schema_is_refused(schema: int) -> None:
    chunks = dict(ledger_of(record("t/n/a")).pack())
    plain, columns = packing.unpack(chunks["ledger.ownership"])
    chunks["ledger.ownership"] = packing.pack({**plain, "schema": schema}, columns)
    with pytest.raises(UnknownStateSchemaError):
        Ledger.unpack(chunks)


def test_bundle_removed_is_forgotten_with_its_extras() -> None:
    ledger = ledger_of(record("t/n/a", decision_id="d"), record("t/n/b"))
    ledger.remove(["t/n/a"])
    assert ledger.names == ["t/n/b"]
    assert ledger.origins == {}
    assert ledger.record("t/n/b") == record("t/n/b")


def test_starts_that_no_record_names_are_pruned_when_they_are_many() -> None:
    free = record("t/n/b", state=State.FREE, destination="", destination_incarnation="")
    ledger = ledger_of(record("t/n/a"), free)
    for version in range(2, 300):
        ledger.put(record("t/n/a", version, destination_incarnation=f"i{version}"), 0)
    kept = ledger.record("t/n/a")
    ledger.prune_instances([("b", "i299"), ("c", "1")], is_due=False)
    assert (ledger.record("t/n/a"), len(ledger.instances.rows)) == (kept, 1)
    assert ledger.record("t/n/b") == free
    assert Ledger.unpack(ledger.pack()).pack() == ledger.pack()


def test_free_bundle_with_a_record_from_the_future_is_not_stuck() -> None:
    free = record("t/n/b", state=State.FREE, timestamp_ms=2_000, destination="")
    state = BalancerState(ledger=ledger_of(free), liveness=Liveness(), plan=PlanState())
    states = make_gauges(BatchContext.on(state, Config(), "", 1_000))["states"]
    assert states[State.FREE.value] == {"count": 1, "oldest_ms": 0, "stuck": 0}


def large_ledger() -> Ledger:
    ledger = Ledger("c")
    ledger.add(f"t/n/{row:06d}" for row in range(9_000))
    ledger.pack()
    return ledger


def written_share(before: dict[str, bytes], after: dict[str, bytes]) -> float:
    new = [blob for name, blob in after.items() if before.get(name) is not blob]
    return sum(map(len, new)) / sum(map(len, after.values()))


def test_large_ledger_writes_little_of_the_load_when_little_changes() -> None:
    ledger = large_ledger()
    before = ledger.pack()
    sessions = ledger.sessions.copy()
    sessions[[7, 8_000]] = 5
    ledger.keep_load(ledger.averages(), sessions, np.array([7, 8_000]))
    after = ledger.pack()
    assert written_share(before, after) < 0.15
    again = Ledger.unpack(after)
    assert again.sessions.tolist() == sessions.tolist()
    assert again.pack() == after


def test_large_ledger_writes_little_when_few_bundles_move() -> None:
    ledger = large_ledger()
    for number in range(100):
        before, ledger = ledger.pack(), ledger.copy()
        name = f"t/n/{80 * number:06d}"
        ledger.put(record(name, number + 1), number)
        ledger.stamp("closing_clock_ms", [ledger.index[name]], number + 1)
        ledger.stamp("resent_clock_ms", [5, number], number + 2)
        ledger.stamp("moved_ms", [6], number + 3)
        after = ledger.pack()
        assert written_share(before, after) < 0.05
    again = Ledger.unpack(after)
    for name in Ledger.ARRAYS:
        assert getattr(again, name).tolist() == getattr(ledger, name).tolist(), name
    assert again.pack() == after
