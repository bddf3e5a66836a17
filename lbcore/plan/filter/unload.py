"""Verdicts on taking bundles from their brokers, on whole arrays.

Before shedding: the namespaces whose bundles must stay (`system_namespaces`), and the brokers that
may take others (`admitted_brokers`). After it: chosen bundles that no other broker may take
(`unload_verdicts`).
Source: Pulsar 4.0.8 ModularLoadManagerImpl.doLoadShedding, shouldNamespacePoliciesUnload,
LoadManagerShared.shouldAntiAffinityNamespaceUnload.
"""

import re
from functools import lru_cache

import numpy as np

from lbcore.plan.filter.index import CandidateIndex, FilterVerdict, GroupCounts, Verdicts
from lbcore.plan.snapshot import Bools, Ints, Snapshot

SYSTEM_NAMESPACES = (
    re.compile(r"pulsar/[^/]+/[^:]+:\d+"),
    re.compile(r"pulsar/[^:]+:\d+"),
    re.compile(r"sla-monitor/[^/]+/[^:]+:\d+"),
)
"""Heartbeat namespaces of both forms and the SLA monitor's; each belongs to one broker."""


def unload_verdicts(snapshot: Snapshot, index: CandidateIndex, rows: Ints) -> Verdicts:
    """Return the reason each chosen bundle can't leave its broker, int8[k].

    OK = another broker may take it. rows: int64[k], owned bundles. NO_OTHER_BROKER: its policies
    admit no other broker. ANTI_AFFINITY: all admitted brokers hold as many namespaces of its group,
    so it would come back.
    """
    owner = snapshot.bundles.owner[rows]
    policy_row = index.row[rows]
    is_admitted = index.verdicts == FilterVerdict.OK
    others = is_admitted.sum(axis=1)[policy_row] - is_admitted[policy_row, owner]
    verdicts = np.where(others > 0, FilterVerdict.OK, FilterVerdict.NO_OTHER_BROKER).astype(np.int8)
    group = index.group[snapshot.bundles.namespace[rows]]
    grouped = np.flatnonzero((group >= 0) & (verdicts == FilterVerdict.OK))
    if not len(grouped):
        return verdicts
    pair, shown, held, least = _spread(snapshot, index, policy_row[grouped], group[grouped])
    is_even = (~shown | (held == least)).all(axis=1)[pair]
    own = np.where(shown, held, 0)[pair, owner[grouped]]
    fewest = least[pair, 0]
    verdicts[grouped[is_even & (fewest > 0) & (own <= fewest)]] = FilterVerdict.ANTI_AFFINITY
    return verdicts


def admitted_brokers(snapshot: Snapshot, index: CandidateIndex) -> tuple[Ints, Bools]:
    """Return each bundle's row of bool[rows, n], the brokers that filters admit.

    By policies, and for anti-affinity groups only those that hold fewest of their namespaces.
    """
    row, is_admitted = index.row, index.verdicts == FilterVerdict.OK
    group = index.group[snapshot.bundles.namespace]
    grouped = np.flatnonzero(group >= 0)
    if not len(grouped):
        return row, is_admitted
    pair, shown, held, least = _spread(snapshot, index, row[grouped], group[grouped])
    row = row.copy()
    row[grouped] = len(is_admitted) + pair
    return row, np.concatenate([is_admitted, shown & (held == least)])


def _spread(
    snapshot: Snapshot, index: CandidateIndex, policy_row: Ints, group: Ints
) -> tuple[Ints, Bools, Ints, Ints]:
    """Return the spread of anti-affinity groups over the admitted brokers.

    policy_row, group: int64[k], of bundles. Returns int64[k], each bundle's pair of these two; and
    for the pairs the admitted brokers, bool[pairs, n], the namespaces that all brokers hold,
    int64[pairs, n], and the least number that an admitted one holds, int64[pairs, 1].
    """
    brokers = len(snapshot.brokers.names)
    counts = GroupCounts.of(snapshot.bundles, index.group, index.groups, brokers).counts
    pairs, pair = np.unique(np.stack([policy_row, group], axis=1), axis=0, return_inverse=True)
    shown, held = index.verdicts[pairs[:, 0]] == FilterVerdict.OK, counts[pairs[:, 1]]
    least = np.where(shown, held, held.max() + 1).min(axis=1, keepdims=True)
    return pair.reshape(-1), shown, held, least


@lru_cache(maxsize=16)
def system_namespaces(namespaces: tuple[str, ...]) -> Bools:
    """Return the namespaces that are the system's, bool[namespaces], read-only."""
    matched = [any(one.fullmatch(name) for one in SYSTEM_NAMESPACES) for name in namespaces]
    result = np.array(matched or [False], dtype=np.bool_)
    result.flags.writeable = False
    return result
