"""Random cycles with hot brokers and constraints on them."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.plan.decision import EVERYTHING, Plan, PlanState, Skip
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.planner import plan
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import Sections, cluster_of

NOW_MS = 10_000_000
SCOPE = replace(EVERYTHING, splits=False, is_traced=True)
_POLICY = {
    "namespaces": ["t/n.*"],
    "primary": ["b0"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
RATES = (5.0, 50.0, 500.0, 3_000.0, 9_000.0, 20_000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What one plan is made of."""

    snapshot: Snapshot
    state: PlanState
    config: Sections

    def plan(self) -> Plan | Skip:
        """What it comes to."""
        return plan(self.snapshot, self.state, self.config, NOW_MS, SCOPE)[0]


def random_cycle(random: Random) -> Cycle:
    """Up to five brokers, one of them hot; every constraint on bundles, now and then."""
    names = [f"b{at}" for at in range(random.randint(2, 5))]
    bundles = {name: random.choices(RATES[:4], k=random.randint(0, 6)) for name in names}
    bundles["b0"] = random.choices(RATES[2:], k=random.randint(1, 7))
    snapshot = cluster_of(bundles)
    scores = snapshot.brokers.percent[:, 0] / 100
    throughput = snapshot.brokers.traffic[:, 2]
    brokers = replace(snapshot.brokers, weighted_max_ema=scores, throughput_ema=throughput)
    count = len(snapshot.bundles.names)
    columns = {
        "moved_ms": _some(random, count, NOW_MS - 20_000, 0),
        "pin": np.where(_chosen(random, count), snapshot.bundles.owner, -1),
        "is_paused": _chosen(random, count),
        "can_move": ~_chosen(random, count),
    }
    given = {name: value for name, value in columns.items() if random.random() < 0.25}
    policies = Policies()
    if random.random() < 0.15:
        policy = IsolationPolicy.from_json("p", _POLICY)
        policies = Policies(isolation=(policy,))
    moved = _chosen(random, count) if random.random() < 0.5 else np.zeros(count, dtype=np.bool_)
    recent = {
        name: NOW_MS - random.randint(1, 1_700) * 1_000
        for name, is_moved in zip(snapshot.bundles.names, moved.tolist(), strict=True)
        if is_moved
    }
    strategy = random.choice(sorted(SHEDDING_STRATEGIES))
    roles = {"b1": NOW_MS - 5_000} if random.random() < 0.15 else {}
    return Cycle(
        snapshot=replace(
            snapshot,
            brokers=brokers,
            bundles=replace(snapshot.bundles, **given),
            policies=policies,
        ),
        state=PlanState(strategy=strategy, unloaded_ms=recent, gave_ms=roles),
        config=_config(random, strategy),
    )


def _config(random: Random, strategy: str) -> Sections:
    caps = ("max_moves_per_cycle", "max_moves_per_broker", "max_moves_in_flight")
    limits: dict[str, Any] = {name: 0 for name in caps if random.random() < 0.1}
    if random.random() < 0.15:
        limits["excluded_namespaces"] = tuple(f"t/n{at}" for at in range(random.randint(1, 7)))
    return Sections(
        shedding=SheddingConfig(
            strategy=strategy,
            avg_low_hits=1,
            avg_high_hits=1,
            multi_hit=False,
            min_unload_rate_msg_per_s=random.choice((10.0, 1_000.0, 10_000.0)),
            min_throughput_mib_per_s=random.choice((0.0, 10.0)),
            max_unload_fraction=random.choice((0.02, 0.2, 0.5)),
            **limits,
        ),
        transfer=TransferConfig(hit_count_threshold=0, target_std=0.05),
        ideal_load=IdealLoadConfig(low_hits=1, high_hits=1),
    )


def _chosen(random: Random, count: int) -> Any:
    share = random.choice((0.3, 0.7, 1.0))
    return np.array([random.random() < share for _ in range(count)], dtype=np.bool_)


def _some(random: Random, count: int, value: int, other: int) -> Any:
    return np.where(_chosen(random, count), value, other).astype(np.int64)
