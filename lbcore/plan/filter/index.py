"""Filter verdicts that don't depend on a single bundle.

Decides which brokers are open at all and which each isolation policy admits. It has one row per
policy, so 100,000 bundles share a handful of rows. Made once per plan; `pipeline` continues from
it. Source: ours, over the rules of `isolation`; draining, flapping and suspicion are ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.filters import FilterConfig
from lbcore.plan.filter.isolation import IsolationBrokers, isolation_verdicts, policy_rows
from lbcore.plan.filter.policies import Policies, group_of
from lbcore.plan.filter.verdict import FilterVerdict, Verdicts
from lbcore.plan.snapshot import Bools, Floats, Ints, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInput:
    """Input of the filters beside the snapshot, n brokers and m bundles.

    usage: weighted, 1.0 = 100 %. is_flapping: started too often recently. is_suspected: silent for
    longer than it should be. supports_persistent, supports_non_persistent: bool[n].
    is_non_persistent: bool[m], bundles with such topics.
    """

    policies: Policies
    usage: Floats
    is_flapping: Bools
    is_suspected: Bools
    supports_persistent: Bools
    supports_non_persistent: Bools
    is_non_persistent: Bools

    @staticmethod
    def plain(snapshot: Snapshot, usage: Floats, policies: Policies) -> "FilterInput":
        """All brokers are steady and serve every topic, every bundle is persistent."""
        brokers, bundles = len(snapshot.brokers.names), len(snapshot.bundles.names)
        return FilterInput(
            policies=policies,
            usage=usage,
            is_flapping=np.zeros(brokers, dtype=np.bool_),
            is_suspected=np.zeros(brokers, dtype=np.bool_),
            supports_persistent=np.ones(brokers, dtype=np.bool_),
            supports_non_persistent=np.ones(brokers, dtype=np.bool_),
            is_non_persistent=np.zeros(bundles, dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateIndex:
    """The verdicts that all bundles of a row share.

    open_verdicts: int8[n], draining, flapping and suspected. verdicts: int8[rows, n], these and the
    policies. policy_admits: bool[rows, n], the policies alone. open: int64[], brokers open for new
    bundles. admitted: those of each row. row: int64[m], each bundle's. group: int64[namespaces],
    anti-affinity group, -1 = none. domain: int64[n], a number a failure domain; empty when no
    broker has one. has_policy: bool[namespaces],
    isolation or group.
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


def candidate_index(snapshot: Snapshot, usage: Floats, config: FilterConfig) -> CandidateIndex:
    """Return the verdicts on brokers and policies that hold for all bundles."""
    inputs = FilterInput.plain(snapshot, usage, snapshot.policies)
    if snapshot.brokers.is_flapping is not None:
        inputs = replace(inputs, is_flapping=snapshot.brokers.is_flapping)
    if snapshot.brokers.is_suspected is not None:
        inputs = replace(inputs, is_suspected=snapshot.brokers.is_suspected)
    if snapshot.bundles.is_non_persistent is not None:
        inputs = replace(inputs, is_non_persistent=snapshot.bundles.is_non_persistent)
    return index_candidates(snapshot, inputs, config)


def index_candidates(
    snapshot: Snapshot, inputs: FilterInput, config: FilterConfig
) -> CandidateIndex:
    """The index of one plan. O(policies x (brokers + namespaces) + bundles)."""
    isolation = inputs.policies.isolation
    open_verdicts = _open_verdicts(snapshot, inputs)
    brokers = IsolationBrokers(
        names=snapshot.brokers.all_names(),
        is_available=open_verdicts == FilterVerdict.OK,
        usage=inputs.usage,
        supports_persistent=inputs.supports_persistent,
        supports_non_persistent=inputs.supports_non_persistent,
    )
    usage_limits = config.primary_usage_limits
    by_policy = isolation_verdicts(isolation, brokers, usage_limits=usage_limits)
    verdicts = _with_open(by_policy, open_verdicts)
    namespace_row = policy_rows(isolation, snapshot.bundles.namespaces)
    row = namespace_row[snapshot.bundles.namespace]
    is_shared = row == len(isolation)
    group, groups = _groups(inputs.policies, snapshot.bundles.namespaces)
    return CandidateIndex(
        open_verdicts=open_verdicts,
        verdicts=verdicts,
        policy_admits=by_policy == FilterVerdict.OK,
        open=np.flatnonzero(open_verdicts == FilterVerdict.OK),
        admitted=tuple(np.flatnonzero(one == FilterVerdict.OK) for one in verdicts),
        row=row + (is_shared & inputs.is_non_persistent),
        group=group,
        groups=groups,
        domain=_domains(snapshot.brokers.failure_domains),
        has_policy=(namespace_row < len(isolation)) | (group >= 0),
    )


def flapping_brokers(
    starts_ms: tuple[tuple[int, ...], ...], now_ms: int, config: FilterConfig
) -> Bools:
    """Return the brokers that started `flap_starts` times in the window; bool[n].

    starts_ms: of each broker, the times its recent incarnations were first seen, any order.
    """
    if not config.flap_starts:
        return np.zeros(len(starts_ms), dtype=np.bool_)
    since_ms = now_ms - config.flap_window_ms
    counts = [sum(at_ms > since_ms for at_ms in starts) for starts in starts_ms]
    return np.array(counts, dtype=np.int64) >= config.flap_starts


def _open_verdicts(snapshot: Snapshot, inputs: FilterInput) -> Verdicts:
    """Verdicts of draining, suspected and flapping brokers.

    A flapping broker is open if nobody else is; a suspected one never, for it may be dead.
    """
    is_draining = snapshot.brokers.is_draining
    row = np.where(inputs.is_flapping, FilterVerdict.FLAPPING, FilterVerdict.OK).astype(np.int8)
    row[inputs.is_suspected] = FilterVerdict.SUSPECTED
    row[is_draining] = FilterVerdict.DRAINING
    if not (row == FilterVerdict.OK).any():
        row[row == FilterVerdict.FLAPPING] = FilterVerdict.OK
    return row


def _with_open(verdicts: Verdicts, open_verdicts: Verdicts) -> Verdicts:
    """Policies and openness together; a row whose only brokers flap keeps them."""
    combined = np.where(open_verdicts == FilterVerdict.OK, verdicts, open_verdicts)
    is_flapping_only = (verdicts == FilterVerdict.OK) & (open_verdicts == FilterVerdict.FLAPPING)
    is_empty = ~(combined == FilterVerdict.OK).any(axis=1, keepdims=True)
    result: Verdicts = np.where(is_empty & is_flapping_only, FilterVerdict.OK, combined).astype(
        np.int8
    )
    return result


def _groups(policies: Policies, namespaces: tuple[str, ...]) -> tuple[Ints, int]:
    """A number a group that has namespaces here, in order of first appearance."""
    group = np.full(len(namespaces), -1, dtype=np.int64)
    if not policies.anti_affinity:
        return group, 0
    numbers: dict[str, int] = {}
    for at, namespace in enumerate(namespaces):
        name = group_of(policies, namespace)
        if name:
            group[at] = numbers.setdefault(name, len(numbers))
    return group, len(numbers)


def _domains(names: tuple[str, ...]) -> Ints:
    """A number a failure domain; brokers without one share "default", as in Pulsar."""
    if not any(names):
        return np.zeros(0, dtype=np.int64)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name or "default", len(numbers)) for name in names])
