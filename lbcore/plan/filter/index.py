"""Verdicts of filters that don't depend on a bundle: open brokers, policies.

There is one row per isolation policy, so 100,000 bundles share a few rows. Made once per plan;
`pipeline` continues from it. Of several policies that match, the first in name order wins (Pulsar:
in hash-map order). Source: Pulsar 4.0.8 LoadManagerShared.applyNamespacePolicies,
SimpleResourceAllocationPolicies, NamespaceIsolationPolicies, MinAvailablePolicy, and
LoadManagerShared.getAntiAffinityNamespaceOwnedBrokers for the counts.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.config.placement import FilterConfig
from lbcore.plan.filter.policies import IsolationPolicy, Policies, broker_names, group_of, matcher
from lbcore.plan.snapshot import Bools, BrokerTable, BundleTable, Ints, Snapshot

Verdicts: TypeAlias = NDArray[np.int8]


class FilterVerdict(IntEnum):
    """Verdict of a filter; a small number, so that a row of brokers is an int8 array."""

    OK = 0
    # of a broker, for one bundle
    DRAINING = 1
    FLAPPING = 2
    CURRENT_OWNER = 3
    PINNED_ELSEWHERE = 4
    NOT_IN_POLICY = 5
    SECONDARY_NOT_NEEDED = 6
    RESERVED_BY_POLICY = 7
    LOAD_MANAGER_CLASS = 8
    TOO_MANY_TOPICS = 9
    OLDER_VERSION = 10
    FAILURE_DOMAIN = 11
    ANTI_AFFINITY = 12
    UNEVEN = 13
    # of a bundle, for shedding
    EXCLUDED_NAMESPACE = 14
    RECENTLY_UNLOADED = 15
    PINNED = 16
    NO_OTHER_BROKER = 17
    IN_FLIGHT = 18
    SYSTEM_NAMESPACE = 19
    PAUSED = 20
    # of a broker again
    SUSPECTED = 21
    # of a bundle
    MERGING = 22

    @property
    def label(self) -> str:
        """The verdict's name in metrics and tables."""
        return self.name.lower()


LABELS = tuple(verdict.label for verdict in FilterVerdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCounts:
    """Owners of the bundles of each namespace that has bundles to place.

    holders: broker indices, one stretch a namespace, with room for the bundles that will be placed.
    start, fill: int64[namespaces], where each stretch begins, and where it ends so far.
    """

    brokers: int
    holders: Ints
    start: Ints
    fill: Ints

    @staticmethod
    def of(bundles: BundleTable, placing: Ints, brokers: int) -> "NamespaceCounts":
        """Count the bundles of the namespaces to place.

        placing: indices of the bundles to place; owned ones count for their owner until placed.
        """
        spaces = len(bundles.namespaces)
        room = np.bincount(bundles.namespace[placing], minlength=spaces)
        held = np.flatnonzero((bundles.owner >= 0) & (room[bundles.namespace] > 0))
        counts = np.bincount(bundles.namespace[held], minlength=spaces)
        rows = np.concatenate([held, placing])  # stable: the held ones of a namespace come first
        holders = bundles.owner[rows[np.argsort(bundles.namespace[rows], kind="stable")]]
        start = np.cumsum(counts + room) - counts - room
        return NamespaceCounts(brokers=brokers, holders=holders, start=start, fill=start + counts)

    def counts(self, namespace: int) -> Ints | None:
        """Return the namespace's bundles per broker, int64[brokers]; None = no bundle."""
        start, end = self.start[namespace], self.fill[namespace]
        if start == end:
            return None
        return np.bincount(self.holders[start:end], minlength=self.brokers)

    def add(self, namespace: int, broker: int) -> None:
        """Count one more bundle of the namespace on the broker."""
        self.holders[self.fill[namespace]] = broker
        self.fill[namespace] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Namespaces of each anti-affinity group that a broker holds a bundle of.

    counts: int64[groups, brokers]. held: int64[], ascending, a number for each (namespace, broker)
    pair that was counted at the start; added: the pairs counted since.
    """

    counts: Ints
    held: Ints
    added: set[int]

    @staticmethod
    def of(bundles: BundleTable, group: Ints, groups: int, brokers: int) -> "GroupCounts":
        """Count the bundles' owners. O(bundles of grouped namespaces x log).

        group: int64[namespaces], the namespace's group, -1 = none.
        """
        counts = np.zeros((groups, brokers), dtype=np.int64)
        if not groups:
            return GroupCounts(counts=counts, held=np.zeros(0, dtype=np.int64), added=set())
        is_counted: Bools = (bundles.owner >= 0) & (group[bundles.namespace] >= 0)
        pairs = bundles.namespace[is_counted] * brokers + bundles.owner[is_counted]
        held = np.unique(pairs)
        np.add.at(counts, (group[held // brokers], held % brokers), 1)
        return GroupCounts(counts=counts, held=held, added=set())

    def add(self, namespace: int, group: int, broker: int) -> None:
        """Count the namespace on the broker, once."""
        pair = namespace * self.counts.shape[1] + broker
        at = int(np.searchsorted(self.held, pair))
        if pair in self.added or (at < len(self.held) and self.held[at] == pair):
            return
        self.added.add(pair)
        self.counts[group, broker] += 1


def isolation_verdicts(
    policies: tuple[IsolationPolicy, ...], names: tuple[tuple[str, ...], ...], is_available: Bools
) -> Verdicts:
    """Return the verdict of each policy on each broker, int8[policies + 1, n].

    The last row is for bundles without a policy, which take shared brokers: those that are no
    policy's primary (a secondary is shared). As in Pulsar, a policy's usage threshold is ignored.
    names: the names of each broker that patterns may match (`broker_names`). is_available: bool[n],
    alive and open for new bundles; only such count for `min_limit`.
    """
    is_primary, is_secondary = _matched_brokers(policies, names)
    least = np.array([policy.min_limit for policy in policies], dtype=np.int64)
    is_failing_over = (is_primary & is_available).sum(axis=1) < least
    verdicts = np.full((len(policies) + 1, len(names)), FilterVerdict.NOT_IN_POLICY, dtype=np.int8)
    verdicts[:-1][is_secondary] = FilterVerdict.SECONDARY_NOT_NEEDED
    verdicts[:-1][is_primary | (is_secondary & is_failing_over[:, np.newaxis])] = FilterVerdict.OK
    is_reserved = is_primary.any(axis=0)
    verdicts[-1] = np.where(is_reserved, FilterVerdict.RESERVED_BY_POLICY, FilterVerdict.OK)
    return verdicts


@lru_cache(maxsize=16)
def _matched_brokers(
    policies: tuple[IsolationPolicy, ...], brokers: tuple[tuple[str, ...], ...]
) -> tuple[Bools, Bools]:
    """Return primaries and secondaries of each policy, bool[policies, n], read-only.

    A broker is matched by any of its names; one that is both is a primary.
    """
    shape = (2, len(policies), len(brokers))
    lists = [one.primary for one in policies] + [one.secondary for one in policies]
    tests = map(matcher, lists)
    found = [[any(map(test, names)) for names in brokers] for test in tests]
    is_primary, is_secondary = np.array(found, dtype=np.bool_).reshape(shape)
    is_secondary &= ~is_primary
    is_primary.flags.writeable = is_secondary.flags.writeable = False
    return is_primary, is_secondary


@lru_cache(maxsize=16)
def _matched_policies(
    policy_patterns: tuple[tuple[str, ...], ...], namespaces: tuple[str, ...]
) -> Ints:
    """Return the first matching policy of each namespace; len = none."""
    rows = np.full(len(namespaces), len(policy_patterns), dtype=np.int64)
    left = list(enumerate(namespaces))
    for policy, patterns in enumerate(policy_patterns):
        matches = matcher(patterns)
        matched = [at for at, name in left if matches(name)]
        rows[matched] = policy
        left = [one for one in left if rows[one[0]] != policy]
    rows.flags.writeable = False
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateIndex:
    """Verdicts that all bundles with the same isolation policy (a row) share.

    open_verdicts: int8[n], draining, flapping and suspected. verdicts: int8[rows, n], these and the
    policies. policy_admits: bool[rows, n], the policies alone. open: int64[], brokers open for new
    bundles. admitted: the open brokers that each row admits. row: int64[m], each bundle's row.
    group: int64[namespaces], anti-affinity group, -1 = none; groups: their number. domain:
    int64[n], failure domain by number; empty without any. has_policy: bool[namespaces], it has an
    isolation policy or a group.
    """

    open_verdicts: Verdicts
    verdicts: Verdicts
    policy_admits: Bools
    open: Ints
    admitted: tuple[Ints, ...]
    row: Ints
    group: Ints
    groups: int
    domain: Ints
    has_policy: Bools


def candidate_index(snapshot: Snapshot) -> CandidateIndex:
    """Return the index for a snapshot. O(policies x (brokers + namespaces) + bundles)."""
    isolation = snapshot.policies.isolation
    open_verdicts = _open_verdicts(snapshot.brokers)
    brokers = snapshot.brokers
    urls = brokers.web_urls or ((),) * len(brokers.names)
    names = tuple(broker_names(name, *of) for name, of in zip(brokers.names, urls, strict=True))
    by_policy = isolation_verdicts(isolation, names, open_verdicts == FilterVerdict.OK)
    combined = np.where(open_verdicts == FilterVerdict.OK, by_policy, open_verdicts)
    is_flapping_only = (by_policy == FilterVerdict.OK) & (open_verdicts == FilterVerdict.FLAPPING)
    is_empty = ~(combined == FilterVerdict.OK).any(axis=1, keepdims=True)
    verdicts: Verdicts = np.where(is_empty & is_flapping_only, FilterVerdict.OK, combined).astype(
        np.int8
    )
    patterns = tuple(policy.namespaces for policy in isolation)
    namespace_row = _matched_policies(patterns, snapshot.bundles.namespaces)
    group, groups = _groups(snapshot.policies, snapshot.bundles.namespaces)
    domain = np.zeros(0, dtype=np.int64)
    if any(brokers.failure_domains):  # brokers without one share "default", as in Pulsar
        named = [name or "default" for name in brokers.failure_domains]
        domain = np.unique(named, return_inverse=True)[1]
    return CandidateIndex(
        open_verdicts=open_verdicts,
        verdicts=verdicts,
        policy_admits=by_policy == FilterVerdict.OK,
        open=np.flatnonzero(open_verdicts == FilterVerdict.OK),
        admitted=tuple(np.flatnonzero(one == FilterVerdict.OK) for one in verdicts),
        row=namespace_row[snapshot.bundles.namespace],
        group=group,
        groups=groups,
        domain=domain,
        has_policy=(namespace_row < len(isolation)) | (group >= 0),
    )


def flapping_brokers(
    starts_ms: tuple[tuple[int, ...], ...], now_ms: int, config: FilterConfig
) -> Bools:
    """Return the brokers that started `flap_starts` times in the window; bool[n].

    starts_ms: of each broker, when its recent incarnations were first seen, in any order.
    """
    if not config.flap_starts:
        return np.zeros(len(starts_ms), dtype=np.bool_)
    since_ms = now_ms - config.flap_window_ms
    counts = [sum(at_ms > since_ms for at_ms in starts) for starts in starts_ms]
    return np.array(counts, dtype=np.int64) >= config.flap_starts


def _open_verdicts(brokers: BrokerTable) -> Verdicts:
    """Return the verdicts on draining, suspected and flapping brokers.

    A flapping broker is open if no other broker is. A suspected one never is, as it may be dead.
    """
    row = np.full(len(brokers.names), FilterVerdict.OK, dtype=np.int8)
    for is_closed, verdict in (
        (brokers.is_flapping, FilterVerdict.FLAPPING),
        (brokers.is_suspected, FilterVerdict.SUSPECTED),
        (brokers.is_draining, FilterVerdict.DRAINING),
    ):
        if is_closed is not None:
            row[is_closed] = verdict
    if not (row == FilterVerdict.OK).any():
        row[row == FilterVerdict.FLAPPING] = FilterVerdict.OK
    return row


def _groups(policies: Policies, namespaces: tuple[str, ...]) -> tuple[Ints, int]:
    """Number the groups that have namespaces here, by first appearance."""
    group = np.full(len(namespaces), -1, dtype=np.int64)
    if not policies.anti_affinity:
        return group, 0
    numbers: dict[str, int] = {}
    for at, namespace in enumerate(namespaces):
        name = group_of(policies, namespace)
        if name:
            group[at] = numbers.setdefault(name, len(numbers))
    return group, len(numbers)
