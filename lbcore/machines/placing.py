"""Placing: the planner's snapshot of the ledger and the book, and owners for bundles without one.

Decides which brokers may take bundles at all (alive, reported, not draining) and asks the plan's
assign phase for the rest. Used by repairs, by commands and by the cycle. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lbcore.machines.instances import NOBODY
from lbcore.machines.ledger import STATE_CODE
from lbcore.machines.work import Work
from lbcore.ownership.records import State
from lbcore.plan.phases.assign import cluster_seed, place_settings
from lbcore.plan.phases.eligible import candidate_index
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import place_request
from lbcore.plan.snapshot import BrokerTable, BundleTable, Ints, Snapshot
from lbcore.signals.usage import weighted_usage

_LIVE = (State.FREE, State.OWNED, State.ASSIGNING, State.RELEASING, State.SPLITTING)


def usable_brokers(work: Work) -> list[str]:
    """Brokers that live and have reported their load, in name order."""
    return sorted(
        name
        for name, entry in work.brokers.items()
        if not entry.is_silent and entry.reported_ms > 0
    )


def place(work: Work, rows: Sequence[int], avoided: Mapping[int, str]) -> dict[int, str]:
    """A destination for each row that can have one: row → broker.

    avoided: row → a broker that must not get it. By the configured strategy, behind the filters;
    counts what the same call has placed.
    """
    names = usable_brokers(work)
    if not rows or not names:
        return {}
    snapshot, kept_rows = make_snapshot(work, names)
    position = {int(row): i for i, row in enumerate(kept_rows)}
    index = {name: i for i, name in enumerate(names)}
    bundles = np.array([position[row] for row in rows], dtype=np.int64)
    excluded = [index.get(avoided.get(row, ""), NOBODY) for row in rows]
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    candidates = candidate_index(snapshot, usage, work.config.filters)
    request = replace(
        place_request(snapshot, bundles, candidates, usage),
        excluded=np.array(excluded, dtype=np.int64),
        is_unload=np.zeros(len(rows), dtype=np.bool_),
    )
    seed = cluster_seed(work.cluster)
    answer = place_bundles(request, work.plan.placement, place_settings(work.config), seed)
    work.plan = replace(work.plan, placement=answer.state)
    return {
        row: names[broker]
        for row, broker in zip(rows, answer.brokers.tolist(), strict=True)
        if broker != NOBODY
    }


def make_snapshot(work: Work, names: Sequence[str]) -> tuple[Snapshot, Ints]:
    """The planner's view, and the ledger's row of each of its bundles."""
    rows = work.ledger.rows_in(*_LIVE)
    snapshot = Snapshot(
        cluster=work.cluster,
        brokers=_broker_table(work, names),
        bundles=_bundle_table(work, names, rows),
    )
    return snapshot, rows


def _broker_table(work: Work, names: Sequence[str]) -> BrokerTable:
    entries = [work.brokers[name] for name in names]
    return BrokerTable(
        names=tuple(names),
        percent=np.array([e.percent for e in entries], dtype=np.float64).reshape(-1, 5),
        traffic=np.array([e.traffic for e in entries], dtype=np.float64).reshape(-1, 4),
        bundle_count=np.array([e.bundle_count for e in entries], dtype=np.int64),
        topic_count=np.array([e.topic_count for e in entries], dtype=np.int64),
        weighted_max_ema=np.array([e.weighted_max_ema for e in entries], dtype=np.float64),
        throughput_ema=np.array([e.throughput_ema for e in entries], dtype=np.float64),
        updated_at_ms=np.array([e.reported_ms for e in entries], dtype=np.int64),
        is_fresh=np.ones(len(entries), dtype=np.bool_),
        is_draining=np.array([e.is_draining for e in entries], dtype=np.bool_),
        versions=tuple(e.texts.get("broker_version", "") for e in entries),
        load_manager_classes=tuple(e.texts.get("load_manager_class", "") for e in entries),
        failure_domains=tuple(e.texts.get("failure_domain", "") for e in entries),
        capacity=np.array([e.capacity for e in entries], dtype=np.float64),
    )


def _bundle_table(work: Work, names: Sequence[str], rows: Ints) -> BundleTable:
    ledger = work.ledger
    namespaces, namespace = ledger.namespaces()
    names_of_rows = ledger.names
    if len(rows) < len(ledger):
        names_of_rows = [ledger.names[row] for row in rows.tolist()]
    return BundleTable(
        names=tuple(names_of_rows),
        namespaces=tuple(namespaces),
        namespace=namespace[rows],
        owner=ledger.prospective_brokers(names)[rows],
        short=ledger.short[rows],
        long=ledger.long[rows],
        topics=ledger.topics[rows],
        sessions=ledger.sessions[rows],
        can_move=ledger.state[rows] == STATE_CODE[State.OWNED],
        versions=ledger.version[rows],
    )
