"""The ledger: name order, records in and out, packing."""

from typing import Any

from lbcore.machines.ledger import NOBODY, Ledger
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
