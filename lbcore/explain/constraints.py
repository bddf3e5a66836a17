"""Constraints that keep a hot broker from giving anything: found by planning again without them.

A plan is pure, so the question is put to the planner itself. A constraint matters if the same
cycle without it takes something from the broker; some hold it only together. The plan is made from
what the tables recorded: records, load, and the planner's memory.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lbcore.balancer.decisions.placement import make_snapshot, planning_config, usable_brokers
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.foresight.late_reports import count_moves
from lbcore.foresight.planning_memory import with_recalled_plan
from lbcore.foresight.rehearse import RehearsalRows, state_of
from lbcore.model.times import duration, instant
from lbcore.plan.decision import PlanConfig, PlanState, Scope
from lbcore.plan.planner import giving
from lbcore.plan.registry import resting_ms, shedding_strategy
from lbcore.plan.snapshot import Bools, Ints, Snapshot
from lbcore.validation.dynamic import in_force

_ENDLESS = 10**9
_SCOPE = Scope(splits=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """Inputs of a plan; the methods return others, or the same object where nothing differs."""

    snapshot: Snapshot
    state: PlanState
    config: PlanConfig

    def with_bundles(self, **columns: Any) -> "PlanInputs":
        """Other columns of the bundle table."""
        bundles = replace(self.snapshot.bundles, **columns)
        return replace(self, snapshot=replace(self.snapshot, bundles=bundles))

    def with_brokers(self, **columns: Any) -> "PlanInputs":
        """Other columns of the broker table."""
        if all(getattr(self.snapshot.brokers, name) is value for name, value in columns.items()):
            return self
        brokers = replace(self.snapshot.brokers, **columns)
        return replace(self, snapshot=replace(self.snapshot, brokers=brokers))

    def with_policies(self, **values: Any) -> "PlanInputs":
        """Other isolation policies or anti-affinity groups."""
        policies = self.snapshot.policies
        if not any(getattr(policies, name) for name in values):
            return self
        return replace(self, snapshot=replace(self.snapshot, policies=replace(policies, **values)))

    def with_setting(self, key: str, value: Any) -> "PlanInputs":
        """Another value of a setting. key: "section.name"."""
        section, name = key.split(".")
        strategy, before = shedding_strategy(self.config), getattr(self.config, section)
        is_read = key not in _OF_STRATEGIES or strategy.code or key in strategy.settings
        if getattr(before, name) == value or not is_read:
            return self
        changed: Any = {section: replace(before, **{name: value})}
        config: Any = self.config
        return replace(self, config=replace(config, **changed))

    def with_state(self, **values: Any) -> "PlanInputs":
        """Another memory."""
        if all(getattr(self.state, name) == value for name, value in values.items()):
            return self
        return replace(self, state=replace(self.state, **values))

    def givers(self, now_ms: int) -> frozenset[str]:
        """The brokers that give something in this cycle."""
        return giving(self.snapshot, self.state, self.config, now_ms, _SCOPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A rule that keeps bundles where they are. about: what it is; remedy: what would lift it.

    without: the inputs without it. holds: inputs, now → bool[m], the bundles that it keeps, and
    int64[m], until when, ms since 1970, 0 = until somebody ends it; None = it keeps none by name.
    """

    name: str
    about: str
    remedy: str
    without: Callable[[PlanInputs], PlanInputs]
    holds: Callable[[PlanInputs, int], tuple[Bools, Ints]] | None = None


def _rests(inputs: PlanInputs, now_ms: int) -> tuple[Bools, Ints]:
    until = _never(inputs)
    moved = inputs.state.unloaded_ms
    for name, row in inputs.snapshot.bundles.rows_of(moved).items():
        until[row] = moved[name] + resting_ms(inputs.config)
    return until >= max(now_ms, 1), until


def _cools(inputs: PlanInputs, now_ms: int) -> tuple[Bools, Ints]:
    bundles, cool_down_ms = inputs.snapshot.bundles, inputs.config.shedding.cool_down_ms
    until = _never(inputs)
    if bundles.moved_ms is not None and cool_down_ms:
        until = bundles.moved_ms + cool_down_ms
    return until > now_ms, until


def _pinned(inputs: PlanInputs, _now_ms: int) -> tuple[Bools, Ints]:
    bundles, never = inputs.snapshot.bundles, _never(inputs)
    pin = never - 1 if bundles.pin is None else bundles.pin
    return (pin >= 0) & (pin == bundles.owner), never


def _excluded(inputs: PlanInputs, _now_ms: int) -> tuple[Bools, Ints]:
    bundles, names = inputs.snapshot.bundles, inputs.config.shedding.excluded_namespaces
    of = np.array([*(name in names for name in bundles.namespaces), False], dtype=np.bool_)
    return of[bundles.namespace], _never(inputs)


def _paused(inputs: PlanInputs, _now_ms: int) -> tuple[Bools, Ints]:
    never, is_paused = _never(inputs), inputs.snapshot.bundles.is_paused
    return never > 0 if is_paused is None else is_paused, never


def _moving(inputs: PlanInputs, _now_ms: int) -> tuple[Bools, Ints]:
    bundles = inputs.snapshot.bundles
    is_moving = ~bundles.can_move | bundles.are_named(inputs.state.moves)
    return is_moving & (bundles.owner >= 0), _never(inputs)


def _never(inputs: PlanInputs) -> Ints:
    return np.zeros(len(inputs.snapshot.bundles.names), dtype=np.int64)


def _at_rest(inputs: PlanInputs) -> PlanInputs:
    bundles = inputs.snapshot.bundles
    return inputs.with_bundles(can_move=bundles.owner >= 0).with_state(moves={})


def _setting(name: str, key: str, value: Any, about: str) -> Constraint:
    return Constraint(
        name=name,
        about=about,
        remedy=f"another value: `ballast config set {key}=...`",
        without=lambda inputs: inputs.with_setting(key, value),
    )


_KEEPING: Sequence[Constraint] = (
    Constraint(
        name="grace",
        about="moved less than {grace} ago",
        remedy="`ballast config set shedding.grace_period_ms=0`",
        without=lambda inputs: inputs.with_state(unloaded_ms={}),
        holds=_rests,
    ),
    Constraint(
        name="cool_down",
        about="got another owner less than {cool_down} ago",
        remedy="`ballast config set shedding.cool_down_ms=0`",
        without=lambda inputs: inputs.with_setting("shedding.cool_down_ms", 0),
        holds=_cools,
    ),
    Constraint(
        name="pinned",
        about="are pinned to it",
        remedy="`ballast bundle unpin`",
        without=lambda inputs: inputs.with_bundles(pin=None),
        holds=_pinned,
    ),
    Constraint(
        name="excluded_namespace",
        about="are in namespaces excluded from shedding",
        remedy="`ballast namespace include`",
        without=lambda inputs: inputs.with_setting("shedding.excluded_namespaces", ()),
        holds=_excluded,
    ),
    Constraint(
        name="paused_namespace",
        about="are in namespaces for which balancing is paused",
        remedy="`ballast resume`",
        without=lambda inputs: inputs.with_bundles(is_paused=None),
        holds=_paused,
    ),
    Constraint(
        name="in_flight",
        about="are changing hands",
        remedy="the end of these moves",
        without=_at_rest,
        holds=_moving,
    ),
)
"""Constraints that keep certain bundles where they are."""

_LIMITING: Sequence[Constraint] = (
    *(
        _setting(name, f"shedding.{name}", -1, about)
        for name, about in (
            ("max_moves_per_cycle", "a cycle has as many moves as it may"),
            ("max_moves_per_broker", "a broker has as many moves as it may"),
            ("max_moves_per_namespace", "its namespaces' budget of moves is used up"),
            ("max_moves_in_flight", "as many moves as may be are under way"),
            ("max_moves_per_hour", "this hour had as many moves as it may"),
            ("max_moves_per_hour_of_tenant", "its tenants had as many moves as an hour may have"),
        )
    ),
    Constraint(
        name="role_cool_down",
        about="a broker that gave of late does not take, nor the other way round",
        remedy="time, or `ballast config set shedding.role_cool_down_ms=0`",
        without=lambda inputs: inputs.with_state(gave_ms={}, took_ms={}),
    ),
    Constraint(
        name="isolation",
        about="isolation policies keep its bundles from brokers with room",
        remedy="another policy: `ballast policy set-isolation`",
        without=lambda inputs: inputs.with_policies(isolation=()),
    ),
    Constraint(
        name="anti_affinity",
        about="anti-affinity groups keep its bundles from brokers with room",
        remedy="another group: `ballast policy list`",
        without=lambda inputs: inputs.with_policies(anti_affinity={}),
    ),
    _setting(
        "max_topics",
        "filters.max_topics_per_broker",
        _ENDLESS,
        "brokers with room have as many topics as they may",
    ),
    _setting(
        "distribute_evenly",
        "filters.distribute_evenly",
        value=False,
        about="other brokers have more bundles of its namespaces",
    ),
    _setting(
        "older_version",
        "filters.prefer_later_versions",
        value=False,
        about="other brokers run older versions",
    ),
    Constraint(
        name="flapping",
        about="other brokers start again and again",
        remedy="a broker that stays up",
        without=lambda inputs: inputs.with_brokers(is_flapping=None),
    ),
    Constraint(
        name="suspected",
        about="other brokers have not been heard of for too long",
        remedy="their next heartbeat",
        without=lambda inputs: inputs.with_brokers(is_suspected=None),
    ),
    _setting(
        "policies_not_shed",
        "transfer.shed_bundles_with_policies",
        value=True,
        about="bundles of namespaces with policies are not shed",
    ),
)
"""Constraints on how much moves at once, and on which brokers take it."""

_STRATEGY: Sequence[Constraint] = (
    Constraint(
        name="min_unload",
        about="what may move is less than is worth moving",
        remedy="a lower bound: `ballast config set shedding.min_unload_rate_msg_per_s=...`",
        without=lambda inputs: inputs.with_setting(
            "shedding.min_unload_rate_msg_per_s", 0.0
        ).with_setting("shedding.min_unload_throughput_bytes_per_s", 0.0),
    ),
    _setting(
        "min_throughput",
        "shedding.min_throughput_mib_per_s",
        0.0,
        "what would move is less than is worth moving",
    ),
    _setting(
        "unload_budget",
        "shedding.max_unload_fraction",
        float(_ENDLESS),
        "each of {free} is larger than what is to be moved; a split of the largest helps, too",
    ),
    _setting(
        "churn_budget",
        "ideal_load.churn_budget",
        float(_ENDLESS),
        "the round has moved what its budget allows",
    ),
    _setting("shedding_delay", "transfer.shedding_delay_ms", 0, "it gave a short while ago"),
    _setting(
        "suspended_brokers",
        "ideal_load.max_ineffective_rounds",
        _ENDLESS,
        "it got worse although it carries less: what else uses it?",
    ),
)
"""Bounds of strategies on what is worth moving."""

CONSTRAINTS: Mapping[str, Constraint] = {
    one.name: one for one in (*_KEEPING, *_LIMITING, *_STRATEGY)
}
_OF_STRATEGIES = frozenset(
    {
        "shedding.min_unload_rate_msg_per_s",
        "shedding.min_unload_throughput_bytes_per_s",
        "shedding.min_throughput_mib_per_s",
        "shedding.max_unload_fraction",
        "ideal_load.churn_budget",
        "transfer.shedding_delay_ms",
        "ideal_load.max_ineffective_rounds",
        "transfer.shed_bundles_with_policies",
    }
)
"""Settings that only some strategies read."""


_ONE_HIT: Mapping[str, Mapping[str, int]] = {
    "shedding": {
        "avg_low_hits": 1,
        "avg_high_hits": 1,
        "multi_hit_low_hits": 1,
        "multi_hit_high_hits": 1,
    },
    "ideal_load": {"low_hits": 1, "high_hits": 1},
    "transfer": {"hit_count_threshold": 0},
}
"""Settings under which a strategy acts on the first observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A constraint that keeps the broker from giving.

    bundles: of the broker's that it keeps, 0 = none by name. first_ms, last_ms: when the first and
    the last of these are free by the clock alone, ms since 1970, 0 = never.
    """

    constraint: Constraint
    bundles: int = 0
    first_ms: int = 0
    last_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSet:
    """Constraints that keep a broker from giving.

    bindings: each lets it give if it alone is lifted; or, where is_joint, all of them together.
    gives: nothing does: the cycle that is planned again takes something from it. kept: names of
    constraints, joined by " and " → the broker's bundles that exactly these keep; "" = none does.
    """

    bindings: tuple[Binding, ...] = ()
    is_joint: bool = False
    gives: bool = False
    kept: Mapping[str, int] = field(default_factory=dict)


def plan_inputs(config: Config, cluster: str, rows: RehearsalRows, now_ms: int) -> PlanInputs:
    """The inputs of a cycle at now_ms, as the tables have them. O(rows log rows).

    config: of the cluster, as the job was started. One hit is enough: a blocked broker had all of
    them, and some strategies count from 0 again after that.
    """
    state = with_recalled_plan(state_of(cluster, rows, now_ms), rows.decisions, config, now_ms)
    config, _ = in_force(config, state.settings, state.rules.set_aside)
    work = BatchContext.on(replace(state, settings={}), config, digest(config), now_ms)
    count_moves(work, rows.load, rows.decisions)
    snapshot, _ = make_snapshot(work, usable_brokers(work))
    planned = planning_config(work)
    sections = {name: replace(getattr(planned, name), **hits) for name, hits in _ONE_HIT.items()}
    return PlanInputs(
        snapshot=snapshot,
        state=replace(work.plan, judged={}),
        config=replace(planned, **sections),
    )


class ConstraintSearch:
    """Plans without constraints, each made once for all brokers."""

    def __init__(self, inputs: PlanInputs, now_ms: int) -> None:
        self._inputs = inputs
        self._now_ms = now_ms
        self._givers: dict[frozenset[str], frozenset[str]] = {}
        self._holds = {
            one.name: one.holds(inputs, now_ms) for one in _KEEPING if one.holds is not None
        }

    def bindings(self, broker: str) -> BindingSet:
        """Find what keeps the broker from giving. O(constraints × plan).

        Those are tried first that keep bundles of it by name, then limits, filters and what keeps
        bundles of other brokers from an exchange, then bounds of the strategy.
        """
        names = self._inputs.snapshot.brokers.names
        if broker not in names:
            return BindingSet()
        at = names.index(broker)
        if self._frees(broker, ()):
            return BindingSet(gives=True)
        keeping = [name for name in self._holds if len(self._rows(name, at))]
        elsewhere = [
            name for name, (holds, _) in self._holds.items() if name not in keeping and holds.any()
        ]
        later = [*elsewhere, *(one.name for one in _LIMITING if self._is_in_force(one))]
        strategy = [one.name for one in _STRATEGY if self._is_in_force(one)]
        rules, everything = [*keeping, *later], [*keeping, *later, *strategy]
        for alone, together in ((keeping, ()), (later, rules), (strategy, everything)):
            enough = [name for name in alone if self._frees(broker, (name,))]
            if enough:
                return self._found(enough, at, is_joint=False)
            if self._frees(broker, together):
                return self._found(self._smallest(broker, together), at, is_joint=True)
        return self._found((), at, is_joint=False)

    def _smallest(self, broker: str, names: Sequence[str]) -> Sequence[str]:
        """Those that free the broker together, none of which may be left out; the last go first."""
        needed = list(names)
        for name in reversed(names):
            fewer = [one for one in needed if one != name]
            if self._frees(broker, fewer):
                needed = fewer
        return needed

    def _is_in_force(self, one: Constraint) -> bool:
        return one.without(self._inputs) is not self._inputs

    def _frees(self, broker: str, names: Sequence[str]) -> bool:
        """True if it gives something without these."""
        key = frozenset(names)
        if key not in self._givers:
            inputs = self._inputs
            for name in sorted(key):
                inputs = CONSTRAINTS[name].without(inputs)
            self._givers[key] = inputs.givers(self._now_ms)
        return broker in self._givers[key]

    def _rows(self, name: str, at: int) -> Ints:
        """The rows of the broker's bundles that a constraint keeps."""
        rows: Ints = np.flatnonzero(
            self._holds[name][0] & (self._inputs.snapshot.bundles.owner == at)
        )
        return rows

    def _found(self, names: Sequence[str], at: int, *, is_joint: bool) -> BindingSet:
        rows = np.flatnonzero(self._inputs.snapshot.bundles.owner == at).tolist()
        kept = Counter(
            " and ".join(name for name, (holds, _) in self._holds.items() if holds[row])
            for row in rows
        )
        return BindingSet(
            bindings=tuple(self._binding(name, at) for name in names),
            is_joint=is_joint,
            kept=dict(sorted(kept.items())),
        )

    def _binding(self, name: str, at: int) -> Binding:
        if name not in self._holds:
            return Binding(constraint=CONSTRAINTS[name])
        rows = self._rows(name, at)
        until_ms = self._holds[name][1][rows].tolist()
        return Binding(
            constraint=CONSTRAINTS[name],
            bundles=len(rows),
            first_ms=min(until_ms, default=0),
            last_ms=max(until_ms, default=0),
        )


def binding_messages(found: BindingSet, config: PlanConfig) -> Iterator[str]:
    """Yield what keeps the broker, until when, and what to do to allow it now."""
    if found.gives:
        yield "planned again from the tables, a cycle takes something from it: the next one may"
        return
    if not found.bindings:
        yield "no setting, rule or limit frees it alone or with others: its bundles stay"
        return
    is_joint = found.is_joint and len(found.bindings) > 1
    for one in found.bindings:
        words = _binding_message(one, found, config, is_joint=is_joint)
        yield f"only together: {words}" if is_joint else words
    if len(found.bindings) > 1 and set(found.kept) != {""}:
        parts = [f"{n} kept by {names or 'nothing'}" for names, n in found.kept.items()]
        yield f"its {sum(found.kept.values())} bundles: {', '.join(parts)}"


def _binding_message(one: Binding, found: BindingSet, config: PlanConfig, *, is_joint: bool) -> str:
    free = found.kept.get("", 0)
    about = one.constraint.about.format(
        grace=duration(resting_ms(config)),
        cool_down=duration(config.shedding.cool_down_ms),
        free=f"the {free} that nothing keeps" if free and not is_joint else "its bundles",
    )
    if one.constraint in _KEEPING and not one.bundles:
        about = f"bundles of other brokers, which it could exchange with, {about}"
    if one.bundles:
        about = f"{one.bundles} of its {sum(found.kept.values())} bundles {about}"
    until = ""
    if one.last_ms:
        first, last = (f"{instant(at_ms)[11:19]} UTC" for at_ms in (one.first_ms, one.last_ms))
        until = f"; the first may move again at {first}, the last at {last}"
    return f"{about} ({one.constraint.name}){until}. To allow it now: {one.constraint.remedy}"
