"""Isolation groups: the brokers among which load can be evened out.

Isolation policies divide a cluster: two brokers belong together when some bundle may run on both,
directly or through a third. A broker is judged against its group, because the mean over brokers
that can't take each other's bundles is out of reach. Each group is shed as a cluster of its own.

Worked: policy `stores` admits b7 and b8, every other namespace b1 to b6: two groups. If `stores`
fails over to the secondary b6, that broker joins both, and all eight are one group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np

from lbcore.plan.decision import PlanState
from lbcore.plan.shed.common import Selection, Shed, ShedState, TooBig, TriggerStatus, owner_index
from lbcore.plan.snapshot import (
    NOBODY,
    Bools,
    BrokerTable,
    BundleTable,
    Floats,
    Ints,
    Partitions,
    Snapshot,
)
from lbcore.plan.strategy import ShedCycle, Shedding
from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance, worst_of


def isolation_groups(row: Ints, admits: Bools) -> Ints:
    """Return each broker's group, int64[n], numbered by their first brokers.

    row: int64[m], each bundle's row in `admits`. admits: bool[rows, n], brokers that policies
    admit. A broker that no bundle's row admits is a group of its own. O(bundles + rows x brokers).
    """
    group = np.arange(admits.shape[1], dtype=np.int64)
    in_use = np.flatnonzero(np.bincount(row, minlength=len(admits)))
    for members in np.unique(admits[in_use], axis=0):
        _join(group, members)
    return _numbered(group)


def named_groups(names: Sequence[str], group: Ints) -> dict[str, str]:
    """Return broker → the first broker of its group; empty for one group."""
    first = np.unique(group, return_index=True)[1].tolist()
    if len(first) <= 1:
        return {}
    return {name: names[first[number]] for name, number in zip(names, group.tolist(), strict=True)}


def members_by_group(names: Sequence[str], groups: Mapping[str, str]) -> dict[str, Ints]:
    """Return group → its brokers' indices, ascending, without brokers of no group.

    groups: of `named_groups`; empty = one group of all, named "".
    """
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if not groups or name in groups:
            found.setdefault(groups.get(name, ""), []).append(at)
    return {group: np.array(found[group], dtype=np.int64) for group in sorted(found)}


def group_means(
    names: Sequence[str], groups: Mapping[str, str], values: Floats
) -> dict[str, float]:
    """Return broker → the mean of its group's values. values: float64[n]. O(brokers)."""
    found: dict[str, float] = {}
    for members in members_by_group(names, groups).values():
        mean = float(np.cumsum(values[members])[-1]) / len(members)
        found |= {names[at]: mean for at in members.tolist()}
    return found


def worst_imbalance(
    loads: Mapping[str, float], groups: Mapping[str, str], hottest: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """Return the highest imbalance of a group, and the highest floor-adjusted one.

    loads: broker → load, in name order. hottest: group → load of its heaviest bundle. None = no
    load. O(brokers).
    """
    plain: list[float | None] = []
    adjusted: list[float | None] = []
    values = list(loads.values())
    for group, members in members_by_group(list(loads), groups).items():
        part = [values[at] for at in members.tolist()]
        plain.append(imbalance(part))
        adjusted.append(floor_adjusted_imbalance(part, min(hottest.get(group, 0.0), max(part))))
    return worst_of(plain), worst_of(adjusted)


def with_strays(group: Ints, bundles: BundleTable, row: Ints, admits: Bools) -> Ints:
    """Return the groups, joined so that stray bundles may return to admitted brokers.

    A stray bundle is movable, and on a broker that its policy does not admit.
    """
    rows = np.flatnonzero((bundles.owner >= 0) & bundles.can_move)
    rows = rows[~admits[row[rows], bundles.owner[rows]]]
    if not len(rows):
        return group
    group = group.copy()
    for policy, owner in np.unique(np.stack([row[rows], bundles.owner[rows]], axis=1), axis=0):
        members = admits[policy].copy()
        members[owner] = members.any()
        _join(group, members)
    return _numbered(group)


def _join(group: Ints, members: Bools) -> None:
    """Join these brokers' groups in place, under the smallest number."""
    if members.any():
        joined = np.isin(group, group[members])
        group[joined] = group[members].min()


def _numbered(group: Ints) -> Ints:
    """Renumber the groups from 0, by their first brokers."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[inverse.reshape(-1)].astype(np.int64)


Table = TypeVar("Table", BrokerTable, BundleTable)
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """A smaller snapshot, and the places of its brokers and bundles in the larger one.

    original: int64[kept], index of each broker. rows: int64[kept], row of each bundle, None = all
    bundles are kept. is_whole: all brokers are kept, so indices are the same.
    """

    snapshot: Snapshot
    original: Ints
    rows: Ints | None = None
    is_whole: bool = False

    def back(self, brokers: Ints) -> Ints:
        """Return brokers as indices of the larger snapshot; -1 stays -1."""
        padded: Ints = np.append(self.original, NOBODY)
        return padded[brokers]

    def selections(
        self, selections: Sequence[Selection], numbers: Mapping[str, float]
    ) -> tuple[Selection, ...]:
        """Return the selections in the larger snapshot's indices, with more numbers."""
        if self.is_whole:
            return tuple(selections)
        pairs = np.array([(one.source, one.destination) for one in selections], dtype=np.int64)
        found = self.back(pairs.reshape(-1, 2)).tolist()
        return tuple(
            replace(
                one,
                source=source,
                destination=destination,
                candidates=one.candidates if self.rows is None else self.rows[one.candidates],
                numbers={**numbers, **one.numbers},
            )
            for one, (source, destination) in zip(selections, found, strict=True)
        )


def excluded_from_shedding(snapshot: Snapshot) -> Bools:
    """Return the brokers that shedding leaves out, bool[n]. O(brokers + bundles).

    They are draining ones, and flapping ones without bundles: they can't take load, but would lower
    the mean, so that all others seem hot.
    """
    brokers = snapshot.brokers
    if brokers.is_flapping is None or not brokers.is_flapping.any():
        return brokers.is_draining
    owned = np.bincount(snapshot.bundles.owner + 1, minlength=len(brokers.names) + 1)[1:]
    found: Bools = brokers.is_draining | (brokers.is_flapping & (owned == 0))
    return found


def without_brokers(snapshot: Snapshot, is_left_out: Bools) -> Subset:
    """Return the snapshot without some brokers; their bundles lose their owner."""
    kept = np.flatnonzero(~is_left_out)
    if len(kept) == len(is_left_out):
        return Subset(snapshot=snapshot, original=kept, is_whole=True)
    number, bundles = _numbers(kept, len(is_left_out)), snapshot.bundles
    owner = number[bundles.owner]
    left = None if bundles.left is None else number[bundles.left]
    return Subset(
        snapshot=replace(
            snapshot,
            brokers=_taken(snapshot.brokers, kept),
            bundles=replace(bundles, owner=owner, left=left),
        ),
        original=kept,
    )


def part_of(snapshot: Snapshot, kept: Ints, rows: Ints) -> Subset:
    """Return the snapshot of these brokers and bundles, ascending, as a cluster.

    O(brokers + bundles), mostly for the kept bundles.
    """
    found = _taken(snapshot.bundles, rows, ("namespaces",))
    number = _numbers(kept, len(snapshot.brokers.names))
    columns = {name: getattr(found, name) for name in ("owner", "avoid", "pin", "left")}
    places = {name: number[one] for name, one in columns.items() if one is not None}
    return Subset(
        snapshot=replace(
            snapshot,
            brokers=_taken(snapshot.brokers, kept),
            bundles=replace(found, **places),
            partitions=lambda: _partitions(snapshot, rows),
        ),
        original=kept,
        rows=rows,
    )


def _numbers(kept: Ints, count: int) -> Ints:
    """Return each index's place among the kept, -1 = left out; index -1 gives -1."""
    number = np.full(count + 1, NOBODY, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return number


def _partitions(snapshot: Snapshot, rows: Ints) -> Partitions:
    whole = snapshot.partitions()
    place = _numbers(rows, len(snapshot.bundles.names))[whole.rows]
    is_kept = place >= 0
    return Partitions(
        rows=place[is_kept], topic=whole.topic[is_kept], count=whole.count[is_kept], keys=whole.keys
    )


def _chosen_names(names: tuple[Any, ...], rows: Ints) -> tuple[Any, ...]:
    """Return the names at these rows. `itemgetter` is five times as fast as a loop."""
    if len(rows) < _PAIR:  # it returns a single name, not a tuple
        return tuple(names[row] for row in rows.tolist())
    found: tuple[Any, ...] = itemgetter(*rows.tolist())(names)
    return found


def _taken(table: Table, rows: Ints, whole: Sequence[str] = ()) -> Table:
    """Return these rows of each column of a table, except columns that stay whole."""
    found: dict[str, Any] = {}
    for one in fields(table):
        column = getattr(table, one.name)
        if isinstance(column, np.ndarray):
            found[one.name] = column.take(rows, axis=0)
        elif column is not None and one.name not in whole:
            found[one.name] = _chosen_names(column, rows)
    return replace(table, **found)


_QUIET = ("NoOverloadedBroker", "NoLoadData")
"""Reasons of a group that has nothing to shed."""
_BY_BROKER = ("ema", "hits_low", "hits_high", "reliefs")
_JOINED = (*_BY_BROKER, "destinations", "crowded")


GroupAnswer: TypeAlias = tuple[Subset, ShedCycle, Shed]
"""One group, its cycle, and the answer in its own indices."""


def shed_by_group(
    strategy: Shedding, cycle: ShedCycle, group: Ints
) -> tuple[Shed, PlanState, tuple[GroupAnswer, ...]]:
    """Run the strategy on each group as a cluster of its own; return the whole answer.

    Also the next state, and the answer of each group, if there are several.

    With one group the strategy sees the view as it is. With several, the order of moves alternates
    between groups, state is joined by broker and bundle, and each group has a trigger status.
    group: int64[n], of `isolation_groups`.
    """
    if not group.any():
        answer, state = strategy.run(cycle)
        return answer, state, ()
    cycle, found, states = _learned(strategy, cycle), [], []
    for subset, part in _cycles_by_group(cycle, group):
        answer, state = strategy.run(part)
        found.append((subset, part, answer))
        states.append(state.shed)
    state = _joined(cycle.state, states)
    return _merged(found, len(group), state.shed), state, tuple(found)


def trigger_by_group(
    strategy: Shedding, cycle: ShedCycle, answer: Shed, groups: Sequence[GroupAnswer]
) -> TriggerStatus:
    """Return the trigger status of every broker against its own group."""
    if not groups:
        return strategy.trigger(cycle, answer)
    brokers = len(cycle.view.usage)
    triggers = [
        strategy.trigger(part, shed).for_all_brokers(subset.original, brokers)
        for subset, part, shed in groups
    ]
    # each broker has values in its own group alone, and fillers in the others
    number = np.fmax.reduce([one.number for one in triggers])
    partner = np.maximum.reduce([one.partner for one in triggers])
    levels = zip(*(one.levels for one in triggers), strict=True)
    return replace(
        triggers[0],
        number=number,
        partner=np.where(np.isnan(number), NOBODY, partner),
        levels=tuple(
            replace(
                same[0],
                threshold=np.minimum.reduce([one.threshold for one in same]),
                hits=np.add.reduce([one.hits for one in same]),
            )
            for same in levels
        ),
    )


def observe_by_group(strategy: Shedding, cycle: ShedCycle, group: Ints) -> PlanState:
    """Return the state after a cycle in which the strategy only observes."""
    observe = strategy.observe
    if observe is None:
        return cycle.state
    if not group.any():
        return observe(cycle)
    cycle = _learned(strategy, cycle)
    return _joined(cycle.state, [observe(part).shed for _, part in _cycles_by_group(cycle, group)])


def _learned(strategy: Shedding, cycle: ShedCycle) -> ShedCycle:
    """Return the cycle with what the strategy learns from all brokers together."""
    return cycle if strategy.learn is None else replace(cycle, state=strategy.learn(cycle))


def _cycles_by_group(cycle: ShedCycle, group: Ints) -> Iterable[tuple[Subset, ShedCycle]]:
    """Yield each group's snapshot and cycle, with the state of its brokers."""
    view, shed = cycle.view, cycle.state.shed
    of_bundle = np.append(group, -1)[view.snapshot.bundles.owner]
    for number in range(int(group.max()) + 1):
        kept, rows = np.flatnonzero(group == number), np.flatnonzero(of_bundle == number)
        subset = part_of(view.snapshot, kept, rows)
        names = frozenset(subset.snapshot.brokers.names)
        own: dict[str, Any] = {
            field: {name: one for name, one in getattr(shed, field).items() if name in names}
            for field in _BY_BROKER
        }
        part = replace(
            view,
            snapshot=subset.snapshot,
            usage=view.usage[kept],
            has_new_report=view.has_new_report[kept],
            owned=owner_index(subset.snapshot),
            keys=subset.snapshot.bundles.names,
            weighted=view.weighted[kept] if view.weighted is not None else None,
            admitted=(view.admitted[0][rows], view.admitted[1][:, kept]) if view.admitted else None,
            broker_share=len(kept) / len(view.usage),
        )
        state = replace(cycle.state, shed=replace(shed, **own))
        yield subset, replace(cycle, view=part, state=state)


def _joined(before: PlanState, states: Sequence[ShedState]) -> PlanState:
    """Return the groups' states as one.

    What is not of a broker goes whole to every group; the entry that a group has changed wins.
    """
    joined: dict[str, Any] = {}
    for name in _JOINED:
        old, found = getattr(before.shed, name), joined.setdefault(name, {})
        for state in states:
            for key, value in getattr(state, name).items():
                if key not in found or value != old.get(key):
                    found[key] = value
    return replace(before, shed=replace(before.shed, **joined))


def _merged(groups: Sequence[GroupAnswer], brokers: int, state: ShedState) -> Shed:
    """Return one answer in the indices of the whole view, with each group's numbers."""
    chosen, columns, verdicts = [], dict[str, Any](), dict[int, str]()
    for subset, _, shed in groups:
        original = subset.original
        numbers = {**shed.numbers, "group_brokers": float(len(original))}
        chosen.append(subset.selections(shed.selections, numbers))
        verdicts |= {int(original[at]): text for at, text in shed.verdicts.items()}
        for name, values in shed.columns.items():
            columns.setdefault(name, np.full(brokers, np.nan))[original] = values
    taken = tuple(one for one in chain.from_iterable(zip_longest(*chosen)) if one is not None)
    reasons = [shed.reason for _, _, shed in groups if shed.reason]
    waiting = [reason for reason in reasons if reason not in _QUIET]
    return Shed(
        selections=taken,
        state=state,
        reason="" if taken else (waiting or reasons or [""])[0],
        columns=columns,
        verdicts=verdicts,
        too_big=_too_big(groups),
        detail=" ".join(shed.detail for _, _, shed in groups if shed.detail),
    )


def _too_big(groups: Sequence[GroupAnswer]) -> TooBig | None:
    """Return all groups' bundles that are to be divided, in the order of their rows."""
    found = [
        replace(shed.too_big, rows=subset.rows[shed.too_big.rows])
        for subset, _, shed in groups
        if shed.too_big is not None and subset.rows is not None
    ]
    if not found:
        return None
    order = np.argsort(np.concatenate([one.rows for one in found]), kind="stable")
    names = [column.name for column in fields(TooBig)]
    return TooBig(
        **{name: np.concatenate([getattr(one, name) for one in found])[order] for name in names}
    )
