"""Ballast's strategy: brings brokers to the ideal load by search on an objective.

Bundles that no move can place are divided. Placement by `ballast` has the same aim. A broker
that is a tolerance away from the ideal load (`level`) in several observations is *triggered*; a
search (`ballast_search`) then lowers the objective until no move is worth its price.

Guarantees, held by `tests/property/test_planner.py`: a round lowers the objective by more than its
moves cost; it moves at most the budget and one bundle; a cluster within the tolerance moves
nothing but partitions of crowded topics; with unchanging load the moves come to an end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.shedding import IdealLoadConfig
from lbcore.plan.shed.ballast_problem import (
    SUSPENDED,
    BallastRound,
    are_suspended,
    checked_reliefs,
    deviation_of,
    measure_round,
    recorded_costs,
    with_reliefs,
)
from lbcore.plan.shed.ballast_search import Found, crowded_topics, search
from lbcore.plan.shed.common import (
    Selection,
    Shed,
    ShedState,
    ShedView,
    TooBig,
    TriggerStatus,
    hit_counts,
    no_partners,
    one_level,
)
from lbcore.plan.snapshot import Bools, Ints, Partitions, sequential_sum

CROWDED = "Crowded"
"""Reason of a move that spreads a topic's partitions, whatever the load."""
_HALVES = 2.0
_NEAR = 0.25
"""Distance from the level, in tolerances, at which a broker is no longer triggered."""
STEPS = 1_000
"""Steps of the search in a round; as many bundles move in a cycle at most, by default."""


def shed_ballast(
    view: ShedView, state: ShedState, config: IdealLoadConfig, can_divide: Bools | None = None
) -> Shed:
    """Return the bundles that leave hot brokers, as far as that pays.

    A broker a tolerance above or below the level has a hit; when its counter is full, it gives,
    or others give to it. Brokers that have had too many of a topic's partitions for `low_hits`
    rounds give too. O(bundles + brokers), and `STEPS` steps of the search at most. can_divide: of
    `ballast_problem.divisible`.
    """
    round_ = measure_round(view, state, config, can_divide)
    low, high = _count_hits(round_, config)
    is_triggered = (np.abs(low) >= config.low_hits) | (np.abs(high) >= config.high_hits)
    partitions = view.snapshot.partitions()
    state, crowded = _crowded(view, partitions, round_.state, config)
    is_hot = round_.deviation >= round_.tolerance
    state = replace(state, reliefs=checked_reliefs(view, state, round_.readings, is_hot))
    numbers = {"level": round_.level, "tolerance": round_.tolerance, **recorded_costs(round_.costs)}
    selections: tuple[Selection, ...] = ()
    verdicts: dict[int, str] = {}
    too_big: Ints = np.zeros(0, dtype=np.int64)
    halved: list[int] = []
    if is_triggered.any() or crowded:
        is_suspended = are_suspended(view, state, config.max_ineffective_rounds)
        problem = round_.problem(is_triggered, is_suspended, partitions, crowded)
        found = search(problem, math.ceil(STEPS * view.broker_share), _budget(round_, config))
        outcome = _TriggeredRound(
            round_=round_, config=config, is_triggered=is_triggered, hits=(low, high), found=found
        )
        selections, verdicts = outcome.selections(), outcome.verdicts()
        too_big, halved = outcome.too_big()
        verdicts |= dict.fromkeys(np.flatnonzero(is_suspended & is_hot).tolist(), SUSPENDED)
        low, high = outcome.remaining_hits()
        rows = np.array([row for row, _ in found.moves], dtype=np.int64)
        reliefs = with_reliefs(view, state.reliefs, round_.readings, rows, round_.broker_factor)
        state = replace(state, reliefs=reliefs)
        numbers |= {
            "objective_before": found.before,
            "objective_after": found.after,
            "objective_bound": found.bound,
            "steps": float(found.steps),
            f"stopped_{found.stopped}": 1.0,  # what ended the search: done, steps or budget
            **dict(zip(_BEYOND, map(float, found.beyond or ()), strict=False)),
        }
    reason = "HitCount" if low.any() or state.crowded else "NoOverloadedBroker"
    reason = "NoBundles" if is_triggered.any() else reason
    return Shed(
        selections=selections,
        state=replace(state, hits_low=_nonzero(view, low), hits_high=_nonzero(view, high)),
        reason="" if selections else reason,
        columns={
            "usage": round_.readings.usage,
            "traffic": round_.readings.traffic,
            "deviation": round_.deviation,
        },
        numbers=numbers,
        verdicts=verdicts,
        too_big=_to_divide(round_, too_big, halved, selections),
    )


def observe_ballast(view: ShedView, state: ShedState, config: IdealLoadConfig) -> ShedState:
    """Count hits in a cycle between two rounds.

    Without it, with rounds a minute apart, two hits would take two rounds. O(bundles + brokers).
    """
    round_ = measure_round(view, state, config)
    low, high = _count_hits(round_, config)
    return replace(round_.state, hits_low=_nonzero(view, low), hits_high=_nonzero(view, high))


def _budget(round_: BallastRound, config: IdealLoadConfig) -> float:
    """Return the load that the round may move, in points of a broker of mean size.

    At least the excess of the hottest broker. With few brokers that is more than the churn budget,
    and a broker relieved by half would need a second round and more moves.
    """
    part = config.churn_budget * sequential_sum(round_.load[:, 0] * round_.size)
    return max(part, float(np.max(round_.deviation * round_.size, initial=0.0)))


_BEYOND = ("partitions_beyond_before", "partitions_beyond_after")


def _crowded(
    view: ShedView, partitions: Partitions, state: ShedState, config: IdealLoadConfig
) -> tuple[ShedState, tuple[int, ...]]:
    """Return the state with counts of crowded topics, and those crowded long enough."""
    bundles, brokers = view.snapshot.bundles, len(view.snapshot.brokers.names)
    admitted = view.admitted[1].sum(axis=1)[view.admitted[0]] if view.admitted else None
    found = crowded_topics(partitions, bundles.owner, brokers, admitted)
    names = {at: partitions.name(at, bundles.namespaces) for at in found}
    news = int(view.has_new_report.any())  # some broker has a report not judged yet
    counts = {name: state.crowded.get(name, 0) + news for name in names.values()}
    lasting = tuple(at for at, name in names.items() if counts[name] >= config.low_hits)
    return replace(state, crowded=counts), lasting


def _to_divide(
    round_: BallastRound, rows: Ints, halved: Sequence[int], selections: Sequence[Selection]
) -> TooBig:
    """Return the bundles to divide, with the least number of parts of each.

    Bundles that move are left out. halved: rows to divide into two parts at least, whatever their
    load. excess: the number of parts.
    """
    moving = {row for one in selections for row in one.rows.tolist()}
    kept = np.array([row for row in rows.tolist() if row not in moving], dtype=np.int64)
    limit, demand_factor = round_.split_share * round_.level, round_.bundle_factor[kept]
    return TooBig(
        rows=kept,
        excess=np.maximum(
            demand_factor * round_.readings.bundle[kept] / max(limit, 1e-9),
            np.where(np.isin(kept, halved), _HALVES, 0.0),
        ),
        by_rate=np.full(len(kept), round_.readings.by_rate),
        stays=demand_factor > 1.0,
    )


def _count_hits(round_: BallastRound, config: IdealLoadConfig) -> tuple[Ints, Ints]:
    """Return the hits in a row of each broker, int64[n], negative below the level.

    For the small threshold (the tolerance) and the large one (high_points). A new report on the
    other side starts a new count. Within the threshold the count is reset; once it is full, only
    within a quarter of the tolerance.
    """
    view, deviation, tolerance = round_.view, round_.deviation, round_.tolerance
    side = np.sign(deviation).astype(np.int64)
    found = []
    for before, threshold, needed in (
        (round_.state.hits_low, tolerance, config.low_hits),
        (round_.state.hits_high, config.high_points, config.high_hits),
    ):
        known = hit_counts(view, before)
        kept = np.where(known * side > 0, known, 0)
        wanted = np.where(np.abs(kept) >= needed, tolerance * _NEAR, threshold)
        found.append(np.where(np.abs(deviation) >= wanted, kept + side * view.has_new_report, 0))
    return found[0], found[1]


def _nonzero(view: ShedView, hits: Ints) -> dict[str, int]:
    names = view.snapshot.brokers.names
    return {names[at]: int(hits[at]) for at in np.flatnonzero(hits).tolist()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TriggeredRound:
    """A round with a triggered broker, and the result of its search."""

    round_: BallastRound
    config: IdealLoadConfig
    is_triggered: Bools
    hits: tuple[Ints, Ints]
    found: Found

    def selections(self) -> tuple[Selection, ...]:
        """Return one selection per pair of brokers, in the order of the search."""
        bundles = self.round_.view.snapshot.bundles
        pairs: dict[tuple[int, int, bool], int] = {}
        pair_of = np.full(len(bundles.names), -1, dtype=np.int64)
        for row, taker in self.found.moves:
            pair = int(bundles.owner[row]), taker, row in self.found.crowded
            pair_of[row] = pairs.setdefault(pair, len(pairs))
        movable = {giver: self._movable(giver) for giver, _, _ in pairs}
        return tuple(
            self._selection(pair, movable[pair[0]], pair_of[movable[pair[0]]] == at)
            for pair, at in pairs.items()
        )

    def _movable(self, giver: int) -> Ints:
        """Return the giver's movable bundles, int64[k], the heaviest first."""
        own = self.round_.view.owned.of(giver)
        own = own[self.round_.view.snapshot.bundles.can_move[own]]
        return own[np.argsort(-self.round_.readings.bundle[own], kind="stable")]

    def _selection(self, pair: tuple[int, int, bool], movable: Ints, is_taken: Bools) -> Selection:
        (giver, taker, is_crowded), (low, high) = pair, self.hits
        traffic = self.round_.readings.bundle[movable]
        is_listed = (traffic > 0) | is_taken
        actor = giver if self.is_triggered[giver] and self.round_.deviation[giver] > 0 else taker
        reason = "Overloaded" if actor == giver else "Underloaded"
        return Selection(
            source=giver,
            destination=taker,
            candidates=movable[is_listed],
            traffic=traffic[is_listed],
            is_taken=is_taken[is_listed],
            reason=CROWDED if is_crowded else reason,
            numbers={
                "score": float(self.round_.load[giver].max()),
                "score_of_destination": float(self.round_.load[taker].max()),
                "by_rate": float(self.round_.readings.by_rate),
                "hits_low": float(abs(low[actor])),
                "hits_high": float(abs(high[actor])),
                "hits_low_needed": float(self.config.low_hits),
                "hits_high_needed": float(self.config.high_hits),
                "threshold_low": self.round_.tolerance,
                "threshold_high": self.config.high_points,
            },
        )

    def verdicts(self) -> dict[int, str]:
        """Return why brokers that stay too hot gave no more."""
        reason = {"done": "no_gain", "steps": "search_steps"}.get(
            self.found.stopped, "churn_budget"
        )
        return dict.fromkeys(self._still_hot().tolist(), reason)

    def _still_hot(self) -> Ints:
        hot = self.found.load.max(axis=1) - self.round_.level
        return np.flatnonzero(
            self.is_triggered & (self.round_.deviation > 0) & (hot >= self.round_.tolerance)
        )

    def too_big(self) -> tuple[Ints, list[int]]:
        """Return bundles to divide: too large, unplaceable, or too crowded.

        Then those that are unplaceable (of a hot broker, the heaviest, and no other has room for
        it) or too crowded. A division can't be undone, so it waits for all low hits.
        """
        round_, found, (low, high) = self.round_, self.found, self.hits
        has_low_hits = np.maximum(np.abs(low), np.abs(high)) >= self.config.low_hits
        rows, halved = round_.oversized_rows(has_low_hits).tolist(), [*found.too_crowded]
        still_hot = self._still_hot() if found.stopped == "done" else np.zeros(0, dtype=np.int64)
        after, most = found.load.max(axis=1), 0.0 if found.room is None else float(found.room.max())
        for broker in still_hot[has_low_hits[still_hot]].tolist():
            for row in self._movable(broker)[:1].tolist():
                if 0.0 < most < float(round_.weight[row].max()) * round_.bundle_factor[row]:
                    halved.append(row)
                part = round_.split_share * round_.level * round_.readings.capacity[broker]
                if after[broker] > round_.hot_limit and round_.readings.bundle[row] > part:
                    rows.append(row)
        return np.array(sorted({*rows, *halved}), dtype=np.int64), halved

    def remaining_hits(self) -> tuple[Ints, Ints]:
        """Return the hits after the round.

        If the search was done, triggered brokers now within the tolerance restart at 0; else all
        keep theirs.
        """
        if self.found.stopped != "done":
            return self.hits
        deviation = np.abs(deviation_of(self.found.load, self.round_.level))
        is_done = self.is_triggered & (deviation < self.round_.tolerance)
        return np.where(is_done, 0, self.hits[0]), np.where(is_done, 0, self.hits[1])


def ballast_trigger(view: ShedView, shed: Shed, config: IdealLoadConfig) -> TriggerStatus:
    """Return each broker's distance from the ideal load."""
    levels = (
        (shed.numbers["tolerance"], config.low_hits, shed.state.hits_low),
        (config.high_points, config.high_hits, shed.state.hits_high),
    )
    return TriggerStatus(
        measure="points above or below the ideal load",
        number=np.abs(shed.columns["deviation"]),
        partner=no_partners(len(view.usage)),
        levels=tuple(
            one_level(threshold, needed, np.abs(hit_counts(view, hits)))
            for threshold, needed, hits in levels
        ),
    )
