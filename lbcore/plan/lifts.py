"""The rules that can keep a bundle or a broker from giving, each with what lifts it.

`held` plans without a rule, to see whether it is one that matters. HOLDS keep bundles where they
are; LIMITS and FILTERS stop moves that a strategy wants; STRATEGY are the strategy's own bounds on
what is worth moving. Each names its setting.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbcore.plan.decision import PlanConfig, PlanState
from lbcore.plan.registry import resting_ms, shedding_strategy
from lbcore.plan.snapshot import Bools, BundleTable, Ints, Snapshot
from lbcore.plan.trace import CandidateVerdict

_ENDLESS = 1e9
_NO_CAP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Inputs of a plan."""

    snapshot: Snapshot
    state: PlanState
    config: PlanConfig

    def of_bundles(self, **columns: Any) -> "Inputs":
        """The same with other columns of the bundle table."""
        bundles = replace(self.snapshot.bundles, **columns)
        return replace(self, snapshot=replace(self.snapshot, bundles=bundles))

    def of_brokers(self, **columns: Any) -> "Inputs":
        """The same with other columns of the broker table."""
        brokers = replace(self.snapshot.brokers, **columns)
        return replace(self, snapshot=replace(self.snapshot, brokers=brokers))

    def of_config(self, section: str, **values: Any) -> "Inputs":
        """The same with other settings of a section."""
        changed = replace(getattr(self.config, section), **values)
        return replace(self, config=replace(self.config, **{section: changed}))  # type: ignore[type-var]

    def of_state(self, **values: Any) -> "Inputs":
        """The same with another memory."""
        return replace(self, state=replace(self.state, **values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """A rule, its setting ("" = what operators set by commands), and the inputs without it.

    is_set: whether the inputs with it differ at all from those without.
    """

    setting: str
    without: Callable[[Inputs], Inputs]
    is_set: Callable[[Inputs], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A rule that holds bundles.

    holds: inputs, now → bool[m], which; until_ms: int64[m], until when, 0 = until somebody ends it.
    """

    setting: str
    without: Callable[[Inputs], Inputs]
    holds: Callable[[Inputs, int], Bools]
    until_ms: Callable[[Inputs], Ints]


def lifted(inputs: Inputs, rules: tuple[str, ...]) -> Inputs:
    """The inputs without these rules."""
    for name in rules:
        inputs = RULES[name].without(inputs)
    return inputs


def _grace_until(inputs: Inputs) -> Ints:
    grace_ms = resting_ms(inputs.config)
    moved = inputs.state.unloaded_ms
    until = _never(inputs)
    for name, row in inputs.snapshot.bundles.rows_of(moved).items():
        until[row] = moved[name] + grace_ms
    return until


def _cool_until(inputs: Inputs) -> Ints:
    bundles, cool_down_ms = inputs.snapshot.bundles, inputs.config.shedding.cool_down_ms
    if bundles.moved_ms is None or not cool_down_ms:
        return _never(inputs)
    until: Ints = bundles.moved_ms + cool_down_ms
    return until


def _never(inputs: Inputs) -> Ints:
    return np.zeros(len(inputs.snapshot.bundles.names), dtype=np.int64)


def _pinned(inputs: Inputs, _now_ms: int) -> Bools:
    bundles = inputs.snapshot.bundles
    nobody = np.zeros(len(bundles.names), dtype=np.bool_)
    return nobody if bundles.pin is None else (bundles.pin >= 0) & (bundles.pin == bundles.owner)


def _excluded(inputs: Inputs, _now_ms: int) -> Bools:
    bundles = inputs.snapshot.bundles
    names = set(inputs.config.shedding.excluded_namespaces)
    of = np.array([*(name in names for name in bundles.namespaces), False], dtype=np.bool_)
    is_excluded: Bools = of[bundles.namespace]
    return is_excluded


def _paused(inputs: Inputs, _now_ms: int) -> Bools:
    bundles = inputs.snapshot.bundles
    return np.zeros(len(bundles.names), np.bool_) if bundles.is_held is None else bundles.is_held


def _moving(inputs: Inputs, _now_ms: int) -> Bools:
    bundles = inputs.snapshot.bundles
    is_moving = ~bundles.can_move | bundles.are_named(inputs.state.moves)
    is_owned: Bools = bundles.owner >= 0
    return is_moving & is_owned


def _at_rest(inputs: Inputs) -> Inputs:
    bundles: BundleTable = inputs.snapshot.bundles
    return inputs.of_bundles(can_move=bundles.owner >= 0).of_state(moves={})


HOLDS: Mapping[str, Hold] = {
    "grace": Hold(
        setting="shedding.grace_period_ms",
        without=lambda inputs: inputs.of_state(unloaded_ms={}),
        holds=lambda inputs, now_ms: _grace_until(inputs) >= max(now_ms, 1),
        until_ms=_grace_until,
    ),
    "cool_down": Hold(
        setting="shedding.cool_down_ms",
        without=lambda inputs: inputs.of_config("shedding", cool_down_ms=0),
        holds=lambda inputs, now_ms: _cool_until(inputs) > now_ms,
        until_ms=_cool_until,
    ),
    "pinned": Hold(
        setting="",
        without=lambda inputs: inputs.of_bundles(pin=None),
        holds=_pinned,
        until_ms=_never,
    ),
    "excluded_namespace": Hold(
        setting="shedding.excluded_namespaces",
        without=lambda inputs: inputs.of_config("shedding", excluded_namespaces=()),
        holds=_excluded,
        until_ms=_never,
    ),
    "paused_namespace": Hold(
        setting="",
        without=lambda inputs: inputs.of_bundles(is_held=None),
        holds=_paused,
        until_ms=_never,
    ),
    "in_flight": Hold(setting="", without=_at_rest, holds=_moving, until_ms=_never),
}
"""Rule → which bundles it keeps where they are."""


def _setting(section: str, name: str, value: Any) -> Lift:
    return Lift(
        setting=f"{section}.{name}",
        without=lambda inputs: inputs.of_config(section, **{name: value}),
        is_set=lambda inputs: getattr(getattr(inputs.config, section), name) != value,
    )


LIMITS: Mapping[str, Lift] = {
    "max_moves_per_cycle": _setting("shedding", "max_moves_per_cycle", _NO_CAP),
    "max_moves_per_broker": _setting("shedding", "max_moves_per_broker", _NO_CAP),
    "max_moves_per_namespace": _setting("shedding", "max_moves_per_namespace", _NO_CAP),
    "max_moves_in_flight": _setting("shedding", "max_moves_in_flight", _NO_CAP),
    "max_moves_per_hour": _setting("shedding", "max_moves_per_hour", _NO_CAP),
    "max_moves_per_hour_of_tenant": _setting("shedding", "max_moves_per_hour_of_tenant", _NO_CAP),
    "role_cool_down": Lift(
        setting="shedding.role_cool_down_ms",
        without=lambda inputs: inputs.of_state(gave_ms={}, took_ms={}),
        is_set=lambda inputs: bool(inputs.state.gave_ms or inputs.state.took_ms),
    ),
}
"""Rule → how much may move at once."""


def _no_isolation(inputs: Inputs) -> Inputs:
    policies = replace(inputs.snapshot.policies, isolation=())
    return replace(inputs, snapshot=replace(inputs.snapshot, policies=policies))


def _no_groups(inputs: Inputs) -> Inputs:
    policies = replace(inputs.snapshot.policies, anti_affinity={})
    return replace(inputs, snapshot=replace(inputs.snapshot, policies=policies))


FILTERS: Mapping[str, Lift] = {
    "isolation": Lift(
        setting="",
        without=_no_isolation,
        is_set=lambda inputs: bool(inputs.snapshot.policies.isolation),
    ),
    "anti_affinity": Lift(
        setting="",
        without=_no_groups,
        is_set=lambda inputs: bool(inputs.snapshot.policies.anti_affinity),
    ),
    "max_topics": _setting("filters", "max_topics_per_broker", int(_ENDLESS)),
    "distribute_evenly": _setting("filters", "distribute_evenly", value=False),
    "older_version": _setting("filters", "prefer_later_versions", value=False),
    "flapping": Lift(
        setting="filters.flap_starts",
        without=lambda inputs: inputs.of_brokers(is_flapping=None),
        is_set=lambda inputs: inputs.snapshot.brokers.is_flapping is not None,
    ),
    "suspected": Lift(
        setting="ownership.broker_timeout_ms",
        without=lambda inputs: inputs.of_brokers(is_suspected=None),
        is_set=lambda inputs: inputs.snapshot.brokers.is_suspected is not None,
    ),
    "policies_not_shed": _setting("transfer", "shed_bundles_with_policies", value=True),
}
"""Rule → which brokers may take what would be moved."""

STRATEGY: Mapping[str, Lift] = {
    "min_unload": Lift(
        setting="shedding.min_unload_rate_msg_per_s",
        without=lambda inputs: inputs.of_config(
            "shedding", min_unload_rate_msg_per_s=0.0, min_unload_throughput_bytes_per_s=0.0
        ),
        is_set=lambda inputs: (
            inputs.config.shedding.min_unload_rate_msg_per_s > 0
            or inputs.config.shedding.min_unload_throughput_bytes_per_s > 0
        ),
    ),
    "min_throughput": _setting("shedding", "min_throughput_mib_per_s", 0.0),
    "unload_budget": _setting("shedding", "max_unload_fraction", _ENDLESS),
    "churn_budget": _setting("fair_level", "churn_budget", _ENDLESS),
    "shedding_delay": _setting("transfer", "shedding_delay_ms", 0),
    "left_alone": _setting("fair_level", "rounds_in_vain", int(_ENDLESS)),
}
"""Rule → what a strategy finds worth moving, and how much of it."""

RULES: Mapping[str, Lift | Hold] = {**HOLDS, **LIMITS, **FILTERS, **STRATEGY}

_OF_STRATEGIES = {*STRATEGY, "policies_not_shed"}
_CAPS: Mapping[str, CandidateVerdict] = {
    "max_moves_per_cycle": CandidateVerdict.CYCLE_LIMIT,
    "max_moves_per_broker": CandidateVerdict.BROKER_LIMIT,
    "max_moves_per_namespace": CandidateVerdict.NAMESPACE_LIMIT,
    "max_moves_in_flight": CandidateVerdict.IN_FLIGHT_LIMIT,
    "max_moves_per_hour": CandidateVerdict.HOUR_LIMIT,
    "max_moves_per_hour_of_tenant": CandidateVerdict.TENANT_LIMIT,
}
"""Cap → what the phase of limits says of a move that it stops."""


def in_force(inputs: Inputs) -> frozenset[str]:
    """The rules without which a plan could be another one; the others needn't be tried.

    A rule that is not set, or that the strategy doesn't read, changes nothing whatever else does.
    """
    strategy = shedding_strategy(inputs.config)
    return frozenset(
        name
        for name, rule in RULES.items()
        if (isinstance(rule, Hold) or rule.is_set(inputs))
        and (strategy.code or name not in _OF_STRATEGIES or rule.setting in strategy.settings)
    )


def idle_caps(refused: Collection[str]) -> frozenset[str]:
    """The caps that have stopped no move of a plan, so that it is the same without one of them.

    refused: the verdicts of its phase of limits.
    """
    return frozenset(name for name, verdict in _CAPS.items() if verdict.value not in refused)
