"""What planning remembers is only of brokers and bundles that are there."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from lbcore.plain import to_plain
from lbcore.plan.decision import Hot, PlanState
from lbcore.plan.pending import COLUMNS, PendingMove, UnreportedLoad
from lbcore.plan.shed.transfer_types import TransferState

GONE, THERE = "gone", "there"


def filled(value: Any) -> Any:
    """The same state, with both names in every mapping by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{one.name: filled(getattr(value, one.name)) for one in fields(value)}
        )
    return {GONE: 1, THERE: 1} if isinstance(value, dict) else value


def mappings(value: Any, path: str = "") -> dict[str, Any]:
    """Each mapping of a state by where it is."""
    if isinstance(value, dict):
        return {path: value}
    if not is_dataclass(value):
        return {}
    found: dict[str, Any] = {}
    for one in fields(value):
        found |= mappings(getattr(value, one.name), f"{path}.{one.name}")
    return found


def test_nothing_is_remembered_of_what_is_gone_in_any_field() -> None:
    state = filled(PlanState())
    known = mappings(state)
    assert len(known) > 15
    left = mappings(state.without(brokers={GONE}, bundles={GONE}))
    not_by_name = {".transfer.counter", ".own", ".shed.evidence", ".shed.crowded", ".hourly"}
    # reasons; what a user's strategy keeps for itself; sums over all brokers; topics, anew in each
    # round; tenants, for an hour
    assert {path for path, names in left.items() if GONE in names} == not_by_name
    assert all(THERE in names for names in left.values())


NOW_MS, FUTURE_MS = 1_000, 5_000
IN_FUTURE = PlanState(
    transfer=TransferState(unloaded_brokers={"a": FUTURE_MS}),
    judged={"a": (FUTURE_MS, FUTURE_MS)},
    split_judged={"a": (FUTURE_MS, FUTURE_MS)},
    moves={
        "n/0": PendingMove(source="a", destination="b", decided_ms=FUTURE_MS, load=(0.0,) * COLUMNS)
    },
    unseen={"a": UnreportedLoad(report_ms=FUTURE_MS, shown=(), load=(), busy_ms=FUTURE_MS)},
    unloaded_ms={"n/0": FUTURE_MS, "n/1": 7},
    gave_ms={"a": FUTURE_MS},
    took_ms={"b": FUTURE_MS},
    hot={"a": Hot(since_ms=FUTURE_MS, told_ms=FUTURE_MS)},
    hourly={"acme": ((7, 2), (FUTURE_MS, 3))},
)


def numbers(plain: Any) -> Iterator[float]:
    """Every number of a state as plain data."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, (list, tuple)):
        for one in plain:
            yield from numbers(one)
    elif isinstance(plain, (int, float)):
        yield plain


def test_what_a_wrong_clock_told_of_the_future_is_of_now_in_every_field() -> None:
    named = {one.name for one in fields(PlanState) if one.name.endswith(("_ms", "judged"))}
    assert all(getattr(IN_FUTURE, name) for name in (*named, "moves", "unseen", "hot", "hourly"))
    row = to_plain(IN_FUTURE.brought_back(NOW_MS))
    assert max(numbers(row)) == NOW_MS
    assert row["unloaded_ms"]["n/1"] == 7
    assert row == to_plain(IN_FUTURE.brought_back(NOW_MS).brought_back(FUTURE_MS))
