"""What planning remembers is only of brokers and bundles that are there."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from lbcore.plan.decision import PlanState

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
    by_label = {".transfer.counter"}  # reasons, not names
    assert {path for path, names in left.items() if GONE in names} == by_label
    assert all(THERE in names for names in left.values())
