"""Unplaced: bundles that no broker may take, and the settings that keep the brokers out.

Decides which setting is named: that whose filter refuses most of the brokers for the first of such
bundles. A setting that suits the others may still leave no candidate (a load manager class that no
broker advertises), which would otherwise show as bundles that are free for no reason. Used by
`placing`. Source: ours; the filters are Pulsar 4.0.8's.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.turns import cycle_due_ms
from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.filter.verdict import FilterVerdict, Verdicts
from lbcore.plan.phases.eligible import candidate_index
from lbcore.plan.snapshot import Snapshot
from lbcore.signals.usage import weighted_usage

ALARM = "no_candidate"
"""The alarm, and the kind of its rows in `decisions`; the reason there is the setting."""

SILENT_BROKERS = "silent brokers"
"""Named like a setting where bundles wait for brokers to be heard."""

SETTING_OF = {
    FilterVerdict.FLAPPING: "filters.flap_starts",
    FilterVerdict.LOAD_MANAGER_CLASS: "filters.load_manager_class",
    FilterVerdict.TOO_MANY_TOPICS: "filters.max_topics_per_broker",
    FilterVerdict.OLDER_VERSION: "filters.prefer_later_versions",
    FilterVerdict.FAILURE_DOMAIN: "filters.failure_domains",
    FilterVerdict.UNEVEN: "filters.distribute_evenly",
    FilterVerdict.NOT_IN_POLICY: "isolation policies",
    FilterVerdict.SECONDARY_NOT_NEEDED: "isolation policies",
    FilterVerdict.RESERVED_BY_POLICY: "isolation policies",
    FilterVerdict.ANTI_AFFINITY: "anti-affinity groups",
}
"""What to change where a filter refuses a broker; the others follow from the brokers alone."""


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
    first = rows[0]
    verdicts, _ = _verdicts(config, snapshot, first)
    counts = Counter(FilterVerdict(int(verdict)).label for verdict in verdicts)
    named = Counter(
        SETTING_OF[FilterVerdict(int(verdict))]
        for verdict in verdicts
        if int(verdict) in SETTING_OF
    )
    if snapshot.brokers.is_suspected is not None:
        heard = replace(snapshot, brokers=replace(snapshot.brokers, is_suspected=None))
        if _verdicts(config, heard, first)[1]:
            named = Counter([SILENT_BROKERS])
    if not named:
        return
    setting = max(sorted(named), key=named.__getitem__)
    work.alarms.add(f"{ALARM}:{setting}")
    work.without_candidate[setting] += len(rows)
    if work.now_ms >= cycle_due_ms(work):
        inputs = {"bundles": len(rows), "brokers": dict(sorted(counts.items()))}
        inputs["pipeline"] = config.filters.pipeline
        name = snapshot.bundles.names[first]
        work.write_decision(work.next_decision(), ALARM, setting, inputs, bundle=name)


def _verdicts(config: Config, snapshot: Snapshot, bundle: int) -> tuple[Verdicts, int]:
    """Each broker's verdict for one bundle, and how many may take it."""
    usage = weighted_usage(snapshot.brokers.percent, config.signals)
    index = candidate_index(snapshot, usage, config.filters)
    pipeline = FilterPipeline.of(snapshot, index, config.filters, np.array([bundle]))
    avoid, verdicts = snapshot.bundles.avoid, empty_verdicts(snapshot)
    excluded = -1 if avoid is None else int(avoid[bundle])
    found = pipeline.candidates(FilterQuestion(bundle=bundle, excluded=excluded), verdicts)
    return verdicts, len(found.left)
