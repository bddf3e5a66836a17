"""Slow reference models of splits, and exact moves by a solver."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from lbcore.bounds.moves import Brokers, Course, Floats, leaving
from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange, InvalidRangeError
from lbcore.plan.phases.split import ATTEMPTS_PER_SPLIT
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.split.boundaries import CutRequest, RangeCut, find_cut
from lbcore.plan.split.decision import UNSPLITTABLE, SplitReason, SplitState, SplitVerdict


def slow_find(ranges: Sequence[BundleRange], topic_hash: int) -> int:
    """The index of the one range that includes the hash, by trying each."""
    found = [index for index, each in enumerate(ranges) if each.includes(topic_hash)]
    if len(found) != 1:
        raise InvalidRangeError(f"{topic_hash:#x} must be in one range, is in {found}")
    return found[0]


def slow_flow_or_qps(
    loads: Sequence[tuple[int, float, float]], config: Splitting
) -> list[int] | None:
    """Cuts whenever the topics since the last cut, with the next one, exceed a limit.

    loads: (hash, msg/s, bytes/s), the hashes all different.
    """
    ordered = sorted(load for load in loads if load[1] > 0 or load[2] > 0)
    factor = 1 + config.flow_or_qps_tolerance_percent / 100
    in_order = [load for load in loads if load in ordered]
    is_calm = (
        sum(load[1] for load in in_order) < config.max_msg_rate_per_s * factor
        and sum(load[2] for load in in_order) < config.max_throughput_bytes_per_s * factor
    )
    if len(loads) < 2 or len(ordered) < 2 or is_calm:
        return None
    cuts: list[int] = []
    part = [ordered[0]]
    for load in ordered[1:]:
        joined = [*part, load]
        if (
            sum(each[1] for each in joined) > config.max_msg_rate_per_s
            or sum(each[2] for each in joined) > config.max_throughput_bytes_per_s
        ):
            cuts.append((part[-1][0] + load[0]) // 2 + 1)
            part = [load]
        else:
            part = joined
    return cuts


def slow_load_boundaries(weights: Mapping[int, float], parts: int) -> list[int]:
    """For each equal share the gap between two hashes nearest to it, the lower one of two."""
    places = sorted(weights)
    gaps = range(len(places) - 1)
    total = sum(weights[place] for place in places)
    chosen: set[int] = set()
    for share in range(1, parts) if len(places) > 1 else ():
        goal = total * share / parts
        distance = {
            gap: abs(sum(weights[place] for place in places[: gap + 1]) - goal) for gap in gaps
        }
        chosen.add(min(gaps, key=lambda gap: (distance[gap], gap)))
    return [(places[gap] + places[gap + 1]) // 2 + 1 for gap in sorted(chosen)]


def slow_excess(snapshot: Snapshot, at: int, config: Splitting) -> tuple[SplitReason | None, float]:
    """The first limit that one bundle is over, None for none, and its highest value / limit."""
    bundles = snapshot.bundles
    average = (bundles.long if config.averages == "long" else bundles.short)[at].tolist()
    limits: list[tuple[SplitReason, float, float]] = [
        (SplitReason.TOPICS, float(bundles.topics[at]), config.max_topics),
        (SplitReason.SESSIONS, float(bundles.sessions[at]), config.max_sessions),
        (SplitReason.MSG_RATE, average[0] + average[1], config.max_msg_rate_per_s),
        (SplitReason.BANDWIDTH, average[2] + average[3], config.max_throughput_bytes_per_s),
    ]
    if config.max_sessions <= 0:
        del limits[1]
    over = [reason for reason, value, limit in limits if value > limit]
    excess = max(value / max(limit, 1) for _, value, limit in limits)
    return (over[0] if over else None), excess


def slow_decide(
    snapshot: Snapshot,
    state: SplitState,
    config: Splitting,
    topics_of: Callable[[str], TopicLoads | None],
    blocked: Sequence[bool],
) -> tuple[list[tuple[str, tuple[int, ...]]], SplitState, dict[str, SplitVerdict]]:
    """The split phase, one bundle after the other: decisions, next state, verdicts by name."""
    model = _Model(snapshot, state, config)
    for at in range(len(snapshot.bundles.names)):
        model.observe(at, is_blocked=blocked[at])
    for name in model.in_order()[: config.max_splits_per_cycle * ATTEMPTS_PER_SPLIT]:
        if len(model.decisions) == config.max_splits_per_cycle:
            break
        model.attempt(name, topics_of)
    for name, _ in model.decisions:
        del model.hits[name]
    hits = {name: count for name, count in model.hits.items() if count}
    after = SplitState(hits=hits, unsplittable=model.unsplittable, pending=model.pending)
    return model.decisions, after, model.verdicts


class _Model:
    def __init__(self, snapshot: Snapshot, state: SplitState, config: Splitting) -> None:
        self.snapshot, self.state, self.config = snapshot, state, config
        self.hits: dict[str, int] = {}
        self.verdicts: dict[str, SplitVerdict] = {}
        self.ready: dict[str, tuple[int, SplitReason, float]] = {}
        self.unsplittable: dict[str, int] = {}
        self.pending: dict[str, int] = {}
        self.decisions: list[tuple[str, tuple[int, ...]]] = []

    def observe(self, at: int, *, is_blocked: bool) -> None:
        bundles, brokers = self.snapshot.bundles, self.snapshot.brokers
        name, owner = bundles.names[at], int(bundles.owner[at])
        if is_blocked and name in self.state.pending:
            self.pending[name] = self.state.pending[name]
        reason, excess = slow_excess(self.snapshot, at, self.config)
        if reason is None:
            return
        is_fresh = owner >= 0 and bool(brokers.is_fresh[owner])
        self.hits[name] = self.state.hits.get(name, 0) + is_fresh
        namespace = name.rpartition("/")[0]
        if self.hits[name] <= self.config.hit_count_threshold:
            verdict = SplitVerdict.HIT_COUNT
        elif owner < 0:
            verdict = SplitVerdict.UNOWNED
        elif is_blocked:
            verdict = SplitVerdict.DEFERRED
        elif bundles.topics[at] < 2:
            verdict = SplitVerdict.SINGLE_TOPIC
            self.unsplittable[name] = int(bundles.topics[at])
        elif self._count(namespace) >= self.config.max_namespace_bundles:
            verdict = SplitVerdict.NAMESPACE_FULL
        else:
            verdict = SplitVerdict.CYCLE_LIMIT
            self.ready[name] = (at, reason, excess)
            if self.state.unsplittable.get(name) == bundles.topics[at]:
                verdict = SplitVerdict.SINGLE_HASH
                self.unsplittable[name] = int(bundles.topics[at])
        self.verdicts[name] = verdict

    def in_order(self) -> list[str]:
        return sorted(
            self.ready,
            key=lambda name: (name in self.unsplittable, -self.ready[name][2], self.ready[name][0]),
        )

    def attempt(self, name: str, topics_of: Callable[[str], TopicLoads | None]) -> None:
        at, reason, excess = self.ready[name]
        namespace, _, text = name.rpartition("/")
        room = self.config.max_namespace_bundles - self._count(namespace)
        room -= sum(more for each, more in self.pending.items() if each.startswith(f"{namespace}/"))
        self.unsplittable.pop(name, None)
        if room < 1:
            self.verdicts[name] = SplitVerdict.NAMESPACE_FULL
            return
        request = CutRequest(
            target=BundleRange.parse(text),
            topics=topics_of(name),
            reason=reason,
            excess=excess,
            max_parts=min(self.config.max_children, room + 1),
        )
        found = find_cut(request, self.config)
        if isinstance(found, RangeCut):
            self.decisions.append((name, found.boundaries))
            self.pending[name] = len(found.boundaries)
            self.verdicts[name] = SplitVerdict.SPLIT
            return
        self.verdicts[name] = found
        if found in UNSPLITTABLE:
            self.unsplittable[name] = int(self.snapshot.bundles.topics[at])

    def _count(self, namespace: str) -> int:
        return sum(name.rpartition("/")[0] == namespace for name in self.snapshot.bundles.names)


NODES_MAX = 2_000
_GAP = 1e-6


def exact_moves(course: Course, times: Sequence[int]) -> int | None:
    """The fewest moves that hold the bar at these times, in this order; None: nobody can.

    Times that are left out only make it fewer, so it is a lower bound for all of them.
    """
    if not times:
        return 0
    model = _model()
    bundles, brokers = len(course.first), len(course.capacity)
    limits = course.limits()
    moved: list[Any] = []
    before: list[list[Any]] | None = None
    for at in times:
        where = [[model.addBinary() for _ in range(brokers)] for _ in range(bundles)]
        for bundle in range(bundles):
            model.addConstr(sum(where[bundle]) == 1)
            moved.append(model.addVariable(lb=0.0, ub=1.0))
            _count_move(
                model, moved[-1], where[bundle], (before, int(course.first[bundle]), bundle)
            )
        for broker in range(brokers):
            _hold(model, course, (at, broker), [where[b][broker] for b in range(bundles)], limits)
        before = where
    model.minimize(sum(moved))
    if str(model.getModelStatus()).endswith("kInfeasible"):
        return None
    return max(0, math.ceil(_bound(model) - _GAP))


def worst_times(course: Course, counts: NDArray[np.bool_]) -> list[int]:
    """Return the first of the worst times of each broker, ascending."""
    needed = leaving(course, counts)
    brokers = np.flatnonzero(needed.any(axis=0)).tolist()
    return sorted({int(np.argmax(needed[:, broker])) for broker in brokers})


def _count_move(model: Any, moved: Any, where: Sequence[Any], since: Any) -> None:
    """`moved` is 1 where the bundle is elsewhere than it was."""
    before, first, bundle = since
    if before is None:
        if first >= 0:
            model.addConstr(moved + where[first] >= 1)
        return
    for broker, here in enumerate(where):
        model.addConstr(moved - here + before[bundle][broker] >= 0)


def _hold(
    model: Any, course: Course, place: tuple[int, int], own: Sequence[Any], limits: Floats
) -> None:
    """Keep a broker under its limit at a time; empty, where it is gone."""
    at, broker = place
    if not course.is_there[at, broker]:
        model.addConstr(sum(own) == 0)
        return
    room = (float(limits[at]) - float(course.foreign[broker])) * float(course.capacity[broker])
    load = sum(float(weight) * here for weight, here in zip(course.weights[at], own, strict=True))
    model.addConstr(load <= room * (1.0 + 1e-9))


def _model() -> Any:
    """An empty, silent model whose search is the same each time."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for name, value in (("threads", 1), ("random_seed", 0), ("mip_max_nodes", NODES_MAX)):
        model.setOptionValue(name, value)
    return model


def _bound(model: Any) -> float:
    return float(model.getInfo().mip_dual_bound)


def exact_highest(weights: Floats, brokers: Brokers) -> float:
    """In percent; a lower bound where the search ends early, by its limit of nodes."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for name, value in (("threads", 1), ("random_seed", 0), ("mip_max_nodes", 2_000)):
        model.setOptionValue(name, value)
    count, places = len(weights), range(len(brokers.capacity))
    where = [[model.addBinary() for _ in places] for _ in range(count)]
    highest = model.addVariable(lb=float(brokers.foreign.max()))
    for bundle in range(count):
        model.addConstr(sum(where[bundle]) == 1)
    for broker in places:
        scale = 1.0 / float(brokers.capacity[broker])
        own = sum(float(weights[b]) * scale * where[b][broker] for b in range(count))
        model.addConstr(own + float(brokers.foreign[broker]) <= highest)
    model.minimize(highest)
    return float(model.getInfo().mip_dual_bound)
