"""Verdicts of namespace isolation policies on brokers, shared by all bundles.

Decides primaries, secondaries and shared brokers; not load. Its table is made once per cycle. It
has one row per policy, not per namespace, so 100,000 bundles only look up a number. Source: Pulsar
4.0.8 LoadManagerShared.applyNamespacePolicies, SimpleResourceAllocationPolicies,
NamespaceIsolationPolicies, MinAvailablePolicy. Of several policies that match, the first in name
order wins (Pulsar: in hash-map order).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lbcore.plan.filter.policies import MAX_USAGE_PERCENT, IsolationPolicy, matches_any
from lbcore.plan.filter.verdict import FilterVerdict, Verdicts
from lbcore.plan.snapshot import Bools, Floats, Ints

SHARED_ROWS = 2
"""Rows after those of the policies: shared brokers for persistent, for non-persistent bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationBrokers:
    """The brokers as isolation sees them, n rows.

    names: of each, all by which a pattern may mean it (`broker_names`). is_available: alive and
    open for new bundles; only such count as primaries. usage: weighted, 1.0 = 100 %.
    supports_persistent, supports_non_persistent: kinds of topics they serve.
    """

    names: tuple[tuple[str, ...], ...]
    is_available: Bools
    usage: Floats
    supports_persistent: Bools
    supports_non_persistent: Bools


def isolation_verdicts(
    policies: tuple[IsolationPolicy, ...], brokers: IsolationBrokers, *, usage_limits: bool
) -> Verdicts:
    """Return the verdict of each policy on each broker, int8[policies + 2, n].

    The last two rows hold for bundles without a policy, which take shared brokers: persistent and
    non-persistent. A broker is shared when it is no policy's primary; being a secondary reserves
    nothing. usage_limits: primaries at or above the policy's usage threshold don't count towards
    min_limit.
    """
    is_reserved = np.zeros(len(brokers.names), dtype=np.bool_)
    rows = []
    for policy in policies:
        is_primary = _brokers_matching(policy.primary, brokers.names)
        is_reserved |= is_primary
        rows.append(_policy_row(policy, is_primary, brokers, usage_limits=usage_limits))
    for is_supported in (brokers.supports_persistent, brokers.supports_non_persistent):
        row = np.where(is_reserved, FilterVerdict.RESERVED_BY_POLICY, FilterVerdict.OK).astype(
            np.int8
        )
        row[~is_supported] = FilterVerdict.DOMAIN_NOT_SUPPORTED
        rows.append(row)
    return np.stack(rows)


def policy_rows(policies: tuple[IsolationPolicy, ...], namespaces: tuple[str, ...]) -> Ints:
    """The row of each namespace's policy, int64[namespaces]; len(policies) without one."""
    if not policies:
        return np.zeros(len(namespaces), dtype=np.int64)
    return _matched_policies(tuple(policy.namespaces for policy in policies), namespaces)


def is_broker_available(policy: IsolationPolicy, usage: Floats) -> Bools:
    """MinAvailablePolicy.isBrokerAvailable of active brokers. usage: 1.0 = 100 %."""
    if policy.usage_threshold_percent == MAX_USAGE_PERCENT:
        return np.ones(len(usage), dtype=np.bool_)
    available: Bools = usage * 100.0 < policy.usage_threshold_percent
    return available


@lru_cache(maxsize=256)
def _brokers_matching(patterns: tuple[str, ...], brokers: tuple[tuple[str, ...], ...]) -> Bools:
    """Return the brokers that a pattern matches by any of their names.

    bool[n], read-only.
    """
    result = np.array([matches_any(patterns, *names) for names in brokers], dtype=np.bool_)
    result.flags.writeable = False
    return result


def _policy_row(
    policy: IsolationPolicy,
    is_primary: Bools,
    brokers: IsolationBrokers,
    *,
    usage_limits: bool,
) -> Verdicts:
    """One policy's verdicts; a broker that is both primary and secondary is a primary."""
    is_secondary = _brokers_matching(policy.secondary, brokers.names) & ~is_primary
    counted = is_primary & brokers.is_available
    if usage_limits:
        counted = counted & is_broker_available(policy, brokers.usage)
    is_failing_over = int(np.count_nonzero(counted)) < policy.min_limit
    row = np.full(len(brokers.names), FilterVerdict.NOT_IN_POLICY, dtype=np.int8)
    row[is_secondary] = FilterVerdict.OK if is_failing_over else FilterVerdict.SECONDARY_NOT_NEEDED
    row[is_primary] = FilterVerdict.OK
    return row


@lru_cache(maxsize=16)
def _matched_policies(
    policy_patterns: tuple[tuple[str, ...], ...], namespaces: tuple[str, ...]
) -> Ints:
    """The first policy that matches each namespace; the number of policies without one."""
    nobody = len(policy_patterns)
    found = (
        next((at for at, one in enumerate(policy_patterns) if matches_any(one, name)), nobody)
        for name in namespaces
    )
    rows = np.fromiter(found, dtype=np.int64, count=len(namespaces))
    rows.flags.writeable = False
    return rows
