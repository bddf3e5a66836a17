"""Slow reference models of splits, and exact moves by a solver."""

from collections.abc import Callable, Mapping, Sequence

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange
from lbcore.plan.phases.split import ATTEMPTS_PER_SPLIT
from lbcore.plan.snapshot import Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.split.boundaries import CutRequest, RangeCut, find_cut
from lbcore.plan.split.decision import UNSPLITTABLE, SplitReason, SplitState, SplitVerdict


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
