"""Placement: the planner's snapshot, and owners for bundles without one.

Brokers may take bundles if they are alive and have reported; the plan decides the rest. Every
placement between cycles comes here: free bundles, failover, restarts, commands. The snapshot has
what operators have set and what protects brokers and bundles: pins, pauses, policies, drains,
flapping, suspicion, recent moves. Bundles that no broker may take are recorded with the rule.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import SPLIT_ALGORITHM, load_columns
from lbcore.balancer.brokers import flapping, is_draining, suspected, unsteady, usable_brokers
from lbcore.balancer.candidate_rows import write_candidates
from lbcore.balancer.ledger import LIVE, NOBODY, STATE_CODE, Ledger
from lbcore.balancer.topic_book import TopicBook
from lbcore.balancer.waiting import MERGE
from lbcore.config.tree import Config
from lbcore.ownership.records import State
from lbcore.plan import planner
from lbcore.plan.decision import Places
from lbcore.plan.filter.index import FilterVerdict, candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.snapshot import (
    LEFT_MS,
    MARK_BITS,
    NO_PARTITIONS,
    Bools,
    BrokerTable,
    BundleTable,
    Ints,
    Partitions,
    Snapshot,
    names_at,
)
from lbcore.plan.split.decision import SplitDecision
from lbcore.wire.fields import flushed


def cycle_offset_ms(cluster: str, config: Config) -> int:
    """Return the offset of a cluster's cycles within the cycle interval, ms.

    It spreads the clusters of one job; 0 for a cluster alone. Example with two clusters and 10 s:
    one plans when the clock shows 0, 10, 20 s, the other at 5, 15, 25 s.
    """
    clusters = config.pipeline.clusters
    names = clusters if cluster in clusters else (cluster,)
    return names.index(cluster) * config.pipeline.decision_interval_ms // len(names)


def is_cycle_due(work: BatchContext) -> bool:
    """True if the time of the next cycle has come."""
    return is_due(work, work.times.cycle_ms, work.config.pipeline.decision_interval_ms)


def is_due(work: BatchContext, last_ms: int, interval_ms: int) -> bool:
    """True if an interval has passed since last_ms (0 = never), on the grid."""
    offset_ms = cycle_offset_ms(work.cluster, work.config)
    return not last_ms or work.now_ms >= next_on_grid_ms(last_ms, interval_ms, offset_ms)


def next_on_grid_ms(last_ms: int, interval_ms: int, offset_ms: int = 0) -> int:
    """Return the time on a grid that is nearest to one interval after the last.

    Two in a row are 0.5 to 1.5 intervals apart. offset_ms: offset of the grid. Worked, with an
    interval of 10 s: after 20.9 s comes 30 s, after 26 s comes 40 s.
    """
    passed = (last_ms - offset_ms + interval_ms // 2) // interval_ms
    return (passed + 1) * interval_ms + offset_ms


def partitions_of(topics: TopicBook, ledger: Ledger, rows: Ints) -> Partitions:
    """Return the known partitioned topics of these rows of the ledger.

    rows: ascending. O(partitions), and O(topics) of the reports that have changed since the last
    call.
    """
    bundles, marks, counts = topics.partitions()
    if not bundles:
        return NO_PARTITIONS
    at = np.array([ledger.index.get(bundle, -1) for bundle in bundles], dtype=np.int64)
    place = np.searchsorted(rows, at)
    is_there = (at >= 0) & (np.append(rows, -1)[place] == at)
    _, namespace = ledger.namespaces()
    pairs = namespace[at[is_there]] << MARK_BITS | marks[is_there]
    keys, topic = np.unique(pairs, return_inverse=True)
    return Partitions(rows=place[is_there], topic=topic, count=counts[is_there], keys=keys)


ALARM = "no_candidate"
"""The alarm, and the kind of its rows in `decisions`, whose reason is the setting."""

SILENT_BROKERS = "silent brokers"
"""Stands for a setting's name where bundles wait until silent brokers report."""

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
"""Setting behind each filter's refusal; the others follow from the brokers alone."""


_NAMESPACES_SHOWN = 5


def report_unplaced(
    work: BatchContext,
    config: Config,
    snapshot: Snapshot,
    rows: Sequence[int],
    *,
    is_due: bool,
) -> None:
    """Raise the alarm for bundles that no broker may take. is_due: write decisions.

    rows: of the snapshot's bundles; its column `avoid` says where each may not go. If
    some broker is refused only for its silence, the reason is SILENT_BROKERS.
    """
    pipeline, groups = _filters_by_policy(config, snapshot, rows)
    if_heard = None
    if snapshot.brokers.is_suspected is not None:
        unsuspected = replace(snapshot, brokers=replace(snapshot.brokers, is_suspected=None))
        if_heard = _filters_by_policy(config, unsuspected, rows)[0]
    for at, group in sorted(groups.items()):
        refused, _ = _count_verdicts(pipeline, snapshot, group[0])
        settings = Counter(SETTING_OF[one] for one in refused.elements() if one in SETTING_OF)
        if if_heard is not None and _count_verdicts(if_heard, snapshot, group[0])[1]:
            settings = Counter([SILENT_BROKERS])
        if not settings:
            continue
        setting = max(sorted(settings), key=settings.__getitem__)
        work.alarms.add(f"{ALARM}:{setting}")
        work.without_candidate[setting] += len(group)
        if is_due:
            brokers = {verdict.label: count for verdict, count in refused.items()}
            policies, bundles = snapshot.policies.isolation, snapshot.bundles
            names = sorted({bundles.namespaces[bundles.namespace[row]] for row in group})
            inputs = {
                "bundles": len(group),
                "brokers": dict(sorted(brokers.items())),
                "pipeline": config.filters.pipeline,
                "policy": policies[at].name if at < len(policies) else "",
                "namespaces": names[:_NAMESPACES_SHOWN],
                "namespace_count": len(names),
            }
            name = bundles.names[group[0]]
            work.write_decision(ALARM, setting, inputs, bundle=name)


def report_stranded(work: BatchContext, snapshot: Snapshot) -> None:
    """Raise the alarm for owned bundles that policies let run nowhere."""
    index = candidate_index(snapshot)
    is_closed: Bools = index.policy_admits.sum(axis=1) == 0
    rows = np.flatnonzero(is_closed[index.row] & (snapshot.bundles.owner >= 0)).tolist()
    if rows:  # may be none: the plan counts bundles kept by drains and flapping brokers, too
        report_unplaced(work, work.config, snapshot, rows, is_due=True)


def _filters_by_policy(
    config: Config, snapshot: Snapshot, rows: Sequence[int]
) -> tuple[FilterPipeline, dict[int, list[int]]]:
    """Return filters for one bundle of each policy row, and each row's bundles."""
    index = candidate_index(snapshot)
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(int(index.row[row]), []).append(row)
    firsts = np.array([group[0] for group in groups.values()])
    return FilterPipeline.of(snapshot, index, config.filters, firsts), groups


def _count_verdicts(
    pipeline: FilterPipeline, snapshot: Snapshot, bundle: int
) -> tuple[Counter[FilterVerdict], int]:
    """Return the number of brokers per verdict on a bundle, and of those left."""
    avoid, verdicts = snapshot.bundles.avoid, empty_verdicts(snapshot)
    excluded = -1 if avoid is None else int(avoid[bundle])
    found = pipeline.candidates(FilterQuestion(bundle=bundle, excluded=excluded), verdicts)
    return Counter(FilterVerdict(int(verdict)) for verdict in verdicts), len(found.left)


_MOVING = (State.ASSIGNING, State.RELEASING)
_AWAITED_MS = 60_000
"""Time within which an opened bundle should be reported, unless it has no topics."""


def place(
    work: BatchContext,
    rows: Sequence[int],
    avoided: Mapping[int, str],
    silent: frozenset[str] = frozenset(),
    splits: Sequence[SplitDecision] = (),
) -> Places:
    """Return brokers for bundles that are free or of a lost broker. O(bundles).

    rows: of the ledger. avoided: row → a broker that must not get it. silent: brokers that get
    nothing, in addition to suspected ones. splits: their children are placed, too, as those of a
    cycle's own splits; `bundle` is a row of the ledger. What the same batch has placed counts as
    load. If the load of one is unknown, all are distributed evenly by count.
    """
    names = usable_brokers(work)
    if not names or not (rows or splits):
        return Places()
    snapshot, kept = make_snapshot(work, names, silent)
    at = np.searchsorted(kept, np.array(rows, dtype=np.int64))
    needs, avoid = np.zeros(len(kept), dtype=np.bool_), np.full(len(kept), NOBODY, dtype=np.int64)
    index = {name: i for i, name in enumerate(names)}
    needs[at] = True
    avoid[at] = [index.get(avoided.get(row, ""), NOBODY) for row in rows]
    bundles = replace(snapshot.bundles, needs_owner=needs, avoid=avoid)
    snapshot = replace(snapshot, bundles=bundles)
    parents = np.searchsorted(kept, [one.bundle for one in splits]).tolist()
    asked = [replace(one, bundle=row) for one, row in zip(splits, parents, strict=True)]
    config = planning_config(work)
    places, work.plan = planner.place(snapshot, work.plan, config, work.now_ms, asked)
    left = [row for row in at.tolist() if bundles.names[row] not in places.found]
    if left:
        report_unplaced(work, config, snapshot, left, is_due=is_cycle_due(work))
    return places


def write_places(work: BatchContext, places: Places) -> None:
    """Write the considered brokers as rows, after placements are done. O(transitions)."""
    if not places.found:
        return
    ids = {after.bundle: after.decision_id for _, after in work.transitions}
    ids |= {child: one.decision_id for _, one in work.transitions for child in one.children}
    write_candidates(work, places.trace, ids)


def make_snapshot(
    work: BatchContext, names: Sequence[str], silent: frozenset[str] = frozenset()
) -> tuple[Snapshot, Ints]:
    """Return the planner's snapshot and the ledger row of each bundle.

    silent: as in `place`.
    """
    rows, grace_ms = work.ledger.rows_in(*LIVE), work.config.shedding.grace_period_ms
    return Snapshot(
        cluster=work.cluster,
        brokers=_broker_table(work, names, silent),
        bundles=_bundle_table(work, names, rows),
        policies=work.rules.policies(),
        in_flight=len(work.ledger.rows_in(*_MOVING)),
        topics_of=work.topics.loads_of,
        partitions=partial(partitions_of, work.topics, work.ledger, rows),
        split_algorithms={
            name: str(entry.properties[SPLIT_ALGORITHM])
            for name, entry in work.namespaces.items()
            if SPLIT_ALGORITHM in entry.properties
        },
        merging=[
            bundle
            for waiting in work.waiting.values()
            if waiting.command.kind == MERGE
            for bundle in waiting.result.get("parents", ())
        ],
        rejected=[
            bundle
            for proposal in work.rules.proposals.values()
            for bundle in proposal.bundles_in_grace(work.now_ms, grace_ms)
        ],
    ), rows


def planning_config(work: BatchContext) -> Config:
    """Return the configuration, with namespaces that commands excluded from shedding."""
    if not work.rules.excluded:
        return work.config
    excluded = sorted({*work.config.shedding.excluded_namespaces, *work.rules.excluded})
    shedding = replace(work.config.shedding, excluded_namespaces=tuple(excluded))
    return replace(work.config, shedding=shedding)


def _broker_table(work: BatchContext, names: Sequence[str], silent: frozenset[str]) -> BrokerTable:
    entries = [work.brokers[name] for name in names]
    ledger, drains = work.ledger, work.rules.drains
    usual, loads = work.config.shedding.max_drains_in_flight, load_columns(entries)
    leaving = ledger.count_by_broker(ledger.source[ledger.rows_in(*_MOVING)])
    most = [(drains[name].max_in_flight if name in drains else 0) or usual for name in names]
    # how many more bundles operators' requests may take from each broker now
    room = [cap - leaving.get(name, 0) for cap, name in zip(most, names, strict=True)]
    flaps, suspects = flapping(work), suspected(work) | silent
    reported_ms = loads.pop("reported_ms")
    demand = np.array([entry.demand for entry in entries], dtype=np.float64)  # NaN = unknown
    return BrokerTable(
        names=tuple(names),
        updated_at_ms=reported_ms,
        **loads,
        is_fresh=np.ones(len(entries), dtype=np.bool_),
        is_draining=np.array([is_draining(work, name) for name in names], dtype=np.bool_),
        versions=tuple(e.texts.get("broker_version", "") for e in entries),
        load_manager_classes=tuple(e.texts.get("load_manager_class", "") for e in entries),
        failure_domains=tuple(e.texts.get("failure_domain", "") for e in entries),
        capacity=np.array([e.capacity for e in entries], dtype=np.float64),
        is_flapping=np.array([name in flaps for name in names], dtype=np.bool_),
        is_suspected=np.array([name in suspects for name in names]) if suspects else None,
        room=np.array(room, dtype=np.int64),
        demand=None if np.isnan(demand).all() else demand,
        web_urls=tuple(
            (e.texts.get("web_service_url", ""), e.texts.get("web_service_url_tls", ""))
            for e in entries
        ),
    )


def _bundle_table(work: BatchContext, names: Sequence[str], rows: Ints) -> BundleTable:
    ledger = work.ledger
    namespaces, namespace = ledger.namespaces()
    broker_of = ledger.broker_indices(names)
    owner = broker_of[ledger.prospects()[rows]]
    can_move = ledger.state[rows] == STATE_CODE[State.OWNED]
    has_left = can_move & (ledger.moved_ms[rows] > work.now_ms - LEFT_MS)
    is_load_known = ledger.short_count[rows] > 0
    paused = [name in work.rules.paused for name in namespaces]
    is_paused = np.array([*paused, False], dtype=np.bool_)  # one more for an empty cluster
    is_new = ledger.at_ms[rows] >= work.now_ms - _AWAITED_MS
    return BundleTable(
        names=names_at(ledger.names, ledger.index, rows),
        namespaces=tuple(namespaces),
        namespace=namespace[rows],
        owner=owner,
        short=flushed(ledger.short[rows]),  # averages of idle bundles decay for ever
        long=flushed(ledger.long[rows]),
        topics=ledger.topics[rows],
        sessions=ledger.sessions[rows],
        can_move=can_move,
        versions=ledger.version[rows],
        is_load_known=is_load_known,
        is_awaited=~is_load_known & is_new & (owner != NOBODY),
        pin=_pins(work, names)[rows] if work.rules.pins else None,
        is_paused=is_paused[namespace[rows]],
        moved_ms=ledger.moved_ms[rows],
        left=np.where(has_left, broker_of[ledger.source[rows]], NOBODY),
    )


def _pins(work: BatchContext, names: Sequence[str]) -> Ints:
    """Return the pinned broker of each bundle; -1 also when it can't take it now.

    A bundle on its pinned broker stays, also while that is suspected or flapping.
    """
    unsteady_brokers = unsteady(work)
    pinnable = {name: at for at, name in enumerate(names) if not is_draining(work, name)}
    found = np.full(len(work.ledger), NOBODY, dtype=np.int64)
    index = work.ledger.index
    pins = {index[bundle]: pin for bundle, pin in work.rules.pins.items() if bundle in index}
    for row, pin in pins.items():
        can_take = pin.broker not in unsteady_brokers
        if can_take or pin.broker == work.ledger.instances.of(work.ledger.destination[row])[0]:
            found[row] = pinnable.get(pin.broker, NOBODY)
    return found
