"""Shedding from the most to the least loaded brokers until loads deviate little.

Decides which bundles move between which brokers in one cycle, bit for bit as Pulsar. In order:
the statistics of load, the bundles of a pair, the pairs, the shedder's snapshot, and the strategy
of the plan's shed phase, whose hits advance on fresh reports alone. Source: Pulsar
4.0.8 TransferShedder, TopBundleLoadDataReporter, TopKBundles, UnloadScheduler; fresh hits are ours.
The order of the brokers decides ties: the planner gives name order, Pulsar has its hash map's.
"""

import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.config.placement import EXTENSIBLE, FilterConfig
from lbcore.config.shedding import TransferConfig
from lbcore.plan.decision import PlanState
from lbcore.plan.filter.index import CandidateIndex, candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion
from lbcore.plan.shed.common import OwnerIndex, Selection, Shed, ShedState, ShedView, throughput
from lbcore.plan.shed.transfer_types import (
    BundleLookup,
    Label,
    PairTrace,
    Reason,
    TopBundle,
    TransferDecision,
    TransferOutcome,
    TransferRefusal,
    TransferState,
    TransferView,
)
from lbcore.plan.snapshot import Bools, Floats, Ints, Snapshot
from lbcore.plan.strategy import ShedCycle
from lbcore.signals.ordering import has_throughput, top_bundles

BALANCED_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two brokers: throughput, in plus out, and target to move, bytes/s."""

    source: str
    destination: str
    source_throughput: float
    destination_throughput: float
    target: float
    reason: Reason


@dataclass(slots=True, kw_only=True)
class Offload:
    """Progress of an offload: the traffic taken so far, and the decisions.

    marked: bytes/s marked to leave. gained: bytes/s gained back.
    """

    marked: float = 0.0
    gained: float = 0.0
    decisions: list[TransferDecision] = field(default_factory=list)
    refused: list[tuple[str, TransferRefusal]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMove:
    """Rule for one pair, while it walks the reported bundles.

    returnable: the destination's report, one forward pass for all bundles; None without a report
    or when swaps are off.
    """

    pair: Pair
    lookup: BundleLookup
    config: TransferConfig
    returnable: Iterator[TopBundle] | None

    def take(self, reported: Sequence[TopBundle]) -> Offload:
        """Walk the source's report, lightest first, until the target is reached.

        One reported bundle always stays. A bundle that overshoots the target is taken only in
        exchange for bundles of the destination that leave both below the source's throughput.
        """
        offload = Offload()
        remaining = len(reported)
        for top in reported:
            refusal = self._refusal(top)
            if refusal is None and remaining <= 1:
                offload.refused.append((top.bundle, TransferRefusal.LAST_BUNDLE))
                break
            if refusal is None and top.throughput == 0:
                refusal = TransferRefusal.NO_THROUGHPUT
            if refusal is not None:
                offload.refused.append((top.bundle, refusal))
                continue
            if not self._take_one(top, offload):
                offload.refused.append((top.bundle, TransferRefusal.ABOVE_TARGET))
                break
            remaining -= 1
        return offload

    def _refusal(self, top: TopBundle) -> TransferRefusal | None:
        """Return the reason this bundle can't leave the source, in Pulsar's check order."""
        if not self.lookup.is_owner(top.bundle, self.pair.source):
            return TransferRefusal.NOT_OWNED
        if self.lookup.is_excluded(top.bundle):
            return TransferRefusal.EXCLUDED_NAMESPACE
        if self.lookup.is_recently_unloaded(top.bundle):
            return TransferRefusal.RECENTLY_UNLOADED
        if not self._is_transferable(top.bundle, self.pair.source, self.pair.destination):
            return TransferRefusal.NOT_TRANSFERABLE
        return None

    def _is_transferable(self, bundle: str, source: str, destination: str) -> bool:
        """Return True if policies and filters allow it, also without a destination."""
        if self.lookup.has_policy(bundle) and not self.config.shed_bundles_with_policies:
            return False
        candidates = self.lookup.candidates(bundle)
        return candidates is not None and destination in candidates and destination != source

    def _take_one(self, top: TopBundle, offload: Offload) -> bool:
        """Mark the bundle to leave, with a swap when it overshoots; False when that fails."""
        if offload.marked - offload.gained + top.throughput > self.pair.target:
            swapped = self._swap(top.throughput, offload)
            if swapped is None:
                return False
            back = self.pair.destination, self.pair.source
            offload.decisions += [self._decision(found.bundle, *back) for found in swapped]
            if self.config.count_swapped_back:
                offload.gained += _sequential_sum(swapped)
        destination = self.pair.destination if self.config.is_destination_planned else ""
        offload.decisions.append(self._decision(top.bundle, self.pair.source, destination))
        offload.marked += top.throughput
        return True

    def _swap(self, leaving: float, offload: Offload) -> list[TopBundle] | None:
        """Return bundles to take back so that both sides end balanced; or None.

        Those looked at are used up, also when the swap fails.
        """
        if self.returnable is None:
            return None
        limit = self.pair.source_throughput
        source = limit - offload.marked + offload.gained - leaving
        destination = self.pair.destination_throughput + offload.marked - offload.gained + leaving
        swapped = []
        for top in self.returnable:
            if not self._is_returnable(top):
                continue
            new_source, new_destination = source + top.throughput, destination - top.throughput
            if not (new_source < limit and new_destination < limit):
                continue
            swapped.append(top)
            source, destination = new_source, new_destination
            if destination <= source < limit * BALANCED_SHARE:
                return swapped
        return None

    def _is_returnable(self, top: TopBundle) -> bool:
        """Return True if Pulsar would return it; owner and last move don't count."""
        if not self._is_transferable(top.bundle, self.pair.destination, self.pair.source):
            return False
        return top.throughput != 0

    def _decision(self, bundle: str, source: str, destination: str) -> TransferDecision:
        return TransferDecision(
            source=source, bundle=bundle, destination=destination, reason=self.pair.reason
        )


def _sequential_sum(bundles: Sequence[TopBundle]) -> float:
    total = 0.0
    for top in bundles:
        total += top.throughput
    return total


@dataclass(slots=True, kw_only=True)
class LoadStats:
    """Sums over brokers with fresh load data, and the brokers still to pair.

    order: indices into the view, by load ascending, ties in store order. min_at, max_at: positions
    in `order`. std: changes with every pair, the average does not.
    """

    order: list[int]
    squares: float
    count: int
    average: float
    std: float
    min_at: int = 0
    max_at: int = 0
    pairs: int = 0

    def offload(self, most: float, least: float, moved: float) -> None:
        """Move `moved` of load from a broker at `most` to one at `least`."""
        self.squares -= most * most + least * least
        left = java_max(0.0, most - moved)
        taken = least + moved
        self.squares += left * left + taken * taken
        self.std = java_sqrt(abs(self.squares / self.count - self.average * self.average))
        self.pairs += 1
        self.min_at += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Statistics, or why the cycle ends; and the brokers still cooling down."""

    stats: LoadStats | None
    reason: Reason | None
    unloaded_brokers: dict[str, int]


def survey(
    view: TransferView,
    registered: frozenset[str],
    unloaded_brokers: Mapping[str, int],
    config: TransferConfig,
    now_ms: int,
) -> Survey:
    """Judge the load store.

    One broker too early after an unload ends the cycle, as in Pulsar. Brokers whose data is too old
    don't count but stay in the order of brokers. O(n log n).
    """
    is_fresh: Bools = now_ms - view.updated_at_ms <= config.load_data_ttl_ms
    remaining = dict(unloaded_brokers)
    if _is_cooling_down(view, is_fresh, remaining, config):
        return Survey(stats=None, reason=Reason.COOL_DOWN, unloaded_brokers=remaining)
    if not is_fresh.any():
        reason = Reason.OUT_DATED_DATA if len(view.names) else Reason.NO_BROKERS
        return Survey(stats=None, reason=reason, unloaded_brokers=remaining)
    if not registered.issubset(view.names):
        return Survey(stats=None, reason=Reason.NO_LOAD_DATA, unloaded_brokers=remaining)
    return Survey(stats=_stats(view, view.load[is_fresh]), reason=None, unloaded_brokers=remaining)


def _is_cooling_down(
    view: TransferView, is_fresh: Bools, remaining: dict[str, int], config: TransferConfig
) -> bool:
    """True if a broker is cooling down.

    Removes brokers whose cool-down has passed, in store order, up to the first that is cooling
    down.
    """
    if not remaining:
        return False
    index = {name: at for at, name in enumerate(view.names) if name in remaining}
    for name, at in index.items():
        if not is_fresh[at]:
            continue
        if int(view.updated_at_ms[at]) - remaining[name] < config.shedding_delay_ms:
            return True
        del remaining[name]
    return False


def _stats(view: TransferView, load: Floats) -> LoadStats:
    """Population statistics, summed one after the other in store order."""
    count = len(load)
    total = float(np.cumsum(load)[-1])
    squares = float(np.cumsum(load * load)[-1])
    average = total / count
    return LoadStats(
        order=np.argsort(view.load, kind="stable").tolist(),
        squares=squares,
        count=count,
        average=average,
        std=java_sqrt(squares / count - average * average),
        max_at=len(view.names) - 1,
    )


def java_sqrt(value: float) -> float:
    """Java's Math.sqrt: NaN below zero and for NaN."""
    return math.sqrt(value) if value >= 0 else math.nan


def java_max(left: float, right: float) -> float:
    """Java's Math.max: NaN when either is."""
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


def java_divide(left: float, right: float) -> float:
    """Java's division of doubles: infinite or NaN by zero."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


UNDERLOADED_SHARE_MAX = 0.5


def find_transfers(
    view: TransferView, state: TransferState, config: TransferConfig, now_ms: int
) -> tuple[TransferOutcome, TransferState]:
    """Run one cycle of TransferShedder: decisions or the reason, and the next state.

    O(n log n) for n brokers, plus the reports of the brokers that are paired.
    """
    if view.registered is None:
        return _ended(Label.FAILURE, Reason.UNKNOWN, state, 0.0)
    found = survey(view, view.registered, state.unloaded_brokers, config, now_ms)
    state = replace(state, unloaded_brokers=found.unloaded_brokers)
    if found.stats is None:
        return _ended(Label.SKIP, found.reason or Reason.UNKNOWN, state, 0.0)
    state = replace(state, load_avg=found.stats.average, load_std=found.stats.std)
    cycle = _TransferCycle(view=view, config=config, stats=found.stats)
    hits = 0 if cycle.wanted() is None else state.hits + 1
    state = replace(state, hits=hits)
    if hits <= config.hit_count_threshold:
        return _ended(Label.SKIP, Reason.HIT_COUNT, state, found.stats.std)
    return _shed(cycle, state)


def _shed(cycle: "_TransferCycle", state: TransferState) -> tuple[TransferOutcome, TransferState]:
    """Pair brokers until the target is met; hits restart after any decision."""
    cycle.run()
    if not cycle.decisions:
        outcome, state = _ended(Label.SKIP, cycle.why_none(), state, cycle.stats.std)
        return replace(outcome, pairs=tuple(cycle.traces)), state
    outcome = TransferOutcome(
        decisions=tuple(dict.fromkeys(cycle.decisions)),
        final_std=cycle.stats.std,
        pairs=tuple(cycle.traces),
    )
    return outcome, replace(state, hits=0)


def _ended(
    label: Label, reason: Reason, state: TransferState, std: float
) -> tuple[TransferOutcome, TransferState]:
    """A cycle without decisions, counted."""
    counter = _counted(state.counter, label, reason)
    outcome = TransferOutcome(label=label, reason=reason, final_std=std)
    return outcome, replace(state, counter=counter)


def _counted(counter: Mapping[str, int], label: Label, reason: Reason) -> dict[str, int]:
    key = f"{label.value}/{reason.value}"
    return {**counter, key: counter.get(key, 0) + 1}


@dataclass(slots=True, kw_only=True)
class _TransferCycle:
    """One pass over the brokers, from both ends of the order of load."""

    view: TransferView
    config: TransferConfig
    stats: LoadStats
    decisions: list[TransferDecision] = field(default_factory=list)
    traces: list[PairTrace] = field(default_factory=list)
    without_data: int = 0
    without_bundles: int = 0

    def run(self) -> None:
        """Pair the hottest remaining broker, which is used up, with the coldest."""
        stats = self.stats
        while stats.pairs < self.config.max_pairs_per_cycle and stats.min_at < stats.max_at:
            reason = self.wanted()
            if reason is None:
                return
            most, least = stats.order[stats.max_at], stats.order[stats.min_at]
            stats.max_at -= 1
            self._pair(most, least, reason)

    def wanted(self) -> Reason | None:
        """Return the reason to move something now, None if the cluster is balanced."""
        if self.stats.std > self.config.target_std:
            return Reason.OVERLOADED
        if self._is_underloaded():
            return Reason.UNDERLOADED
        return Reason.OVERLOADED if self._is_overloaded() else None

    def why_none(self) -> Reason:
        """The reason of a cycle that paired brokers without a single decision."""
        if self.without_data:
            return Reason.NO_LOAD_DATA
        return Reason.NO_BUNDLES if self.without_bundles else Reason.HIT_COUNT

    def _is_underloaded(self) -> bool:
        """Return True if the coldest is far below the average or the hottest's throughput."""
        least = self.stats.order[self.stats.min_at]
        most = self.stats.order[self.stats.max_at]
        share = min(UNDERLOADED_SHARE_MAX, max(0.0, self.config.target_std / 2.0))
        if self.view.load[least] < self.stats.average * share:
            return True
        throughput = self.view.throughput_ema
        return bool(throughput[least] < throughput[most] * share)

    def _is_overloaded(self) -> bool:
        """The hottest broker left is above the threshold and far above the average."""
        load = self.view.load[self.stats.order[self.stats.max_at]]
        if not load > self.config.overloaded_threshold_percent / 100.0:
            return False
        return bool(load > self.stats.average + self.config.target_std)

    def _pair(self, most: int, least: int, reason: Reason) -> None:
        """Move bundles from the broker `most` to `least` and predict the deviation."""
        pair, most_load, least_load = self._made(most, least, reason)
        reported = self.view.lookup.top_bundles(pair.source)
        if not reported:
            self.without_data += 1
            return
        if len(reported) == 1:
            self.without_bundles += 1
            return
        offload = self._move(pair).take(reported)
        self.decisions += offload.decisions
        if offload.marked > 0:
            freed = (offload.marked - offload.gained) * most_load
            self.stats.offload(most_load, least_load, java_divide(freed, pair.source_throughput))
        else:
            self.without_bundles += 1
        self._trace(pair, offload)

    def _made(self, most: int, least: int, reason: Reason) -> tuple[Pair, float, float]:
        """Return the pair and both loads. Target: half the difference, in throughput."""
        view = self.view
        most_load, least_load = float(view.load[most]), float(view.load[least])
        throughput = float(view.throughput[most])
        pair = Pair(
            source=view.names[most],
            destination=view.names[least],
            source_throughput=throughput,
            destination_throughput=float(view.throughput[least]),
            target=java_divide(throughput * ((most_load - least_load) / 2), most_load),
            reason=reason,
        )
        return pair, most_load, least_load

    def _move(self, pair: Pair) -> PairMove:
        returned = None
        if self.config.is_destination_planned:
            returned = self._returnable(pair.destination)
        return PairMove(
            pair=pair,
            lookup=self.view.lookup,
            config=self.config,
            returnable=None if returned is None else iter(returned),
        )

    def _returnable(self, broker: str) -> Sequence[TopBundle] | None:
        """Return the bundles to swap back, lightest first; None without a report."""
        lookup = self.view.lookup
        reported = lookup.top_bundles(broker)
        if reported is None or not self.config.check_swapped_back:
            return reported
        return [
            one
            for one in reported
            if not (lookup.is_recently_unloaded(one.bundle) or lookup.is_excluded(one.bundle))
        ]

    def _trace(self, pair: Pair, offload: Offload) -> None:
        self.traces.append(
            PairTrace(
                source=pair.source,
                destination=pair.destination,
                reason=pair.reason,
                target=pair.target,
                marked=offload.marked,
                gained=offload.gained,
                std_after=self.stats.std,
                refused=tuple(offload.refused),
            )
        )


STATS_COLUMNS = 8
TOPICS, SESSIONS = 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLists:
    """Options of top lists.

    limit: bundles per list. with_policies: also bundles with policies.
    """

    limit: int
    with_policies: bool


def transfer_view(
    snapshot: Snapshot, owned: OwnerIndex, pipeline: FilterPipeline, lists: TopLists
) -> TransferView:
    """The view of a snapshot, brokers in its order. pipeline: see `transfer_pipeline`.

    A broker that has not reported yet is registered without load data, which ends the cycle.
    """
    brokers = snapshot.brokers
    reported = np.flatnonzero(brokers.updated_at_ms > 0)
    return TransferView(
        names=tuple(brokers.names[at] for at in reported.tolist()),
        load=brokers.weighted_max_ema[reported],
        throughput=throughput(brokers.traffic[reported]),
        throughput_ema=brokers.throughput_ema[reported],
        updated_at_ms=brokers.updated_at_ms[reported],
        registered=frozenset(brokers.names),
        lookup=SnapshotLookup(
            snapshot=snapshot,
            owned=owned,
            pipeline=pipeline,
            lists=lists,
            number={name: at for at, name in enumerate(brokers.names)},
        ),
    )


def transfer_pipeline(
    snapshot: Snapshot, index: CandidateIndex, config: FilterConfig
) -> FilterPipeline:
    """Return the extensible manager's filters, whichever are configured."""
    nothing = np.zeros(0, dtype=np.int64)
    return FilterPipeline.of(snapshot, index, replace(config, pipeline=EXTENSIBLE), nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLookup:
    """Answers the shedder's questions about bundles. number: broker → its index."""

    snapshot: Snapshot
    owned: OwnerIndex
    pipeline: FilterPipeline
    lists: TopLists
    number: dict[str, int]
    rows: dict[str, int] = field(default_factory=dict)

    def top_bundles(self, broker: str) -> Sequence[TopBundle] | None:
        """The heaviest bundles of a broker by short-term averages, lightest first."""
        bundles = self.snapshot.bundles
        rows = self.owned.of(self.number[broker])
        if not self.lists.with_policies:
            rows = rows[~self.pipeline.index.has_policy[bundles.namespace[rows]]]
        stats = np.zeros((len(rows), STATS_COLUMNS))
        stats[:, :TOPICS] = bundles.short[rows]
        stats[:, TOPICS] = bundles.topics[rows]
        stats[:, SESSIONS] = bundles.sessions[rows]
        is_busy = has_throughput(stats)
        rows = rows[is_busy][top_bundles(stats[is_busy], self.lists.limit)]
        volumes = throughput(bundles.short[rows]).tolist()
        names = [bundles.names[row] for row in rows.tolist()]
        self.rows.update(zip(names, rows.tolist(), strict=True))
        return [
            TopBundle(bundle=name, throughput=volume)
            for name, volume in zip(names, volumes, strict=True)
        ]

    def is_owner(self, bundle: str, broker: str) -> bool:
        """Top lists are made of what the records say."""
        owner = int(self.snapshot.bundles.owner[self.rows[bundle]])
        return owner == self.number[broker]

    def is_excluded(self, _bundle: str) -> bool:
        """`can_move` says so already."""
        return False

    def is_recently_unloaded(self, bundle: str) -> bool:
        """True if anything forbids a move of the bundle.

        Cool-down, pin, move in flight, or excluded namespace.
        """
        return not self.snapshot.bundles.can_move[self.rows[bundle]]

    def has_policy(self, bundle: str) -> bool:
        """True if its namespace has an isolation policy or an anti-affinity group."""
        namespace = self.snapshot.bundles.namespace[self.rows[bundle]]
        return bool(self.pipeline.index.has_policy[namespace])

    def candidates(self, bundle: str) -> Container[str] | None:
        """Return the brokers that pass the extensible manager's filters; None on failure."""
        narrowed = self.pipeline.candidates(FilterQuestion(bundle=self.rows[bundle]))
        if narrowed.is_failed:
            return None
        return _Brokers(left=narrowed.left, number=self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brokers:
    """A set of brokers by index, asked by name."""

    left: Ints
    number: dict[str, int]

    def __contains__(self, name: object) -> bool:
        return bool((self.left == self.number.get(str(name), -1)).any())


def run_transfer(cycle: ShedCycle) -> tuple[Shed, PlanState]:
    """The strategy's answer for the brokers that take part, and the state after it."""
    view, config, filters = cycle.view, cycle.config.transfer, cycle.config.filters
    index = candidate_index(view.snapshot)
    pipeline = transfer_pipeline(view.snapshot, index, filters)
    lists = TopLists(
        limit=cycle.config.signals.top_bundles, with_policies=config.shed_bundles_with_policies
    )
    store = transfer_view(view.snapshot, view.owned, pipeline, lists)
    state = without_departed(cycle.state.transfer, cycle.everyone)
    answer = shed_by_transfer(view, store, state, config, cycle.now_ms)
    return answer.shed, replace(cycle.state, transfer=answer.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShed:
    """The strategy's answer and its next state."""

    shed: Shed
    state: TransferState


def shed_by_transfer(
    view: ShedView,
    store: TransferView,
    state: TransferState,
    config: TransferConfig,
    now_ms: int,
) -> TransferShed:
    """Run one cycle of TransferShedder over `store`, which shows `view`."""
    if not _is_reported(view):
        nothing = Shed(selections=(), state=ShedState(), reason="HitCount")
        return TransferShed(shed=nothing, state=state)
    outcome, state = find_transfers(store, state, config, now_ms)
    columns = {"score": view.snapshot.brokers.weighted_max_ema}
    reason = "" if outcome.reason is None else outcome.reason.value
    shed = Shed(
        selections=_selections(view, outcome, state),
        state=ShedState(),
        reason=reason,
        columns=columns,
        numbers={
            "average": state.load_avg,
            "deviation": state.load_std,
            "target": config.target_std,
            "hits": float(state.hits),
        },
    )
    return TransferShed(shed=shed, state=state)


def _is_reported(view: ShedView) -> bool:
    """True if the spread is a fresh observation.

    It is when the hottest or the coldest broker reported.
    """
    load = view.snapshot.brokers.weighted_max_ema
    if not len(load):
        return True
    return bool(view.is_due[int(np.argmax(load))] or view.is_due[int(np.argmin(load))])


def _selections(
    view: ShedView, outcome: TransferOutcome, state: TransferState
) -> tuple[Selection, ...]:
    """A selection a pair of brokers and reason, in the order decided."""
    groups: dict[tuple[str, str, str], list[TransferDecision]] = {}
    for decision in outcome.decisions:
        key = (decision.source, decision.destination, decision.reason.value)
        groups.setdefault(key, []).append(decision)
    rows = view.snapshot.bundles.rows_of(decision.bundle for decision in outcome.decisions)
    brokers = {name: at for at, name in enumerate(view.snapshot.brokers.names)}
    numbers = {"predicted_deviation": outcome.final_std, "deviation": state.load_std}
    return tuple(
        _selection(view, (brokers[source], brokers.get(destination, -1)), found, rows, numbers)
        for (source, destination, _), found in groups.items()
    )


def _selection(
    view: ShedView,
    pair: tuple[int, int],
    decisions: Sequence[TransferDecision],
    rows: dict[str, int],
    numbers: dict[str, float],
) -> Selection:
    taken = np.array([rows[decision.bundle] for decision in decisions], dtype=np.int64)
    load = view.snapshot.brokers.weighted_max_ema
    shown = {**numbers, "score": float(load[pair[0]])}
    if pair[1] >= 0:
        shown["score_of_destination"] = float(load[pair[1]])
    return Selection(
        source=pair[0],
        destination=pair[1],
        candidates=taken,
        traffic=throughput(view.snapshot.bundles.short[taken]),
        is_taken=np.ones(len(taken), dtype=np.bool_),
        reason=decisions[0].reason.value,
        numbers=shown,
    )


def without_departed(state: TransferState, names: Collection[str]) -> TransferState:
    """The state without cool-downs of brokers that are gone."""
    known = set(names)
    kept = {name: at for name, at in state.unloaded_brokers.items() if name in known}
    return replace(state, unloaded_brokers=kept)
