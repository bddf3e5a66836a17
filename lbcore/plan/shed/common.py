"""Shared parts of shedding strategies: input, result, selection of bundles, hits.

Source: Pulsar 4.0.8 OverloadShedder, ThresholdShedder, UniformLoadShedder, AvgShedder; hits after
PIP-364, whose trial values are 10 points × 5 hits and 40 points × 1 hit.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.config.shedding import SheddingConfig
from lbcore.plan.snapshot import NOBODY, Bools, Floats, Ints, Snapshot, message_rate, throughput
from lbcore.signals.cost import NO_EVIDENCE, Evidence

MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Bundles taken from a hot broker, to find out whether that helps.

    usage, traffic: of the broker then, points and msg/s or bytes/s. rounds: consecutive ineffective
    rounds. is_open: the outcome of the last one is unknown. Of a full broker also gone, count: load
    and number of the bundles that left it at gone_ms; demand_factor: the factor assumed then.
    """

    usage: float
    traffic: float
    rounds: int = 0
    is_open: bool = True
    gone: float = 0.0
    count: int = 0
    demand_factor: float = 0.0
    gone_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedState:
    """State of shedding between cycles; plain data, empty at the start.

    ema: broker → average of its weighted usage (threshold). hits_low, hits_high: broker →
    consecutive hits of the low and of the high threshold (avg, multi_hit; ballast, where hits below
    the level are negative). destinations: bundle → broker that avg chose for it. evidence: costs
    that ballast has learnt. reliefs: broker → outcome of the last bundles that ballast took from
    it. crowded: partitioned topic → consecutive rounds in which ballast found it on too few
    brokers.
    """

    ema: Mapping[str, float] = field(default_factory=dict)
    hits_low: Mapping[str, int] = field(default_factory=dict)
    hits_high: Mapping[str, int] = field(default_factory=dict)
    destinations: Mapping[str, str] = field(default_factory=dict)
    evidence: Evidence = NO_EVIDENCE
    reliefs: Mapping[str, Relief] = field(default_factory=dict)
    crowded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferState:
    """State of the transfer shedder between cycles.

    hits: consecutive cycles that wanted to shed. load_avg, load_std: last published statistics.
    unloaded_brokers: broker → end of its last unload, ms; entries leave once load data is older
    than the shedding delay.
    """

    hits: int = 0
    load_avg: float = 0.0
    load_std: float = 0.0
    unloaded_brokers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerIndex:
    """Bundle rows grouped by owner: broker b's are rows[start[b] : start[b + 1]]."""

    rows: Ints
    start: Ints

    def of(self, broker: int) -> Ints:
        """The rows of one broker's bundles, in table order."""
        return self.rows[self.start[broker] : self.start[broker + 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedView:
    """Input of a shedder.

    usage: float64[n], weighted usage of each broker, 1.0 = 100 %. has_new_report: bool[n], brokers
    whose hits and averages may advance in this cycle. keys: one text per bundle row, by which avg
    remembers its destination. gave, took: brokers that keep that role for now. weighted: float64[n,
    resources], percent times weight; None = as reported. admitted: brokers that filters admit for a
    bundle, as its row int64[m] of bool[rows, n]; None = every broker for every bundle. usage_lags:
    usages are not current. grace_ms: time after a move until the price of the next one is back to
    normal.

    broker_share: share of the cluster's brokers. Below 1 it is one isolation group, which gets that
    share of all search steps; costs learnt from all brokers are already in the state.
    """

    snapshot: Snapshot
    usage: Floats
    has_new_report: Bools
    owned: OwnerIndex
    keys: Sequence[str]
    now_ms: int = 0
    gave: frozenset[str] = frozenset()
    took: frozenset[str] = frozenset()
    weighted: Floats | None = None
    admitted: tuple[Ints, Bools] | None = None
    usage_lags: bool = False
    grace_ms: int = 0
    broker_share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Bundles that one broker shall give up, and the others that were candidates.

    source, destination: broker indices, destination -1 = placement decides. candidates: int64[k],
    the eligible rows, most traffic first. traffic: float64[k], theirs (msg/s or bytes/s). is_taken:
    bool[k]. numbers: what decided, by name.
    """

    source: int
    destination: int = -1
    candidates: Ints
    traffic: Floats
    is_taken: Bools
    reason: str
    numbers: Mapping[str, float]

    @property
    def rows(self) -> Ints:
        """The rows that go, most traffic first."""
        return self.candidates[self.is_taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class TooBig:
    """Bundles to divide because no move can place them: k rows of the bundle table.

    excess: float64[k], load as a multiple of what a part may have. by_rate: bool[k], load is
    messages, else bytes. stays: bool[k], parts stay with the owner, because their load elsewhere is
    unknown.
    """

    rows: Ints
    excess: Floats
    by_rate: Bools
    stays: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Shed:
    """A strategy's answer: selections in order, its next state, its numbers.

    reason: of an empty answer, else "". columns: name → float64[n], a number a broker. numbers:
    name → number of the whole cycle. verdicts: broker index → reason it gave nothing. too_big: for
    the split phase, None = nothing (only ballast fills it). detail: error of a custom strategy, as
    a sentence.
    """

    selections: tuple[Selection, ...]
    state: ShedState
    reason: str = ""
    columns: Mapping[str, Floats] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    verdicts: Mapping[int, str] = field(default_factory=dict)
    too_big: TooBig | None = None
    detail: str = ""


def owner_index(snapshot: Snapshot) -> OwnerIndex:
    """The bundles grouped by owner, table order within a broker. O(bundles)."""
    brokers = len(snapshot.brokers.names)
    owner = snapshot.bundles.owner
    small = np.int16 if brokers < np.iinfo(np.int16).max else np.int64
    order = np.argsort(owner.astype(small), kind="stable")
    counts = np.bincount(owner + 1, minlength=brokers + 1)
    start = np.cumsum(counts)
    return OwnerIndex(rows=order, start=start)


def eligible_by_traffic(view: ShedView, broker: int, *, by_rate: bool) -> tuple[Ints, Floats]:
    """Return (rows, traffic) of a broker's movable bundles, most traffic first.

    Short-term traffic; equal ones in table order.
    """
    bundles = view.snapshot.bundles
    rows = view.owned.of(broker)
    rows = rows[bundles.can_move[rows]]
    short = bundles.short[rows]
    traffic = message_rate(short) if by_rate else throughput(short)
    order = np.argsort(-traffic, kind="stable")
    return rows[order], traffic[order]


def take_within(traffic: Floats, budget: float) -> Bools:
    """Return the rows that fit, one after the other, into the budget.

    A row fits if 0 < traffic <= what is left of the budget. traffic: descending. O(taken x log k).
    """
    is_taken = np.zeros(len(traffic), dtype=np.bool_)
    falling = (-traffic).tolist()
    positive = int(np.count_nonzero(traffic > 0))
    at = 0
    while True:
        at = bisect_left(falling, -budget, at, positive)
        if at >= positive:
            return is_taken
        is_taken[at] = True
        budget -= -falling[at]
        at += 1


def select_at_least(
    view: ShedView, broker: int, minimum: float, numbers: Mapping[str, float]
) -> Selection | str:
    """Return the leading bundles worth `minimum` bytes/s, or the verdict why none go.

    At least one goes; their sum may be above it. A broker with one bundle gives nothing. numbers:
    what decided; `minimum` is added.
    """
    count = int(view.snapshot.brokers.bundle_count[broker])
    if count <= 1:
        return "sole_bundle" if count else "no_bundles"
    rows, traffic = eligible_by_traffic(view, broker, by_rate=False)
    if not len(rows):
        return "no_eligible_bundle"
    return Selection(
        source=broker,
        candidates=rows,
        traffic=traffic,
        is_taken=np.concatenate([[True], np.cumsum(traffic)[:-1] < minimum]),
        reason="Overloaded",
        numbers={**numbers, "minimum": minimum},
    )


def reason_for_none(is_hot: Bools, is_ready: Bools) -> str:
    """Return the reason of an answer without selections.

    is_hot: bool[n], beyond the threshold. is_ready: bool[n], with the hits to act.
    """
    if not is_hot.any():
        return "NoOverloadedBroker"
    return "NoBundles" if (is_hot & is_ready).any() else "HitCount"


def multi_hit_gate(
    view: ShedView, state: ShedState, excess: Floats, would_act: Bools, config: SheddingConfig
) -> tuple[Bools, ShedState]:
    """Return the brokers that may shed, bool[n], and the state with this cycle's hits.

    A counter grows with each fresh observation beyond its threshold; one within the threshold drops
    it. A broker above the average may shed when its own counter is full, or that of one below the
    average. Once a broker sheds, its counters are reset, and the full ones of cold brokers. excess:
    float64[n], points above the average. would_act: bool[n], brokers that shed if they may.
    """
    names, distance = view.snapshot.brokers.names, np.abs(excess)
    low, high = dict(state.hits_low), dict(state.hits_high)
    for broker in np.flatnonzero(view.has_new_report).tolist():
        name, far = names[broker], float(distance[broker])
        for hits, least in (
            (low, config.multi_hit_low_percent),
            (high, config.multi_hit_high_percent),
        ):
            if far >= least:
                hits[name] = hits.get(name, 0) + 1
            else:
                hits.pop(name, None)
    is_full = np.array(
        [
            low.get(name, 0) >= config.multi_hit_low_hits
            or high.get(name, 0) >= config.multi_hit_high_hits
            for name in names
        ],
        dtype=np.bool_,
    )
    is_cold = is_full & (excess < 0)
    is_above = excess >= min(config.multi_hit_low_percent, config.multi_hit_high_percent)
    is_ready = is_above & (is_full | is_cold.any())
    acts = is_ready & would_act
    reset = np.flatnonzero(acts | is_cold).tolist() if acts.any() else []
    spent = {names[broker] for broker in reset}
    low = {name: count for name, count in low.items() if name not in spent}
    high = {name: count for name, count in high.items() if name not in spent}
    return is_ready, replace(state, hits_low=low, hits_high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLevel:
    """Condition for shedding: at least `threshold` in `needed` reports in a row.

    threshold: float64[n], in the measure's unit. hits: int64[n], in a row so far.
    """

    threshold: Floats
    needed: int
    hits: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerStatus:
    """Distance of each of n brokers from shedding, under one strategy.

    The decision log keeps the brokers that are near: it answers "why is this one not relieved?"
    with numbers.

    measure: what the number is. number: float64[n], NaN = this broker is not judged. partner:
    int64[n], the broker that it is compared with, -1 = none. levels: any one of them suffices.
    """

    measure: str
    number: Floats
    partner: Ints
    levels: tuple[TriggerLevel, ...]

    def nearness(self) -> Floats:
        """Return the progress towards the nearest level, float64[n]; NaN = not judged.

        The number as a share of the threshold, up to 1, plus the share of the needed hits.
        """
        found = np.full(len(self.number), np.nan)
        for level in self.levels:
            share = np.clip(self.number / np.maximum(level.threshold, 1e-9), 0.0, 1.0)
            found = np.fmax(found, share + level.hits / max(level.needed, 1))
        return np.where(np.isnan(self.number), np.nan, found)

    def for_all_brokers(self, original: Ints, brokers: int) -> "TriggerStatus":
        """Return the status of all brokers, of which these n are judged.

        original: int64[n], ascending, each broker's index among all.
        """

        def spread(values: NDArray[Any], others: float) -> NDArray[Any]:
            found = np.full(brokers, others)
            found[original] = values
            return found

        return TriggerStatus(
            measure=self.measure,
            number=spread(self.number, np.nan),
            partner=spread(np.append(original, NOBODY)[self.partner], NOBODY),
            levels=tuple(
                TriggerLevel(
                    threshold=spread(level.threshold, np.inf),
                    needed=level.needed,
                    hits=spread(level.hits, 0),
                )
                for level in self.levels
            ),
        )

    def of(self, broker: int) -> Iterator[Mapping[str, float]]:
        """Each level's numbers for one broker."""
        for level in self.levels:
            yield {
                "threshold": float(level.threshold[broker]),
                "hits": int(level.hits[broker]),
                "needed": level.needed,
            }


def multi_hit_levels(
    view: ShedView, state: ShedState, config: SheddingConfig, average: float, floor: float
) -> tuple[TriggerLevel, ...]:
    """Return the levels of rules that compare each broker with one number, in percent.

    Without multi_hit one level at `floor`; with it two above `average`, each with hits in a row.
    """
    if not config.multi_hit:
        return (one_level(floor, 1, np.zeros(len(view.usage), dtype=np.int64)),)
    low, high = hit_counts(view, state.hits_low), hit_counts(view, state.hits_high)
    low_floor = max(floor, average + config.multi_hit_low_percent)
    high_floor = max(floor, average + config.multi_hit_high_percent)
    return (
        one_level(low_floor, config.multi_hit_low_hits, low),
        one_level(high_floor, config.multi_hit_high_hits, high),
    )


def no_partners(count: int) -> Ints:
    """Return partners where no broker is compared with another, int64[count]."""
    return np.full(count, NOBODY, dtype=np.int64)


def one_level(threshold: float, needed: int, hits: Ints) -> TriggerLevel:
    """A level that is the same for all brokers."""
    return TriggerLevel(threshold=np.full(len(hits), threshold), needed=needed, hits=hits)


def hit_counts(view: ShedView, hits: Mapping[str, int]) -> Ints:
    """Return the hits of each broker, int64[n]."""
    return np.array([hits.get(name, 0) for name in view.snapshot.brokers.names], dtype=np.int64)


def status_of_hottest(
    measure: str, load: Floats, number: float, level: TriggerLevel
) -> TriggerStatus:
    """Return the status of a rule that judges the broker with most load only.

    Its partner is the broker with least load.
    """
    numbers, partner = np.full(len(load), np.nan), no_partners(len(load))
    if len(load):
        numbers[int(np.argmax(load))] = number
    if len(load) > 1:
        partner[int(np.argmax(load))] = int(np.argmin(load))
    return TriggerStatus(measure=measure, number=numbers, partner=partner, levels=(level,))
