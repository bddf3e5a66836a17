"""Phase 5: a destination for each bundle that has no owner or no destination yet.

The placement strategy chooses among the brokers that the filters admit, and counts bundles that the
same plan has placed. The order in a cycle: bundles that the shed phase takes, operators' moves,
children of splits. Only `planner.place` places bundles without an owner, then children.
Source: Pulsar 4.0.8 ModularLoadManagerImpl.selectBroker, which does not count planned placements.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.plan.draft import Draft, Moves
from lbcore.plan.filter.index import CandidateIndex, FilterVerdict
from lbcore.plan.pending import load_share
from lbcore.plan.phases.eligible import pins
from lbcore.plan.phases.limit import TAKEN, limit_verdicts, show_limits
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlaceRequest, PlaceSettings, place_request
from lbcore.plan.registry import placement_strategy, shedding_strategy
from lbcore.plan.snapshot import NOBODY, Bools, BundleTable, Floats, Ints, Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.split.decision import SplitDecision
from lbcore.plan.strategy import Destinations


def with_children(
    snapshot: Snapshot, index: CandidateIndex, usage: Floats, splits: Sequence[SplitDecision]
) -> tuple[Snapshot, CandidateIndex, Floats]:
    """Return the snapshot with the children of splits that are placed at once.

    The children are its last rows, and the parents have no owner in it. Second value: its index.
    Third value: the brokers' usage without the parents, because the children have their load.
    """
    placed = [split for split in splits if split.place_children]
    if not placed:
        return snapshot, index, usage
    parents = np.repeat(
        np.array([split.bundle for split in placed], dtype=np.int64),
        [len(split.children) for split in placed],
    )
    share = np.concatenate(
        [topic_shares(snapshot.topics_of(split.name), split.boundaries) for split in placed]
    )
    names = tuple(child for split in placed for child in split.children)
    left = usage.copy()
    for split in placed:
        owner = int(snapshot.bundles.owner[split.bundle])
        if owner >= 0:
            traffic = snapshot.brokers.traffic[owner]
            part = usage[owner] * load_share(snapshot.bundles.short[split.bundle], traffic)
            left[owner] = max(0.0, float(left[owner] - part))
    bundles = _with_rows(snapshot.bundles, parents, share, names)
    rows = np.concatenate([index.row, index.row[parents]])
    return replace(snapshot, bundles=bundles), replace(index, row=rows), left


def topic_shares(topics: TopicLoads | None, boundaries: Sequence[int]) -> Floats:
    """Return the shares of a bundle's traffic between boundaries; their sum is 1.

    boundaries: ascending, strictly inside the range; k of them give k + 1 shares.
    """
    count = len(boundaries) + 1
    equal = np.full(count, 1.0 / count)
    if topics is None or not len(topics.hashes):
        return equal
    child = np.searchsorted(np.array(boundaries), topics.hashes, side="right")
    for weight in (topics.throughput, topics.msg_rate):
        sums = np.bincount(child, weights=weight, minlength=count)
        total = float(np.cumsum(sums)[-1])
        if total > 0:
            return sums / total
    return equal


def _with_rows(
    table: BundleTable, parents: Ints, share: Floats, names: tuple[str, ...]
) -> BundleTable:
    part = share[:, np.newaxis]
    owner = table.owner.copy()
    owner[parents] = -1
    nobody = np.full(len(names), -1, dtype=np.int64)
    return replace(
        table,
        names=(*table.names, *names),
        namespace=np.concatenate([table.namespace, table.namespace[parents]]),
        owner=np.concatenate([owner, nobody]),
        short=np.concatenate([table.short, table.short[parents] * part]),
        long=np.concatenate([table.long, table.long[parents] * part]),
        topics=np.concatenate([table.topics, np.ceil(table.topics[parents] * share).astype(int)]),
        sessions=np.concatenate([table.sessions, np.zeros(len(names), dtype=np.int64)]),
        can_move=np.concatenate([table.can_move, np.zeros(len(names), dtype=np.bool_)]),
        versions=np.concatenate([table.versions, np.zeros(len(names), dtype=np.int64)]),
        needs_owner=None,
        avoid=None,
        is_load_known=None,
        is_awaited=None,
        pin=None,
        is_paused=None,
        moved_ms=None,
        left=None,
    )


PHASE = "assign"


def assign(draft: Draft) -> Draft:
    """Return the draft with destinations; a bundle without any stays where it is."""
    draft = _place_shed(draft)
    draft = _place_forced(draft)
    if not draft.scope.only_places and not any(found.place_children for found in draft.splits):
        return draft.skip(PHASE, "NotThisCycle")
    return _place_unowned(draft)


def _place_shed(draft: Draft) -> Draft:
    """Return the draft with destinations of shed bundles; without one, a bundle stays.

    Only within the limits, and only if the strategy has not settled the destinations.
    """
    destinations = shedding_strategy(draft.config).destinations(draft.config)
    if not len(draft.sheddings.bundle) or destinations == Destinations.SETTLED:
        return draft
    draft = _within_limits(draft)
    moves = draft.sheddings
    if not len(moves.bundle):
        return draft.skip("shed", "Limit")
    keeps_plan = destinations == Destinations.KEPT
    is_open = ~_may_keep(draft, moves) if keeps_plan else np.ones(len(moves.bundle), dtype=np.bool_)
    open_rows = np.flatnonzero(is_open)
    destination = moves.destination.copy()
    if len(open_rows):
        unsettled = moves.at(open_rows)
        if keeps_plan:  # filters must not count such a bundle at its planned destination
            at_source = np.where(is_open, NOBODY, destination)
            draft = replace(draft, sheddings=replace(moves, destination=at_source))
        request = replace(
            _request(draft, unsettled.bundle),
            excluded=unsettled.source,
            planned=unsettled.destination,
            is_unload=np.ones(len(open_rows), dtype=np.bool_),
        )
        draft, destination[open_rows] = _placed(draft, request, by_load=keeps_plan)
    is_whole = (destination >= 0) & (destination[draft.partners(moves)] >= 0)
    kept = replace(moves, destination=destination).at(np.flatnonzero(is_whole))
    draft = replace(draft, sheddings=kept)
    return draft if len(kept.bundle) else draft.skip("shed", "NoDestination")


def _within_limits(draft: Draft) -> Draft:
    """Return the draft without moves that the limits stop whatever their destination."""
    moves = draft.sheddings
    open_ended = replace(moves, destination=np.full(len(moves.bundle), NOBODY, dtype=np.int64))
    verdicts = limit_verdicts(draft, open_ended)
    is_stopped = verdicts != TAKEN
    if not is_stopped.any():
        return draft
    stopped = np.flatnonzero(is_stopped)
    draft = show_limits(draft, open_ended.at(stopped), verdicts[stopped])
    return replace(draft, sheddings=moves.at(np.flatnonzero(~is_stopped)))


def _may_keep(draft: Draft, moves: Moves) -> Bools:
    """Return the planned destinations that need no filter check, bool[k].

    The index has policies and closed brokers; filters that count (topics, anti-affinity) or compare
    brokers (class, version) must not apply.
    """
    index, filters, snapshot = draft.index, draft.config.filters, draft.snapshot
    brokers, bundles = snapshot.brokers, snapshot.bundles
    if filters.load_manager_class or filters.prefer_later_versions:
        return np.zeros(len(moves.bundle), dtype=np.bool_)
    topics = int(brokers.topic_count.max(initial=0)) + int(bundles.topics[moves.bundle].sum())
    is_open = index.verdicts[index.row[moves.bundle], moves.destination] == FilterVerdict.OK
    is_free = (index.group[bundles.namespace[moves.bundle]] < 0) & (pins(draft)[moves.bundle] < 0)
    may: Bools = is_open & is_free & (moves.destination >= 0)
    return may & (topics < filters.max_topics_per_broker)


def _place_forced(draft: Draft) -> Draft:
    """Choose destinations for bundles of draining brokers; pinned ones have theirs."""
    moves = draft.forced
    open_rows = np.flatnonzero(moves.destination < 0)
    if not len(open_rows):
        return draft
    request = replace(
        _request(draft, moves.bundle[open_rows]),
        excluded=moves.source[open_rows],
        is_unload=np.zeros(len(open_rows), dtype=np.bool_),
    )
    draft, found = _placed(draft, request, by_load=True)
    destination = moves.destination.copy()
    destination[open_rows] = found
    kept = replace(moves, destination=destination).at(np.flatnonzero(destination >= 0))
    return replace(draft, forced=kept)


def _place_unowned(draft: Draft) -> Draft:
    """Place children of splits, and for `planner.place` bundles without an owner."""
    bundles = draft.snapshot.bundles
    needs = bundles.needs_owner if bundles.needs_owner is not None else bundles.owner < 0
    rows = np.flatnonzero(needs & draft.scope.only_places)
    request = _request(draft, rows, draft.splits)
    everyone = len(request.bundles)
    if not everyone:
        return draft.skip(PHASE, "NoUnownedBundle")
    avoided = np.full(everyone, NOBODY, dtype=np.int64)
    if bundles.avoid is not None:
        avoided[: len(rows)] = bundles.avoid[rows]
    request = replace(request, excluded=avoided, is_unload=np.zeros(everyone, dtype=np.bool_))
    known = bundles.is_load_known
    by_load = known is not None and everyone == len(rows) and bool(known[rows].all())
    draft, found = _placed(draft, request, by_load=by_load)
    own = found[: len(rows)]
    kept = np.flatnonzero(own >= 0)
    nobody = np.full(len(rows), NOBODY, dtype=np.int64)
    moves = Moves(bundle=rows, source=nobody, destination=own, origin=nobody).at(kept)
    name_of = dict(enumerate(draft.snapshot.brokers.names))
    parent = {
        child: split.broker
        for split in draft.splits
        if split.place_children
        for child in split.children
    }
    chosen = (name_of.get(at, "") for at in found[len(rows) :].tolist())
    children = {  # "" = it stays with its parent's owner
        child: "" if broker == parent[child] else broker
        for child, broker in zip(parent, chosen, strict=True)
    }
    draft = replace(draft, assignments=moves, children=children)
    return draft if len(kept) or children else draft.skip(PHASE, "NoBrokers")


def _placed(draft: Draft, request: PlaceRequest, *, by_load: bool) -> tuple[Draft, Ints]:
    """Return the draft with placement's next state, and destinations, -1 = none.

    `distribute_evenly` is off for a strategy that evens out load instead of counts. by_load: it is
    off, because it would give an empty broker all bundles although loads are known.
    """
    config, filters = draft.config, draft.config.filters
    if by_load or not placement_strategy(config.placement).evens_counts:
        filters = replace(filters, distribute_evenly=False)
    settings = PlaceSettings(
        placement=config.placement,
        filters=filters,
        history_weight=config.signals.history_weight,
        excluded_namespaces=frozenset(config.shedding.excluded_namespaces),
    )
    seed = zlib.crc32(draft.snapshot.cluster.encode())
    active, known = {*request.snapshot.brokers.names}, draft.state.placement
    # as Pulsar's LeastResourceUsageWithWeight.onActiveBrokersChange, without departed brokers
    kept = {name: value for name, value in known.smoothed_usage.items() if name in active}
    answer = place_bundles(request, replace(known, smoothed_usage=kept), settings, seed)
    draft = replace(draft, state=replace(draft.state, placement=answer.state))
    return draft.show(answer.trace), answer.brokers


def _request(draft: Draft, rows: Ints, splits: Sequence[SplitDecision] = ()) -> PlaceRequest:
    """Return the request to place these bundles, then the children of these splits."""
    planned = _planned(draft)
    snapshot, index, usage = with_children(planned, draft.index, draft.usage, splits)
    known, everyone = len(planned.bundles.names), len(snapshot.bundles.names)
    rows = np.concatenate([rows, np.arange(known, everyone)])
    pinned = np.append(pins(draft), np.full(everyone - known, NOBODY, dtype=np.int64))
    return replace(
        place_request(snapshot, rows, index, usage),
        pins=pinned[rows],
        usage_lags=draft.config.signals.usage_lag_ms > 0,
        traced=draft.scope.placements_traced if draft.scope.is_traced else 0,
    )


def _planned(draft: Draft) -> Snapshot:
    """Return the snapshot after moves with a destination, new reports marked."""
    bundles, brokers = draft.snapshot.bundles, draft.snapshot.brokers
    owner = bundles.owner.copy()
    for moves in (draft.sheddings, draft.forced):
        is_known = moves.destination >= 0
        owner[moves.bundle[is_known]] = moves.destination[is_known]
    is_fresh = brokers.is_fresh if draft.scope.only_places else draft.has_new_report
    return replace(
        draft.snapshot,
        brokers=replace(brokers, is_fresh=is_fresh),
        bundles=replace(bundles, owner=owner),
    )
