"""Unplaced: bundles that no broker may take, and the settings that keep the brokers out.

Decides which setting is named: that whose filter refuses most of the brokers, for the first bundle
of each isolation policy and of none. A setting that suits the others may still leave no candidate
(a load manager class that no broker advertises), which would otherwise show as bundles that are
free for no reason. Used by `placing`. Source: ours; the filters are Pulsar 4.0.8's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.decisions.turns import cycle_due_ms
from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.filter.verdict import FilterVerdict
from lbcore.plan.phases.eligible import candidate_index
from lbcore.plan.snapshot import Snapshot
from lbcore.signals.usage import weighted_usage

ALARM = "no_candidate"
"""The alarm, and the kind of its rows in `decisions`; the reason there is the setting."""

SILENT_BROKERS = "silent brokers"
"""Named like a setting where bundles wait for brokers to be heard."""

ISOLATION_POLICIES = "isolation policies"
SETTING_OF = {
    FilterVerdict.FLAPPING: "filters.flap_starts",
    FilterVerdict.LOAD_MANAGER_CLASS: "filters.load_manager_class",
    FilterVerdict.TOO_MANY_TOPICS: "filters.max_topics_per_broker",
    FilterVerdict.OLDER_VERSION: "filters.prefer_later_versions",
    FilterVerdict.FAILURE_DOMAIN: "filters.failure_domains",
    FilterVerdict.UNEVEN: "filters.distribute_evenly",
    FilterVerdict.NOT_IN_POLICY: ISOLATION_POLICIES,
    FilterVerdict.SECONDARY_NOT_NEEDED: ISOLATION_POLICIES,
    FilterVerdict.RESERVED_BY_POLICY: ISOLATION_POLICIES,
    FilterVerdict.ANTI_AFFINITY: "anti-affinity groups",
}
"""What to change where a filter refuses a broker; the others follow from the brokers alone."""


_NAMESPACES_SHOWN = 5


def tell_unplaced(
    work: Work,
    config: Config,
    snapshot: Snapshot,
    rows: Sequence[int],
) -> None:
    """Raise the alarm for bundles that got no broker, and write it down once a cycle.

    rows: of the snapshot's bundles; its column `avoid` says where each may not go. Silence is
    named where a silent broker may have the bundle but for that: it is waited for.
    """
    pipeline, groups = _asked(config, snapshot, rows)
    heard = None
    if snapshot.brokers.is_suspected is not None:
        all_heard = replace(snapshot, brokers=replace(snapshot.brokers, is_suspected=None))
        heard = _asked(config, all_heard, rows)[0]
    for at, group in sorted(groups.items()):
        refused, _ = _refused(pipeline, snapshot, group[0])
        named = Counter[str]()
        for verdict, count in refused.items():
            if verdict in SETTING_OF:
                named[SETTING_OF[verdict]] += count
        if heard is not None and _refused(heard, snapshot, group[0])[1]:
            named = Counter([SILENT_BROKERS])
        if not named:
            continue
        setting = max(sorted(named), key=named.__getitem__)
        work.alarms.add(f"{ALARM}:{setting}")
        work.without_candidate[setting] += len(group)
        if work.now_ms >= cycle_due_ms(work):
            brokers = {verdict.label: count for verdict, count in refused.items()}
            inputs = {"bundles": len(group), "brokers": dict(sorted(brokers.items()))}
            inputs |= {"pipeline": config.filters.pipeline, **_isolated(snapshot, at, group)}
            name = snapshot.bundles.names[group[0]]
            work.write_decision(work.next_decision(), ALARM, setting, inputs, bundle=name)


def _asked(
    config: Config, snapshot: Snapshot, rows: Sequence[int]
) -> tuple[FilterPipeline, dict[int, list[int]]]:
    """The filters, asked about one bundle of each policy row, and the bundles of each."""
    usage = weighted_usage(snapshot.brokers.percent, config.signals)
    index = candidate_index(snapshot, usage, config.filters)
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(int(index.row[row]), []).append(row)
    firsts = np.array([group[0] for group in groups.values()])
    return FilterPipeline.of(snapshot, index, config.filters, firsts), groups


def _refused(
    pipeline: FilterPipeline, snapshot: Snapshot, bundle: int
) -> tuple[Counter[FilterVerdict], int]:
    """How many brokers each filter refuses for a bundle, and how many are left."""
    avoid, verdicts = snapshot.bundles.avoid, empty_verdicts(snapshot)
    excluded = -1 if avoid is None else int(avoid[bundle])
    found = pipeline.candidates(FilterQuestion(bundle=bundle, excluded=excluded), verdicts)
    return Counter(FilterVerdict(int(verdict)) for verdict in verdicts), len(found.left)


def _isolated(snapshot: Snapshot, at: int, group: Sequence[int]) -> dict[str, Any]:
    """The isolation policy of a group's bundles, "" = none, and their namespaces."""
    policies, bundles = snapshot.policies.isolation, snapshot.bundles
    names = sorted({bundles.namespaces[bundles.namespace[row]] for row in group})
    return {
        "policy": policies[at].name if at < len(policies) else "",
        "namespaces": names[:_NAMESPACES_SHOWN],
        "namespace_count": len(names),
    }
