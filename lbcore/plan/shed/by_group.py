"""A shedding strategy run group by group: each broker group is planned as a cluster of its own.

With one group the strategy sees the view as it is. With several, the answers are merged: moves
take turns between groups, state is joined by broker and bundle, and a gauge is drawn per group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, TypeVar

import numpy as np

from lbcore.plan.decision import PlanState
from lbcore.plan.shed.common import OwnerIndex, Selection, Shed, ShedState, ShedView, TooBig
from lbcore.plan.shed.gauge import NOBODY, Gauge, Level
from lbcore.plan.shed.strategy import ShedCycle, Shedding
from lbcore.plan.shed.subset import Subset, part_of
from lbcore.plan.snapshot import Floats, Ints

T = TypeVar("T")
_QUIET = ("NoOverloadedBroker", "NoLoadData")
"""Reasons that a group gives when there is nothing to do in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """The answer of one group, in its own indices, and the cycle that it was asked in."""

    subset: Subset
    cycle: ShedCycle
    shed: Shed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedShed:
    """The answers of all groups, and what they come to in the indices of the whole view."""

    answer: Shed
    state: PlanState
    groups: tuple[GroupAnswer, ...]

    def gauge(self, strategy: Shedding, cycle: ShedCycle) -> Gauge:
        """The gauge of every broker, each against its own group."""
        if len(self.groups) == 1:
            return strategy.gauge(cycle, self.answer)
        brokers = len(cycle.view.usage)
        return merged_gauge(
            [
                strategy.gauge(one.cycle, one.shed).spread(one.subset.original, brokers)
                for one in self.groups
            ]
        )


def shed_by_group(strategy: Shedding, cycle: ShedCycle, group: Ints) -> GroupedShed:
    """The strategy's answer for each group. group: int64[n], of `broker_groups`."""
    if not group.any():
        answer, state = strategy.run(cycle)
        whole = Subset(snapshot=cycle.view.snapshot, original=np.arange(len(group)), is_whole=True)
        asked = GroupAnswer(subset=whole, cycle=cycle, shed=answer)
        return GroupedShed(answer=answer, state=state, groups=(asked,))
    if strategy.learn is not None:
        cycle = replace(cycle, state=strategy.learn(cycle))
    found, states = [], []
    for subset, part in _parts(cycle, group):
        answer, state = strategy.run(part)
        found.append(GroupAnswer(subset=subset, cycle=part, shed=answer))
        states.append(state.shed)
    shed_state = _joined(cycle.state.shed, states)
    return GroupedShed(
        answer=_merged(found, shed_state),
        state=replace(cycle.state, shed=shed_state),
        groups=tuple(found),
    )


def observe_by_group(strategy: Shedding, cycle: ShedCycle, group: Ints) -> PlanState:
    """The state after a cycle in which the strategy may look and not shed."""
    if strategy.observe is None:
        return cycle.state
    if not group.any():
        return strategy.observe(cycle)
    if strategy.learn is not None:
        cycle = replace(cycle, state=strategy.learn(cycle))
    states = [strategy.observe(part).shed for _, part in _parts(cycle, group)]
    return replace(cycle.state, shed=_joined(cycle.state.shed, states))


def _parts(cycle: ShedCycle, group: Ints) -> Iterable[tuple[Subset, ShedCycle]]:
    """Each group's snapshot and cycle."""
    view = cycle.view
    of_bundle = np.append(group, -1)[view.snapshot.bundles.owner]
    for number in range(int(group.max()) + 1):
        kept, rows = np.flatnonzero(group == number), np.flatnonzero(of_bundle == number)
        subset = part_of(view.snapshot, kept, rows)
        names = frozenset(subset.snapshot.brokers.names)
        state = replace(cycle.state, shed=_only(cycle.state.shed, names))
        yield subset, replace(cycle, view=_view(view, subset, rows), state=state)


def _view(view: ShedView, subset: Subset, rows: Ints) -> ShedView:
    kept, snapshot = subset.original, subset.snapshot
    order = np.argsort(snapshot.bundles.owner, kind="stable")
    counts = np.bincount(snapshot.bundles.owner, minlength=len(kept))
    return replace(
        view,
        snapshot=snapshot,
        usage=view.usage[kept],
        is_due=view.is_due[kept],
        owned=OwnerIndex(rows=order, start=np.concatenate([[0], np.cumsum(counts)])),
        keys=_keys(view, subset, rows),
        weighted=None if view.weighted is None else view.weighted[kept],
        admitted=None
        if view.admitted is None
        else (view.admitted[0][rows], view.admitted[1][:, kept]),
        part=len(kept) / len(view.usage),
    )


def _keys(view: ShedView, subset: Subset, rows: Ints) -> Sequence[str]:
    if view.keys is view.snapshot.bundles.names:
        return subset.snapshot.bundles.names
    return [view.keys[row] for row in rows.tolist()]


def _only(state: ShedState, names: frozenset[str]) -> ShedState:
    """The state without what belongs to other brokers."""

    def kept(values: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in values.items() if name in names}

    return replace(
        state,
        ema=kept(state.ema),
        hits_low=kept(state.hits_low),
        hits_high=kept(state.hits_high),
        tried=kept(state.tried),
    )


def _joined(before: ShedState, states: Sequence[ShedState]) -> ShedState:
    """The groups' states as one; of what several still have, the one that was changed."""

    def union(name: str) -> Any:
        old, found = getattr(before, name), dict[str, Any]()
        for state in states:
            for key, value in getattr(state, name).items():
                if key not in found or value != old.get(key):
                    found[key] = value
        return found

    return replace(before, **{name: union(name) for name in _UNITED})


_UNITED = (
    "ema",
    "hits_low",
    "hits_high",
    "destinations",
    "tried",
    "crowded",
)


def _merged(groups: Sequence[GroupAnswer], state: ShedState) -> Shed:
    """One answer in the indices of the whole view; each selection has its group's numbers."""
    chosen = [_selections(one) for one in groups]
    selections = tuple(one for one in chain.from_iterable(zip_longest(*chosen)) if one is not None)
    reasons = [one.shed.reason for one in groups if one.shed.reason]
    waiting = [reason for reason in reasons if reason not in _QUIET]
    return Shed(
        selections=selections,
        state=state,
        reason="" if selections else (waiting or reasons or [""])[0],
        columns=_columns(groups),
        verdicts={
            int(one.subset.original[at]): text
            for one in groups
            for at, text in one.shed.verdicts.items()
        },
        too_big=_too_big(groups),
        detail=" ".join(one.shed.detail for one in groups if one.shed.detail),
    )


def _selections(group: GroupAnswer) -> list[Selection]:
    numbers = {**group.shed.numbers, "group_brokers": float(len(group.subset.original))}
    return [
        replace(one, numbers={**numbers, **one.numbers})
        for one in group.subset.selections(group.shed.selections)
    ]


def _columns(groups: Sequence[GroupAnswer]) -> dict[str, Floats]:
    brokers = sum(len(one.subset.original) for one in groups)
    found: dict[str, Floats] = {}
    for one in groups:
        for name, values in one.shed.columns.items():
            column = found.setdefault(name, np.full(brokers, np.nan))
            column[one.subset.original] = values
    return found


def _too_big(groups: Sequence[GroupAnswer]) -> TooBig | None:
    """Return the bundles to be divided of all groups.

    by_rate is that of the first group that divides something.
    """
    found = [
        (one.subset.rows[one.shed.too_big.rows], one.shed.too_big)
        for one in groups
        if one.shed.too_big is not None and one.subset.rows is not None
    ]
    if not found:
        return None
    rows = np.concatenate([rows for rows, _ in found])
    order = np.argsort(rows, kind="stable")
    return TooBig(
        rows=rows[order],
        excess=np.concatenate([one.excess for _, one in found])[order],
        by_rate=next((one.by_rate for rows, one in found if len(rows)), found[0][1].by_rate),
    )


def merged_gauge(gauges: Sequence[Gauge]) -> Gauge:
    """One gauge of several that judge different brokers, with the same measure and levels."""
    number = np.stack([one.number for one in gauges])
    is_judged = ~np.isnan(number)
    of = np.argmax(is_judged, axis=0), np.arange(number.shape[1])
    partner = np.stack([one.partner for one in gauges])
    levels = zip(*(one.levels for one in gauges), strict=True)
    return Gauge(
        measure=gauges[0].measure,
        number=number[of],
        partner=np.where(is_judged.any(axis=0), partner[of], NOBODY),
        levels=tuple(
            Level(
                threshold=np.stack([one.threshold for one in same])[of],
                needed=same[0].needed,
                hits=np.stack([one.hits for one in same])[of],
            )
            for same in levels
        ),
    )
