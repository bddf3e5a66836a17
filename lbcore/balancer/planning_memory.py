"""Planning's memory: what of it the table `planning_memory` has, and how it comes back.

Decides what a rebuild and a dry run know of planning: hits, averages, chosen destinations,
cool-downs, hits of splits, moves of the last hour, whose turn it is, load that reports don't show
yet, who is hot. Not which report was judged last, nor moves under way, whose records say more; and
graces stand in `decisions`, where each move has its row. Part of `balancer`. Source: ours.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbcore import packing
from lbcore.balancer.state.effects import to_json
from lbcore.balancer.state.work import Work
from lbcore.model.memory_tables import PLANNING_MEMORY
from lbcore.plan.decision import Hot, PlanState
from lbcore.plan.hourly import hourly_from_json
from lbcore.plan.pending import Unseen
from lbcore.plan.place.request import PlacementState
from lbcore.plan.shed.common import ShedState
from lbcore.plan.shed.transfer_types import TransferState
from lbcore.plan.split.decision import SplitState

_PARTS: Mapping[str, tuple[str, ...]] = {
    "shedding": ("strategy", "shed", "transfer", "own"),
    "placement": ("placement",),
    "split": ("split",),
    "unseen": ("unseen",),
    "hot": ("hot",),
    "hourly": ("hourly",),
}
"""Part → fields of `PlanState`. A part is written when one of them changes."""

_READERS: Mapping[str, Callable[[Any], Any]] = {
    "strategy": str,
    "shed": lambda plain: ShedState(**plain),
    "transfer": TransferState.from_json,
    "own": dict,
    "placement": PlacementState.from_json,
    "split": SplitState.from_row,
    "unseen": lambda plain: {name: Unseen.from_row(one) for name, one in plain.items()},
    "hot": lambda plain: {name: Hot(**one) for name, one in plain.items()},
    "hourly": hourly_from_json,
}


def write_memory(work: Work, before: PlanState) -> None:
    """A row for each part that this batch has changed. O(brokers), where it has."""
    if work.plan is before:
        return
    for part, names in _PARTS.items():
        if any(_told(work.plan, name) != _told(before, name) for name in names):
            memory = {name: _plain(_told(work.plan, name)) for name in names}
            row = {"part": part, "strategy": work.plan.strategy, "memory": to_json(memory)}
            work.add_row(PLANNING_MEMORY.name, row)


def remembered_plan(rows: Iterable[Mapping[str, Any]]) -> PlanState:
    """What the rows say, one a part; what is not among them is empty.

    Raises KeyError, TypeError, ValueError for a row that another version wrote.
    """
    found: dict[str, Any] = {}
    for row in rows:
        plain = json.loads(row["memory"])
        found |= {name: _READERS[name](plain[name]) for name in _PARTS[row["part"]]}
    return replace(PlanState(), **found)


def _told(plan: PlanState, name: str) -> Any:
    """A field, without what only counts cycles: it would be written in each of them."""
    value = getattr(plan, name)
    return replace(value, counter={}) if isinstance(value, TransferState) else value


def _plain(value: Any) -> Any:
    if isinstance(value, ShedState):
        return packing.fields_of(value)
    if isinstance(value, TransferState | PlacementState):
        return value.to_json()
    if isinstance(value, SplitState):
        return value.to_row()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value.to_row() if isinstance(value, Unseen | Hot) else value
