"""Shedding from the most to the least loaded brokers until loads deviate little.

As Pulsar bit for bit under `is_pulsar_exact`; otherwise a hit also needs a new report of the
hottest or the coldest broker. In this file, from the top: the bundles of a pair, the pairs, the
shedder's view of a snapshot, the strategy. The order of the brokers decides ties:
the planner gives name order, Pulsar has its hash map's. Source: Pulsar 4.0.8 TransferShedder,
UnloadDecision, TopBundleLoadDataReporter, TopKBundles, UnloadScheduler.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from lbcore.config.placement import EXTENSIBLE, FilterConfig
from lbcore.config.shedding import TransferConfig
from lbcore.plan.decision import PlanState
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion
from lbcore.plan.shed.common import (
    OwnerIndex,
    Selection,
    Shed,
    ShedState,
    ShedView,
    TransferState,
    TriggerStatus,
    one_level,
    status_of_hottest,
)
from lbcore.plan.snapshot import Bools, Floats, Ints, Snapshot, throughput
from lbcore.plan.strategy import ShedCycle
from lbcore.signals.ordering import has_throughput, top_bundles

BALANCED_SHARE = 0.75
UNDERLOADED_SHARE_MAX = 0.5


class Reason(str, Enum):
    """Reason that a bundle moves, or that a cycle moves none.

    The value is Pulsar's metric label.
    """

    OVERLOADED = "Overloaded"
    UNDERLOADED = "Underloaded"
    ADMIN = "Admin"
    HIT_COUNT = "HitCount"
    NO_BUNDLES = "NoBundles"
    COOL_DOWN = "CoolDown"
    OUT_DATED_DATA = "OutDatedData"
    NO_LOAD_DATA = "NoLoadData"
    NO_BROKERS = "NoBrokers"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopBundle:
    """One bundle of a broker's top-k report. throughput: in plus out, bytes/s.

    is_own: the broker owns it by the records. is_held: a cool-down or an exclusion keeps it.
    """

    bundle: str
    throughput: float
    is_own: bool = True
    is_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferView:
    """The extensible manager's load store, n rows in the order that decides ties.

    load: weightedMaxEMA, 1.0 = 100 %. throughput: in plus out of the broker's own record, bytes/s.
    throughput_ema: msgThroughputEMA. updated_at_ms: time of the record. registered: the active
    brokers, None if the lookup failed. report: a broker's top-k bundles, lightest first; None
    without a report. admits: True if policies and filters admit a bundle on a broker.
    """

    names: tuple[str, ...]
    load: Floats
    throughput: Floats
    throughput_ema: Floats
    updated_at_ms: Ints
    registered: frozenset[str] | None
    report: Callable[[str], Sequence[TopBundle] | None]
    admits: Callable[[str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDecision:
    """One bundle to move. destination: "" = plain unload."""

    source: str
    bundle: str
    destination: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOutcome:
    """A cycle's answer: decisions, or a reason for none.

    final_std: predicted deviation after the decisions, 0.0 when the statistics were skipped.
    """

    decisions: tuple[TransferDecision, ...] = ()
    reason: Reason | None = None
    final_std: float = 0.0


def java_sqrt(value: float) -> float:
    """Java's Math.sqrt: NaN below zero and for NaN."""
    return math.sqrt(value) if value >= 0 else math.nan


def java_divide(left: float, right: float) -> float:
    """Java's division of doubles: infinite or NaN by zero."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def find_transfers(
    view: TransferView, state: TransferState, config: TransferConfig, now_ms: int
) -> tuple[TransferOutcome, TransferState]:
    """Run one cycle of TransferShedder; return decisions or reason, and next state.

    Brokers with outdated load don't count but keep their place in the order. O(n log n) for n
    brokers, plus the reports of the paired brokers.
    """
    if view.registered is None:
        return TransferOutcome(reason=Reason.UNKNOWN), state
    is_within_ttl: Bools = now_ms - view.updated_at_ms <= config.load_data_ttl_ms
    remaining, reason = dict(state.unloaded_brokers), None
    if _is_cooling_down(view, is_within_ttl, remaining, config):
        reason = Reason.COOL_DOWN
    elif not is_within_ttl.any():
        reason = Reason.OUT_DATED_DATA if view.names else Reason.NO_BROKERS
    elif not view.registered.issubset(view.names):
        reason = Reason.NO_LOAD_DATA
    state = replace(state, unloaded_brokers=remaining)
    if reason is not None:
        return TransferOutcome(reason=reason), state
    cycle = _TransferCycle.of(view, view.load[is_within_ttl], config)
    hits = 0 if cycle.wanted() is None else state.hits + 1
    state = replace(state, load_avg=cycle.average, load_std=cycle.std, hits=hits)
    if hits <= config.hit_count_threshold:
        return TransferOutcome(reason=Reason.HIT_COUNT, final_std=cycle.std), state
    cycle.run()
    if not cycle.decisions:
        reason = Reason.NO_BUNDLES if cycle.without_bundles else Reason.HIT_COUNT
        reason = Reason.NO_LOAD_DATA if cycle.without_data else reason
        return TransferOutcome(reason=reason, final_std=cycle.std), state
    decisions = tuple(dict.fromkeys(cycle.decisions))
    return TransferOutcome(decisions=decisions, final_std=cycle.std), replace(state, hits=0)


def _is_cooling_down(
    view: TransferView, is_within_ttl: Bools, remaining: dict[str, int], config: TransferConfig
) -> bool:
    """True if a broker is cooling down: one ends the cycle, as in Pulsar.

    Removes brokers whose cool-down is over, in store order, up to the first that is cooling down.
    """
    index = {name: at for at, name in enumerate(view.names) if name in remaining}
    for name, at in index.items():
        if not is_within_ttl[at]:
            continue
        if int(view.updated_at_ms[at]) - remaining[name] < config.shedding_delay_ms:
            return True
        del remaining[name]
    return False


@dataclass(slots=True, kw_only=True)
class _TransferCycle:
    """One pass over the brokers, from both ends of the order of load.

    order: indices into the view, by load ascending, ties in store order. coldest, hottest:
    positions in `order` of the brokers still to pair. squares, count, average, std: of the brokers
    with fresh load data; std changes with every pair, the average does not.
    """

    view: TransferView
    config: TransferConfig
    order: list[int]
    squares: float
    count: int
    average: float
    std: float
    hottest: int
    coldest: int = 0
    pairs: int = 0
    decisions: list[TransferDecision] = field(default_factory=list)
    without_data: int = 0
    without_bundles: int = 0

    @classmethod
    def of(cls, view: TransferView, load: Floats, config: TransferConfig) -> "_TransferCycle":
        """Begin with population statistics of `load`, summed in store order."""
        count = len(load)
        average = float(np.cumsum(load)[-1]) / count
        squares = float(np.cumsum(load * load)[-1])
        return cls(
            view=view,
            config=config,
            order=np.argsort(view.load, kind="stable").tolist(),
            squares=squares,
            count=count,
            average=average,
            std=java_sqrt(squares / count - average * average),
            hottest=len(view.names) - 1,
        )

    def run(self) -> None:
        """Pair the hottest remaining broker with the coldest until nothing is wanted."""
        while self.pairs < self.config.max_pairs_per_cycle and self.coldest < self.hottest:
            reason = self.wanted()
            if reason is None:
                return
            most, least = self.order[self.hottest], self.order[self.coldest]
            self.hottest -= 1
            self._pair(most, least, reason)

    def wanted(self) -> Reason | None:
        """Return the reason to move something now, None if the cluster is balanced.

        Underloaded: the coldest is far below the average or the hottest's throughput.
        """
        target, view = self.config.target_std, self.view
        if self.std > target:
            return Reason.OVERLOADED
        least, most = self.order[self.coldest], self.order[self.hottest]
        share = min(UNDERLOADED_SHARE_MAX, max(0.0, target / 2.0))
        is_cold = view.load[least] < self.average * share
        if is_cold or view.throughput_ema[least] < view.throughput_ema[most] * share:
            return Reason.UNDERLOADED
        load = view.load[most]
        is_full = load > self.config.overloaded_threshold_percent / 100.0
        return Reason.OVERLOADED if is_full and load > self.average + target else None

    def _pair(self, most: int, least: int, reason: Reason) -> None:
        """Move bundles from the broker `most` to `least` and predict the deviation.

        Target: half the difference of their loads, in throughput.
        """
        view, source, destination = self.view, self.view.names[most], self.view.names[least]
        reported = view.report(source)
        if not reported:
            self.without_data += 1
            return
        if len(reported) == 1:
            self.without_bundles += 1
            return
        back = view.report(destination) if self.config.is_destination_planned else None
        if back is not None and self.config.check_swapped_back:
            back = [top for top in back if not top.is_held]
        high, low = float(view.load[most]), float(view.load[least])
        volume = float(view.throughput[most])
        target = java_divide(volume * ((high - low) / 2), high)
        returnable = None if back is None else iter(back)  # lightest first
        marked, gained = self._offload((most, least), reported, returnable, target, reason)
        if marked > 0:
            self._move_load(high, low, java_divide((marked - gained) * high, volume))
        else:
            self.without_bundles += 1

    def _offload(
        self,
        pair: tuple[int, int],
        reported: Sequence[TopBundle],
        returnable: Iterator[TopBundle] | None,
        target: float,
        reason: Reason,
    ) -> tuple[float, float]:
        """Decide on the source's report, lightest first, until the target is reached.

        Returns what leaves and what is swapped back, bytes/s. One reported bundle always stays. A
        bundle that overshoots the target is taken only in exchange for bundles of the destination
        that leave both below the source's throughput. pair: source, destination. returnable: the
        destination's report, consumed across all bundles; None without a report or when swaps are
        off. target: bytes/s.
        """
        view = self.view
        most, least = pair
        source, destination = view.names[most], view.names[least]
        limit, there = float(view.throughput[most]), float(view.throughput[least])
        marked, gained, remaining = 0.0, 0.0, len(reported)
        for top in reported:
            is_free = top.is_own and not top.is_held
            if not is_free or not view.admits(top.bundle, destination):
                continue
            if remaining <= 1:
                break
            if top.throughput == 0:
                continue
            swapped: list[TopBundle] | None = []
            if marked - gained + top.throughput > target:
                left = limit - marked + gained - top.throughput
                taken = there + marked - gained + top.throughput
                swapped = self._swap(returnable, source, limit, (left, taken))
            if swapped is None:
                break
            back = 0.0
            for other in swapped:
                self._decide(other.bundle, destination, source, reason)
                back += other.throughput
            if self.config.count_swapped_back:
                gained += back
            planned = destination if self.config.is_destination_planned else ""
            self._decide(top.bundle, source, planned, reason)
            marked += top.throughput
            remaining -= 1
        return marked, gained

    def _swap(
        self,
        returnable: Iterator[TopBundle] | None,
        source: str,
        limit: float,
        levels: tuple[float, float],
    ) -> list[TopBundle] | None:
        """Return bundles to take back, or None.

        The source must end at or above the destination and below BALANCED_SHARE of its load.
        Bundles tried are used up even if the swap fails. `check_swapped_back` leaves out those that
        may not move. limit: the source's throughput. levels: of source and destination before.
        """
        swapped, (high, low) = [], levels
        for top in returnable or ():
            if not self.view.admits(top.bundle, source) or top.throughput == 0:
                continue
            new_high, new_low = high + top.throughput, low - top.throughput
            if not (new_high < limit and new_low < limit):
                continue
            swapped.append(top)
            high, low = new_high, new_low
            if low <= high < limit * BALANCED_SHARE:
                return swapped
        return None

    def _decide(self, bundle: str, source: str, destination: str, reason: Reason) -> None:
        self.decisions.append(
            TransferDecision(source=source, bundle=bundle, destination=destination, reason=reason)
        )

    def _move_load(self, most: float, least: float, moved: float) -> None:
        """Predict the deviation after `moved` of load left a broker at `most`."""
        self.squares -= most * most + least * least
        left, taken = most - moved, least + moved
        left = max(left, 0.0)  # NaN stays, as in Java
        self.squares += left * left + taken * taken
        self.std = java_sqrt(abs(self.squares / self.count - self.average * self.average))
        self.pairs += 1
        self.coldest += 1


STATS_COLUMNS = 8
TOPICS, SESSIONS = 4, 5


def transfer_view(
    snapshot: Snapshot, owned: OwnerIndex, filters: FilterConfig, limit: int, *, with_policies: bool
) -> TransferView:
    """Return the view of a snapshot, brokers in its order.

    Filters are the extensible manager's. A broker without a report is registered without load data,
    which ends the cycle. limit: bundles per report. with_policies: also bundles with policies.
    """
    brokers, bundles = snapshot.brokers, snapshot.bundles
    index, nothing = candidate_index(snapshot), np.zeros(0, dtype=np.int64)
    pipeline = FilterPipeline.of(snapshot, index, replace(filters, pipeline=EXTENSIBLE), nothing)
    number = {name: at for at, name in enumerate(brokers.names)}
    row_of: dict[str, int] = {}  # of the bundles reported so far

    def report(broker: str) -> Sequence[TopBundle]:
        """The heaviest bundles of a broker by short-term averages, lightest first."""
        rows = owned.of(number[broker])
        if not with_policies:
            rows = rows[~index.has_policy[bundles.namespace[rows]]]
        stats = np.zeros((len(rows), STATS_COLUMNS))
        stats[:, :TOPICS] = bundles.short[rows]
        stats[:, TOPICS] = bundles.topics[rows]
        stats[:, SESSIONS] = bundles.sessions[rows]
        is_busy = has_throughput(stats)
        rows = rows[is_busy][top_bundles(stats[is_busy], limit)]
        row_of.update((bundles.names[row], row) for row in rows.tolist())
        columns = (rows.tolist(), throughput(bundles.short[rows]).tolist())
        return [
            TopBundle(
                bundle=bundles.names[row], throughput=volume, is_held=not bundles.can_move[row]
            )
            for row, volume in zip(*columns, strict=True)
        ]

    def admits(bundle: str, broker: str) -> bool:
        """True if the broker passes the extensible manager's filters for the bundle."""
        narrowed = pipeline.candidates(FilterQuestion(bundle=row_of[bundle]))
        return not narrowed.is_failed and number[broker] in narrowed.left

    reported = np.flatnonzero(brokers.updated_at_ms > 0)
    return TransferView(
        names=tuple(brokers.names[at] for at in reported.tolist()),
        load=brokers.weighted_max_ema[reported],
        throughput=throughput(brokers.traffic[reported]),
        throughput_ema=brokers.throughput_ema[reported],
        updated_at_ms=brokers.updated_at_ms[reported],
        registered=frozenset(brokers.names),
        report=report,
        admits=admits,
    )


def run_transfer(cycle: ShedCycle) -> tuple[Shed, PlanState]:
    """Return the strategy's answer for the brokers that take part, and the next state.

    Without a new report of the hottest or the coldest broker, nothing is hit.
    """
    view, config = cycle.view, cycle.config.transfer
    before, active = cycle.state.transfer, frozenset(cycle.everyone)
    cooling = {name: at for name, at in before.unloaded_brokers.items() if name in active}
    state = replace(before, unloaded_brokers=cooling)
    load = view.snapshot.brokers.weighted_max_ema
    if len(load) and not (
        view.has_new_report[int(load.argmax())] or view.has_new_report[int(load.argmin())]
    ):
        nothing = Shed(selections=(), state=ShedState(), reason="HitCount")
        return nothing, replace(cycle.state, transfer=state)
    store = transfer_view(
        view.snapshot,
        view.owned,
        cycle.config.filters,
        cycle.config.signals.top_bundles,
        with_policies=config.shed_bundles_with_policies,
    )
    outcome, state = find_transfers(store, state, config, cycle.now_ms)
    shed = Shed(
        selections=_selections(view, outcome, state),
        state=ShedState(),
        reason="" if outcome.reason is None else outcome.reason.value,
        columns={"score": load},
        numbers={
            "average": state.load_avg,
            "deviation": state.load_std,
            "target": config.target_std,
            "hits": float(state.hits),
        },
    )
    return shed, replace(cycle.state, transfer=state)


def _selections(
    view: ShedView, outcome: TransferOutcome, state: TransferState
) -> tuple[Selection, ...]:
    """Return a selection per pair of brokers and reason, in the order decided."""
    groups: dict[tuple[str, str, str], list[TransferDecision]] = {}
    for decision in outcome.decisions:
        key = (decision.source, decision.destination, decision.reason.value)
        groups.setdefault(key, []).append(decision)
    bundles, load = view.snapshot.bundles, view.snapshot.brokers.weighted_max_ema
    rows = bundles.rows_of(decision.bundle for decision in outcome.decisions)
    brokers = {name: at for at, name in enumerate(view.snapshot.brokers.names)}
    numbers = {"predicted_deviation": outcome.final_std, "deviation": state.load_std}
    found = []
    for (source, destination, reason), decisions in groups.items():
        taken = np.array([rows[decision.bundle] for decision in decisions], dtype=np.int64)
        shown = {**numbers, "score": float(load[brokers[source]])}
        if destination:
            shown["score_of_destination"] = float(load[brokers[destination]])
        found.append(
            Selection(
                source=brokers[source],
                destination=brokers.get(destination, -1),
                candidates=taken,
                traffic=throughput(bundles.short[taken]),
                is_taken=np.ones(len(taken), dtype=np.bool_),
                reason=reason,
                numbers=shown,
            )
        )
    return tuple(found)


def transfer_trigger(view: ShedView, state: TransferState, config: TransferConfig) -> TriggerStatus:
    """Return the deviation of all scores, shown at the hottest broker."""
    load = view.snapshot.brokers.weighted_max_ema
    hits = np.full(len(load), state.hits, dtype=np.int64)
    level = one_level(100.0 * config.target_std, config.hit_count_threshold + 1, hits)
    measure = "deviation of all brokers' scores, in points"
    return status_of_hottest(measure, load, 100.0 * state.load_std, level)
