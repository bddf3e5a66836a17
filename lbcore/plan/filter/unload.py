"""Verdicts on taking bundles from their brokers, on whole arrays.

Before shedding: bundles that must stay (`bundle_verdicts`), and the brokers that may take others
(`admitted_brokers`). After it: chosen bundles that no other broker may take (`unload_verdicts`).
Source: Pulsar 4.0.8 ModularLoadManagerImpl.doLoadShedding, shouldNamespacePoliciesUnload,
LoadManagerShared.shouldAntiAffinityNamespaceUnload.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFacts:
    """Facts about the bundles other than load, m rows.

    is_recently_unloaded: within its grace period or cool-down, or in a rejected plan. is_in_flight:
    not Owned. is_paused: its balancing is paused. is_merging: it waits for its merge. pin: index of
    its pinned broker, -1 = none.
    """

    is_recently_unloaded: Bools
    is_in_flight: Bools
    is_paused: Bools
    is_merging: Bools
    pin: Ints


def bundle_verdicts(
    snapshot: Snapshot, facts: BundleFacts, excluded_namespaces: Collection[str]
) -> Verdicts:
    """Return the reason each bundle must stay, int8[m]; OK = it may be shed.

    Of several reasons the last below wins. PINNED only at its pin: elsewhere it may be moved there.
    """
    bundles = snapshot.bundles
    is_excluded = np.array([name in excluded_namespaces for name in bundles.namespaces] or [False])
    is_system = _system_namespaces(bundles.namespaces)
    namespace = bundles.namespace
    verdicts = np.zeros(len(bundles.names), dtype=np.int8)
    verdicts[facts.is_recently_unloaded] = FilterVerdict.RECENTLY_UNLOADED
    verdicts[(facts.pin >= 0) & (facts.pin == bundles.owner)] = FilterVerdict.PINNED
    verdicts[is_excluded[namespace]] = FilterVerdict.EXCLUDED_NAMESPACE
    verdicts[is_system[namespace]] = FilterVerdict.SYSTEM_NAMESPACE
    verdicts[facts.is_paused] = FilterVerdict.PAUSED
    verdicts[facts.is_merging] = FilterVerdict.MERGING
    verdicts[facts.is_in_flight] = FilterVerdict.IN_FLIGHT
    return verdicts


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
    brokers = len(snapshot.brokers.names)
    counts = GroupCounts.of(snapshot.bundles, index.group, index.groups, brokers).counts
    least, is_even = _group_spread(is_admitted, counts, policy_row[grouped], group[grouped])
    is_own_admitted = is_admitted[policy_row[grouped], owner[grouped]]
    own = np.where(is_own_admitted, counts[group[grouped], owner[grouped]], 0)
    verdicts[grouped[is_even & (least > 0) & (own <= least)]] = FilterVerdict.ANTI_AFFINITY
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
    brokers = len(snapshot.brokers.names)
    counts = GroupCounts.of(snapshot.bundles, index.group, index.groups, brokers).counts
    pairs, of_bundle = np.unique(
        np.stack([row[grouped], group[grouped]], axis=1), axis=0, return_inverse=True
    )
    shown, held = is_admitted[pairs[:, 0]], counts[pairs[:, 1]]
    least = np.where(shown, held, held.max() + 1).min(axis=1, keepdims=True)
    row = row.copy()
    row[grouped] = len(is_admitted) + of_bundle.reshape(-1)
    return row, np.concatenate([is_admitted, shown & (held == least)])


def _group_spread(
    is_admitted: Bools, counts: Ints, policy_row: Ints, group: Ints
) -> tuple[Ints, Bools]:
    """Return the least count over each bundle's candidates, and whether all have it."""
    pairs, of_bundle = np.unique(np.stack([policy_row, group], axis=1), axis=0, return_inverse=True)
    shown = [counts[one[1]][is_admitted[one[0]]] for one in pairs]
    least = np.array([one.min() for one in shown], dtype=np.int64)
    is_even = np.array([(one == one[0]).all() for one in shown], dtype=np.bool_)
    return least[of_bundle.reshape(-1)], is_even[of_bundle.reshape(-1)]


@lru_cache(maxsize=16)
def _system_namespaces(namespaces: tuple[str, ...]) -> Bools:
    matched = [any(one.fullmatch(name) for one in SYSTEM_NAMESPACES) for name in namespaces]
    result = np.array(matched or [False], dtype=np.bool_)
    result.flags.writeable = False
    return result
