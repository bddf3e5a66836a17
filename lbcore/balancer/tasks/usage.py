"""Usage per tenant, checked against the limits of a tenant.

Decides whether a tenant may have more of something; handlers of commands ask before they create it.
Counted once per batch, at the first question, then updated as the batch creates more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.tasks.creations import still_to_be_made
from lbcore.config.cluster import LimitsConfig
from lbcore.model.names import namespace_of_bundle, namespace_of_topic, tenant_of
from lbcore.ownership.records import State
from lbcore.wire.kinds.record_commands import TOPIC

NAMESPACES, BUNDLES, RULES = "namespaces", "bundles", "rules"
TOPICS, PARTITIONS = "topics", "partitions"

_RAISED = f"limits.tenant_{BUNDLES}_max"
_ADVICE = "tenant {tenant} has {has} {kind} and may have {most}; delete some, or ask for fewer"


def reason_not_to_add(work: BatchContext, tenant: str, more: Mapping[str, int]) -> str:
    """Return why a tenant can't have so many more, as a sentence; "" if it can.

    more: kind → number. What is allowed counts as created from now on, so ask last. O(1), except
    the first question about a kind in a batch, which counts everything.
    """
    for kind, count in more.items():
        has, most = _counted(work, kind)[tenant], _MOST[kind](work.config.limits)
        if count > 0 and has + count > most:
            more_of_it = f", or have {_RAISED} raised" if kind == BUNDLES else ""
            return _ADVICE.format(tenant=tenant, has=has, kind=kind, most=most) + more_of_it
    for kind, count in more.items():
        work.usage[kind][tenant] += count
    return ""


def reason_not_to_rule(work: BatchContext, name: str, *, is_known: bool) -> str:
    """Return why a namespace or bundle can't have a rule, as a sentence; "" if it can."""
    return "" if is_known else reason_not_to_add(work, tenant_of(name), {RULES: 1})


def note_gone(work: BatchContext, kind: str, tenant: str, count: int = 1) -> None:
    """A tenant has so many less of a kind."""
    if kind in work.usage:
        work.usage[kind][tenant] -= count


def has_any(work: BatchContext, kind: str, tenant: str) -> bool:
    """True if a tenant has any of a kind."""
    return _counted(work, kind)[tenant] > 0


def _counted(work: BatchContext, kind: str) -> Counter[str]:
    if kind not in work.usage:
        work.usage[kind] = _COUNTS[kind](work)
    return work.usage[kind]


def _namespaces(work: BatchContext) -> Counter[str]:
    entries = work.namespaces.items()
    return Counter(tenant_of(name) for name, entry in entries if not entry.is_deleted)


def _bundles(work: BatchContext) -> Counter[str]:
    """Live ones, and those still to be made."""
    ledger = work.ledger
    names, index = ledger.namespaces()
    is_live = (ledger.version > 0) & (ledger.state != STATE_CODE[State.DELETED])
    counts = np.bincount(index[is_live], minlength=len(names)).tolist()
    return _summed([*zip(names, counts, strict=True), *still_to_be_made(work).items()])


def _topics(work: BatchContext) -> Counter[str]:
    return _summed((namespace_of_topic(topic), 1) for topic in work.records.of(TOPIC))


def _partitions(work: BatchContext) -> Counter[str]:
    found = work.records.of(TOPIC).items()
    return _summed((namespace_of_topic(topic), partitions) for topic, partitions in found)


def _rules(work: BatchContext) -> Counter[str]:
    rules = work.rules
    names = [*rules.paused, *rules.anti_affinity, *rules.excluded]
    names += map(namespace_of_bundle, rules.pins)
    return _summed((name, 1) for name in names)


def _summed(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    """Namespace and number, added up by tenant."""
    found: Counter[str] = Counter()
    for namespace, count in counts:
        found[tenant_of(namespace)] += count
    return found


_COUNTS: Mapping[str, Callable[[BatchContext], Counter[str]]] = {
    NAMESPACES: _namespaces,
    BUNDLES: _bundles,
    TOPICS: _topics,
    PARTITIONS: _partitions,
    RULES: _rules,
}

_MOST: Mapping[str, Callable[[LimitsConfig], int]] = {
    NAMESPACES: lambda limits: limits.tenant_namespaces_max,
    BUNDLES: lambda limits: limits.tenant_bundles_max,
    TOPICS: lambda limits: limits.tenant_topics_max,
    PARTITIONS: lambda limits: limits.tenant_partitions_max,
    RULES: lambda limits: limits.tenant_rules_max,
}
