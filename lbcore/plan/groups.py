"""Isolation groups: the brokers among which load can be evened out.

Isolation policies divide a cluster: two brokers belong together when some bundle may run on
both, directly or through a third one. Balancing judges a broker against its group, because a mean
over brokers that can't take each other's bundles is out of reach.

Worked: policy `stores` admits b7 and b8, every other namespace b1 to b6: two groups. Where
`stores` fails over to the secondary b6, that broker joins both, and all eight are one group.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from lbcore.plan.snapshot import Bools, BundleTable, Floats, Ints
from lbcore.signals.imbalance import floor_adjusted_imbalance, imbalance, worst_of


def isolation_groups(row: Ints, admits: Bools) -> Ints:
    """Return each broker's group, int64[n].

    Numbered from 0 in the order of their first brokers. row: int64[m], each bundle's row of admits.
    admits: bool[rows, n], the brokers that policies admit. A broker that no bundle's row admits is
    a group of its own. O(bundles + rows x brokers).
    """
    group = np.arange(admits.shape[1], dtype=np.int64)
    in_use = np.flatnonzero(np.bincount(row, minlength=len(admits)))
    for members in np.unique(admits[in_use], axis=0):
        _join(group, members)
    return _numbered(group)


def named_groups(names: Sequence[str], group: Ints) -> dict[str, str]:
    """Broker → the first broker of its group; empty where all are one group."""
    first = np.unique(group, return_index=True)[1].tolist()
    if len(first) <= 1:
        return {}
    return {name: names[first[number]] for name, number in zip(names, group.tolist(), strict=True)}


def members_by_group(names: Sequence[str], groups: Mapping[str, str]) -> dict[str, Ints]:
    """Group → its brokers' indices, ascending; brokers of no group are left out.

    groups: of `named_groups`; an empty one stands for one group of all, named "".
    """
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if not groups or name in groups:
            found.setdefault(groups.get(name, ""), []).append(at)
    return {group: np.array(found[group], dtype=np.int64) for group in sorted(found)}


def group_means(
    names: Sequence[str], groups: Mapping[str, str], values: Floats
) -> dict[str, float]:
    """Broker → the mean of its group's values. values: float64[n]. O(brokers)."""
    found: dict[str, float] = {}
    for members in members_by_group(names, groups).values():
        mean = float(np.cumsum(values[members])[-1]) / len(members)
        found |= {names[at]: mean for at in members.tolist()}
    return found


def worst_imbalance(
    loads: Mapping[str, float], groups: Mapping[str, str], hottest: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """The imbalance and the floor-adjusted one, each of the group where it is highest.

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
    """Return the groups when strayed bundles may still go back.

    Strayed: they left their policy's brokers. A movable bundle on a broker that its row doesn't
    admit joins that broker to the admitted ones.
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
    """Make one group of these brokers' groups, in place; the smallest number stays."""
    if members.any():
        joined = np.isin(group, group[members])
        group[joined] = group[members].min()


def _numbered(group: Ints) -> Ints:
    """The same groups with numbers from 0 on, in the order of their first brokers."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    numbered: Ints = rank[inverse.reshape(-1)].astype(np.int64)
    return numbered
