"""The ledger: name order, records in and out, packing."""

import pickle
from typing import Any

import numpy as np
import pytest

from lbcore import packing
from lbcore.balancer.state.ledger import NOBODY, Ledger
from lbcore.machine import UnknownStateSchemaError
from lbcore.ownership.records import Cause, OwnershipRecord, State


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


def test_bundles_added_later_stand_in_name_order() -> None:
    ledger = ledger_of(record("t/n/b"), record("t/n/d"))
    ledger.add(["t/n/c", "t/n/a"])
    assert ledger.names == ["t/n/a", "t/n/b", "t/n/c", "t/n/d"]
    assert ledger.record("t/n/d") == record("t/n/d")
    assert ledger.record("t/n/c") is None


def test_record_put_comes_back_whole() -> None:
    whole = record(
        "t/n/a",
        7,
        state=State.SPLITTING,
        source="s",
        source_incarnation="si",
        destination="",
        destination_incarnation="",
        children={"x": "", "y": "b"},
        cause=Cause.SPLIT,
        decision_id="d",
        command_id="k",
        timestamp_ms=5,
    )
    assert ledger_of(whole).record("t/n/a") == whole


def test_ledger_packed_and_unpacked_is_equal() -> None:
    ledger = ledger_of(record("t/n/a"), record("t/n/b", state=State.FREE, destination=""))
    again = Ledger.unpack(ledger.pack())
    assert again.pack() == ledger.pack()
    assert again.record("t/n/a") == ledger.record("t/n/a")


@pytest.mark.parametrize("schema", [0, 99])
def test_ledger_packed_by_another_schema_is_refused(schema: int) -> None:
    chunks = dict(ledger_of(record("t/n/a")).pack())
    plain, columns = packing.unpack(chunks["ledger.ownership"])
    chunks["ledger.ownership"] = packing.pack({**plain, "schema": schema}, columns)
    with pytest.raises(UnknownStateSchemaError):
        Ledger.unpack(chunks)


def test_copy_changed_leaves_the_original_alone() -> None:
    ledger = ledger_of(record("t/n/a"))
    before = ledger.pack()
    copy = ledger.copy()
    copy.add(["t/n/0"])
    copy.put(record("t/n/a", 2, destination="other"), 9)
    assert ledger.pack() == before


def test_holder_of_a_releasing_bundle_is_its_source() -> None:
    releasing = record(
        "t/n/a", state=State.RELEASING, source="s", source_incarnation="i", destination="d"
    )
    ledger = ledger_of(releasing, record("t/n/b", state=State.FREE, destination=""))
    assert [ledger.instances.of(i)[0] for i in ledger.holders().tolist()] == ["s", ""]
    assert ledger.prospective_brokers(["d", "s"]).tolist() == [0, NOBODY]


def test_bundle_removed_is_forgotten_with_its_extras() -> None:
    ledger = ledger_of(record("t/n/a", decision_id="d"), record("t/n/b"))
    ledger.remove(["t/n/a"])
    assert ledger.names == ["t/n/b"]
    assert ledger.origins == {}
    assert ledger.record("t/n/b") == record("t/n/b")


def test_copy_of_a_copy_leaves_both_alone() -> None:
    ledger = ledger_of(record("t/n/a"))
    before = ledger.pack()
    first = ledger.copy()
    first.put(record("t/n/a", 2), 1)
    between = first.pack()
    second = first.copy()
    second.note_closing("t/n/a", 5)
    second.note_resent([0], 6)
    assert (ledger.pack(), first.pack()) == (before, between)
    assert (second.closing_clock_ms.tolist(), second.resent_clock_ms.tolist()) == ([5], [6])


def test_packed_again_after_each_change_shows_the_change() -> None:
    ledger = ledger_of(record("t/n/a"))
    seen = [ledger.pack()]
    ledger.put(record("t/n/a", 2), 1)
    seen.append(ledger.pack())
    ledger.keep_load(ledger.averages(), ledger.sessions + 1, np.arange(1))
    seen.append(ledger.pack())
    ledger.add(["t/n/b"])
    seen.append(ledger.pack())
    assert len({tuple(sorted(chunks.items())) for chunks in seen}) == 4
    assert all(Ledger.unpack(chunks).pack() == chunks for chunks in seen)


def test_decision_behind_a_record_is_kept_only_while_it_is_in_flight() -> None:
    ledger = ledger_of(record("t/n/a", state=State.ASSIGNING, decision_id="d"))
    assert ledger.origins == {"t/n/a": ("d", "")}
    ledger.put(record("t/n/a", 2, decision_id="d"), 1)
    assert ledger.origins == {}


def test_bundle_is_moved_when_it_comes_from_another_broker() -> None:
    ledger = ledger_of(record("t/n/a", timestamp_ms=5))
    assert ledger.moved_ms.tolist() == [0]
    ledger.put(record("t/n/a", 2, source="s", source_incarnation="i", timestamp_ms=7), 1)
    assert ledger.moved_ms.tolist() == [7]


def test_starts_that_no_record_names_are_pruned_when_they_are_many() -> None:
    free = record("t/n/b", state=State.FREE, destination="", destination_incarnation="")
    ledger = ledger_of(record("t/n/a"), free)
    for version in range(2, 300):
        ledger.put(record("t/n/a", version, destination_incarnation=f"i{version}"), 0)
    kept = ledger.record("t/n/a")
    ledger.prune_instances([("b", "i299"), ("c", "1")])
    assert (ledger.record("t/n/a"), len(ledger.instances.rows)) == (kept, 1)
    assert ledger.record("t/n/b") == free
    assert Ledger.unpack(ledger.pack()).pack() == ledger.pack()


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


def test_ledger_that_nobody_packs_takes_no_more_memory_with_each_report() -> None:
    """As in the simulator: a list of what is to be written the next time would never end."""
    ledger, sizes = ledger_of(record("t/n/1"), record("t/n/2")), []
    for _ in range(3):
        ledger = ledger.copy()
        ledger.keep_load(ledger.averages(), ledger.sessions, np.array([0, 1]))
        sizes.append(len(pickle.dumps(ledger)))
    assert sizes[0] == sizes[1] == sizes[2]


def test_large_ledger_writes_little_when_few_bundles_move() -> None:
    ledger = large_ledger()
    for number in range(100):
        before, ledger = ledger.pack(), ledger.copy()
        name = f"t/n/{80 * number:06d}"
        ledger.put(record(name, number + 1), number)
        ledger.note_closing(name, number + 1)
        ledger.note_resent([5, number], number + 2)
        ledger.note_moved([6], number + 3)
        after = ledger.pack()
        assert written_share(before, after) < 0.05
    again = Ledger.unpack(after)
    for name in Ledger.ARRAYS:
        assert getattr(again, name).tolist() == getattr(ledger, name).tolist(), name
    assert again.pack() == after
