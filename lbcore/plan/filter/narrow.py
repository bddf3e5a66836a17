"""The single filters: each takes the brokers that are left and answers those that stay.

Decides one rule each, on whole arrays; `pipeline` decides their order and fallbacks. Source:
Pulsar 4.0.8 LoadManagerShared and the filter classes of either manager.

Candidates are broker indices, int64, ascending; every function returns a part of them, in order.
"""

import numpy as np

from lbcore.plan.filter.version import UNREADABLE
from lbcore.plan.snapshot import Bools, Ints


def within_topic_limit(candidates: Ints, topics: Ints, limit: int) -> Ints:
    """Modular: brokers with at most `limit` topics, planned ones included; all if none is.

    topics: int64[n]. LoadManagerShared.filterBrokersWithLargeTopicCount.
    """
    kept = candidates[topics[candidates] <= limit]
    return kept if len(kept) else candidates


def below_topic_limit(candidates: Ints, topics: Ints, limit: int) -> Ints:
    """Extensible: brokers with fewer than `limit` topics, or none. BrokerMaxTopicCountFilter."""
    return candidates[topics[candidates] < limit]


def of_class(candidates: Ints, has_class: Bools) -> Ints:
    """Brokers that advertise the wanted load manager class. has_class: bool[n].

    BrokerLoadManagerClassFilter; a missing class is a different one.
    """
    return candidates[has_class[candidates]]


def of_latest_version(candidates: Ints, levels: Ints) -> Ints | None:
    """Brokers whose version equals the latest of the candidates'; None when one is unreadable.

    levels: int64[n], see `version_levels`. BrokerVersionFilter, which then throws.
    """
    if not len(candidates):
        return candidates
    own = levels[candidates]
    if own.min() == UNREADABLE:
        return None
    kept: Ints = candidates[own == own.max()]
    return kept


def at_minimum(candidates: Ints, counts: Ints) -> Ints:
    """Brokers with the least count among the candidates. counts: int64[n].

    Even distribution (bundles of the namespace) and anti-affinity (namespaces of the group):
    LoadManagerShared.removeMostServicingBrokersForNamespace, filterAntiAffinityGroupOwnedBrokers.
    """
    if not len(candidates):
        return candidates
    own = counts[candidates]
    kept: Ints = candidates[own == own[own.argmin()]]
    return kept


def in_emptiest_domains(candidates: Ints, counts: Ints, domain: Ints) -> Ints:
    """Brokers of the failure domains with the least sum of counts over the candidates.

    domain: int64[n], a number a domain; brokers without one share a number.
    """
    if not len(candidates):
        return candidates
    own = domain[candidates]
    sums = np.bincount(own, weights=counts[candidates])
    least = sums[own].min()
    kept: Ints = candidates[sums[own] == least]
    return kept
