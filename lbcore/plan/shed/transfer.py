"""Shedding from the most to the least loaded brokers, until the deviation of load is on target.

Decides which bundles move between which brokers in one cycle, bit for bit as Pulsar; not whether a
cycle runs, nor the limits over all strategies. Runs in the plan's shed phase when the strategy is
`transfer`. Source: Pulsar 4.0.8 TransferShedder.findBundlesForUnloading.

The order of the brokers decides ties: the planner gives name order, Pulsar has its hash map's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lbcore.config.transfer import TransferConfig
from lbcore.plan.shed.transfer_pair import Offload, Pair, PairMove
from lbcore.plan.shed.transfer_stats import LoadStats, java_divide, survey
from lbcore.plan.shed.transfer_types import (
    Label,
    PairTrace,
    Reason,
    TopBundle,
    TransferDecision,
    TransferOutcome,
    TransferState,
    TransferView,
)

UNDERLOADED_SHARE_MAX = 0.5


def find_transfers(
    view: TransferView, state: TransferState, config: TransferConfig, now_ms: int
) -> tuple[TransferOutcome, TransferState]:
    """One cycle of TransferShedder: its decisions or why there are none, and the next state.

    O(n log n) for n brokers, plus the reports of the brokers that are paired.
    """
    if view.registered is None:
        return _ended(Label.FAILURE, Reason.UNKNOWN, state, 0.0)
    found = survey(view, view.registered, state.unloaded_brokers, config, now_ms)
    state = replace(state, unloaded_brokers=found.unloaded_brokers)
    if found.stats is None:
        return _ended(Label.SKIP, found.reason or Reason.UNKNOWN, state, 0.0)
    state = replace(state, load_avg=found.stats.average, load_std=found.stats.std)
    cycle = _Cycle(view=view, config=config, stats=found.stats)
    hits = 0 if cycle.wanted() is None else state.hits + 1
    state = replace(state, hits=hits)
    if hits <= config.hit_count_threshold:
        return _ended(Label.SKIP, Reason.HIT_COUNT, state, found.stats.std)
    return _shed(cycle, state)


def _shed(cycle: "_Cycle", state: TransferState) -> tuple[TransferOutcome, TransferState]:
    """Pair brokers until nothing is wanted any more; hits start again after any decision."""
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
class _Cycle:
    """One pass over the brokers, from both ends of the order of load."""

    view: TransferView
    config: TransferConfig
    stats: LoadStats
    decisions: list[TransferDecision] = field(default_factory=list)
    traces: list[PairTrace] = field(default_factory=list)
    without_data: int = 0
    without_bundles: int = 0

    def run(self) -> None:
        """Pair the hottest broker left with the coldest; a hot one is used up whatever happens."""
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
        """The coldest broker left is far below the average, or below the hottest's throughput."""
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
        """The pair, and the load of either broker. Target: half the difference, in throughput."""
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
