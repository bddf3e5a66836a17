"""Brokers and bundles that can not move: reasons, missing candidates, isolation groups."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status import read_status_rows
from lbcore.agent.reporting import LoadRead
from lbcore.balancer.rules import PlanProposal, PlanStatus
from lbcore.config.load import parse_assignments
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.config.tree import Config
from lbcore.explain.broker import explain_broker
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.cluster import explain_cluster
from lbcore.explain.recent_findings import policy_alarms
from lbcore.explain.status import ClusterStatus, StatusRows, make_status
from lbcore.packing import from_plain, to_plain
from lbcore.plan.decision import EVERYTHING, Plan, PlanState, Skip
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.planner import plan
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import Sections, cluster_of
from tests.support.worlds.checked_world import decided, foreseen, owners, running, skewed
from tests.support.worlds.explained_world import rows_of, write_tables
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import CLUSTER, World, copied, is_settled, states

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


HOT = "broker-3:8080"


@pytest.fixture(scope="module")
def world() -> World:
    """Balancing has moved bundles; an operator has brought them together, and they are hot."""
    found = running(4, 40)
    skewed(found)
    found.run(150_000)
    moved = sorted({str(row["bundle"]) for row in decided(found, "transfer")})
    assert len(moved) >= 4
    found.rates = dict.fromkeys(owners(found), 1.0)
    for bundle in moved:
        found.command("unload_bundle", bundle=bundle, destination=HOT)
    found.run(90_000)
    there = {bundle for bundle in moved if owners(found)[bundle] == HOT}
    found.rates = {b: 2_500.0 if b in there else 1.0 for b in owners(found)}
    found.run(180_000)
    return found


def status_of(world: World, kind: str = "blocked") -> ClusterStatus:
    """What `ballast status` says of the tables as the world has them, with decisions of a kind."""
    rows = rows_of(world)
    return make_status(
        CLUSTER,
        StatusRows(
            writer_ms=world.now_ms,
            bundles=rows.records,
            brokers=rows.brokers,
            decisions=rows.decisions,
            policies=rows.policies,
            pins=rows.pins,
            load=rows.load,
            rejected=world.other_rows["rejected_reports"],
            blocked=[row for row in rows.decisions if kind in row["kind"]],
        ),
        world.config,
        world.now_ms,
    )


def alarms(world: World) -> tuple[str, ...]:
    return status_of(world, "").alarms


def newest_blocked(world: World) -> Mapping[str, Any]:
    return decided(world, "blocked")[-1]


def test_hot_broker_in_its_grace_is_told_everywhere_with_its_bundles_by_verdict(
    world: World,
) -> None:
    row = newest_blocked(world)
    inputs = json.loads(row["inputs"])
    assert (row["source"], row["reason"]) == (HOT, "recently_unloaded")
    assert inputs["counts"]["recently_unloaded"] >= 4
    assert sum(inputs["counts"].values()) == inputs["bundles"]
    count = inputs["counts"]["recently_unloaded"]
    explained = explain_broker(rows_of(world), HOT)
    assert explained is not None
    (words,) = [text for text in explained.changes if text.startswith(f"{HOT} is at ")]
    assert f"{count} of its " in words
    rest = (
        "bundles moved a short while ago, or are in a rejected plan; the first may move again at "
    )
    assert rest in words
    assert "To allow it now: `ballast config set shedding.grace_period_ms=0`" in words
    assert words in explain_cluster(rows_of(world)).changes
    assert not any("larger than what is to be moved" in text for text in explained.changes)
    of_the_past = explain_broker(replace(rows_of(world), is_past=True), HOT)
    assert of_the_past is not None
    assert any("moved a short while ago" in text for text in of_the_past.blocks)
    assert not any("To allow it now" in text for text in of_the_past.changes)
    found = status_of(world)
    (blocked,) = found.blocked
    assert found.alarms == ()  # not three minutes yet
    assert found.why == f"nothing is moving, though {HOT} is hot"
    assert blocked.message.startswith(f"{HOT} is at ")
    assert " bundles moved a short while ago" in blocked.message
    assert blocked.message in explained.blocks
    assert blocked.message in explain_cluster(rows_of(world)).blocks
    gauge = world.reports[-1]["gauges"]["blocked"][HOT]
    assert gauge["reason"] == "recently_unloaded"
    assert gauge["for_ms"] >= 60_000


def test_dry_run_knows_the_grace_and_says_what_the_job_then_does(world: World) -> None:
    found = foreseen(world)
    moves = ("transfer", "unload")
    assert [one for one in found.decisions if one["kind"] in moves] == []
    assert "moved a short while ago" in found.blocked[0]
    assert " for 0 ms" not in found.blocked[0]
    assert any("judged last" in text for text in found.unknown)
    before = len(decided(world, "transfer"))
    world.run(found.cycle_ms * found.cycles)
    assert len(decided(world, "transfer")) == before
    ended = foreseen(world, settings=("shedding.grace_period_ms=0",))
    assert any(one["kind"] == "transfer" and one["source"] == HOT for one in ended.decisions)


def test_blocked_broker_survives_packing_and_is_over_when_it_cools(world: World) -> None:
    assert world.state is not None
    hot = world.state.plan.hot
    assert HOT in hot
    plan = world.state.plan
    assert from_plain(PlanState, json.loads(json.dumps(to_plain(plan)))).hot == hot
    world.rates = dict.fromkeys(owners(world), 1.0)
    world.run(120_000)
    assert newest_blocked(world)["reason"] == "Over"
    assert status_of(world).blocked == ()


def test_drain_is_foreseen_as_it_then_happens_with_pins_and_hot_receivers() -> None:
    world = running(4, 40, pipeline={"load_history_interval_ms": 10_000})
    world.rates = dict.fromkeys(owners(world), 700.0)
    world.run(120_000)
    broker = "broker-1:8080"
    bundle = min(name for name, owner in owners(world).items() if owner == broker)
    world.command("pin_bundle", bundle=bundle, broker=broker)
    world.run(20_000)
    found = foreseen(world, remove_brokers=(broker,))
    drains = {
        one["bundle"]: one["destination"] for one in found.decisions if one["kind"] == "drain"
    }
    world.command("drain_broker", broker=broker)
    world.run(20_000)
    made = {row["bundle"]: row["destination"] for row in decided(world, "drain", "Draining")}
    assert drains == made
    assert found.broken_pins == (bundle,)
    limit = world.config.placement.overloaded_threshold_percent / 100.0
    assert set(found.hot) == {one.broker for one in found.after.brokers if one.usage > limit}
    assert len(found.hot) == 3


MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
FAILOVER = {
    "policy_type": "min_available",
    "parameters": {"min_limit": "1", "usage_threshold": "100"},
}
EXTENSIBLE = {"filters.pipeline": "extensible"}


@copied
def running_no_candidate() -> World:
    world = World(Config(), 3, seed=9)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(20_000)
    assert is_settled(world)
    return world


@pytest.mark.parametrize("name", [MODULAR, "no.such.Class"])
def test_a_load_manager_class_that_no_broker_advertises_is_named(name: str) -> None:
    setting = "filters.load_manager_class"
    world = running_no_candidate()
    assert alarms(world) == ()
    world.command("set_config", values={**EXTENSIBLE, setting: name})
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.run(30_000)
    assert states(world) == {"Free": 4}
    report: Any = world.reports[-1]
    assert report["alarms"] == [f"no_candidate:{setting}"]
    assert report["without_candidate"] == {setting: 4}
    assert any(setting in alarm for alarm in alarms(world))
    world.command("reset_config", keys=[setting])
    world.run(20_000)
    assert is_settled(world)
    assert not [alarm for alarm in world.reports[-1]["alarms"] if "no_candidate" in alarm]


POLICY = {"namespaces": ["t/n"], "secondary": [], "min_limit": 1}


def test_bundles_of_a_policy_without_brokers_name_policy_and_namespace(tmp_path: Path) -> None:
    world = running_no_candidate()
    world.command("set_isolation_policy", policy="p", primary=["nobody.*"], **POLICY)
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.run(20_000)
    assert world.reports[-1]["without_candidate"] == {"isolation policies": 4}
    told = "policy p admits no broker for bundles of t/n"
    assert any(told in alarm for alarm in alarms(world))
    write_tables(world, tmp_path)
    rows = read_status_rows(TableReader(tmp_path, CLUSTER), world.now_ms)
    assert any(told in alarm for alarm in make_status(CLUSTER, rows, Config(), world.now_ms).alarms)


def test_bundles_without_a_policy_beside_those_of_one_have_an_alarm_of_their_own() -> None:
    world = running_no_candidate()
    world.command("set_isolation_policy", policy="p", primary=["nobody.*"], **POLICY)
    world.command("set_isolation_policy", policy="q", namespaces=["t/q"], primary=[".*"])
    world.command("create_namespace", namespace="t/free", bundles=2)
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.command("unload_namespace", namespace="t/free")
    world.run(20_000)
    assert world.reports[-1]["without_candidate"] == {"isolation policies": 6}
    found = "\n".join(alarms(world))
    assert "policy p admits no broker for bundles of t/n" in found
    assert "reserve every broker, so none may take bundles of t/free" in found


@pytest.mark.parametrize(
    "primary", ["broker-1:8080", "broker-1", "broker-1.*", "[a-z0-9-]+-1:80[0-9]+"]
)
def test_policy_that_names_brokers_with_their_port_is_served(primary: str) -> None:
    world = running_no_candidate()
    world.command("set_isolation_policy", policy="p", primary=[primary], **POLICY)
    world.command("unload_namespace", namespace="t/n")
    world.run(20_000)
    assert {row["destination"] for row in world.current.values()} == {"broker-1:8080"}


def test_pattern_that_cannot_be_matched_is_refused_and_a_kept_one_is_an_alarm() -> None:
    world = running_no_candidate()
    refused = world.command("set_isolation_policy", policy="p", primary=["(?=b).*"], **POLICY)
    slow = ["([a-z0-9-]+[.]?)+:8443"]
    taken = world.command("set_isolation_policy", policy="q", primary=slow, namespaces=["t/q"])
    world.run(5_000)
    results = {row["command_id"]: row for row in world.other_rows["commands"]}
    assert results[refused]["status"] == "refused"
    assert "linear time" in results[refused]["reason"]
    assert results[taken]["status"] == "done"
    kept = {**POLICY, "primary": ["(?=b).*"], "auto_failover_policy": FAILOVER}
    row = {"kind": "isolation", "name": "p", "value": json.dumps(kept), "is_set": True}
    assert any("it matches nobody until" in alarm for alarm in policy_alarms([row]))
    assert list(policy_alarms([{**row, "is_set": False}])) == []


MINUTES_MS = 120_000


class Misreporting(World):
    """A world in which broker-0 says that clients ask for less than it serves."""

    def load(self, broker: Broker) -> LoadRead:
        found = super().load(broker)
        is_wrong = broker.name.startswith("broker-0")
        return replace(found, offered_msg_rate=0.5 * found.traffic[0]) if is_wrong else found


def running_bad_groups(world: World) -> World:
    """Four brokers at rest, the first and the third with half as much load again."""
    world.run(2_000)
    for name in ("t/n", "t/stores"):
        world.command("create_namespace", namespace=name, bundles=12)
    world.run(40_000)
    return world


def heat(world: World) -> None:
    world.rates = {
        bundle: 600.0 if owner < "broker-1" else 200.0 for bundle, owner in owners(world).items()
    }


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (
            [("t/stores", "nobody.*")],
            "isolation policy p0 admits no broker for bundles of",
        ),
        ([("t/stores", ".*")], "isolation policies reserve every broker, so none may take bundles"),
    ],
    ids=["no broker", "all brokers"],
)
def test_policy_that_leaves_bundles_no_broker_is_named_and_they_stay(
    policies: Sequence[tuple[str, str]], message: str
) -> None:
    world = running_bad_groups(World(Config(), 4, seed=4))
    before = owners(world)
    for at, (namespaces, brokers) in enumerate(policies):
        world.command(
            "set_isolation_policy", policy=f"p{at}", namespaces=[namespaces], primary=[brokers]
        )
    world.run(2_000)
    heat(world)
    world.run(MINUTES_MS)
    left = "t/stores" if policies[0][1] != ".*" else "t/n"
    assert {name: owner for name, owner in owners(world).items() if name.startswith(left)} == {
        name: owner for name, owner in before.items() if name.startswith(left)
    }
    assert [text for text in alarms(world) if message in text]


def test_group_whose_brokers_all_drain_and_die_waits_and_says_so() -> None:
    world = running_bad_groups(World(Config(), 4, seed=4))
    own = ["broker-[23].*"]
    world.command("set_isolation_policy", policy="p", namespaces=["t/stores"], primary=own)
    world.run(2_000)
    for namespace in ("t/stores", "t/n"):
        world.command("unload_namespace", namespace=namespace)
    world.run(MINUTES_MS)
    assert world.state is not None
    assert sorted(set(world.state.plan.groups.values())) == ["broker-0:8080", "broker-2:8080"]
    for name in ("broker-2:8080", "broker-3:8080"):
        world.command("drain_broker", broker=name)
    world.run(20_000)
    assert "broker-2:8080" not in world.state.plan.groups
    for name in ("broker-2:8080", "broker-3:8080"):
        world.kill(name)
    world.run(MINUTES_MS)
    assert {name[:8] for name, owner in owners(world).items() if owner > "broker-2"} == {"t/stores"}
    assert not decided(world, "failover")
    assert [text for text in alarms(world) if "isolation policy p admits no broker" in text]
    left = min(name for name in owners(world) if name.startswith("t/stores"))
    found = explain_bundle(rows_of(world), left)
    assert found is not None
    assert any("is silent: nobody serves it" in text for text in found.blocks)
    assert "must report again" in found.changes[-1]
    assert world.state.plan.groups == {}
    for name in ("broker-2:8080", "broker-3:8080"):
        world.command("cancel_drain", broker=name)
        world.start(name)
    world.run(MINUTES_MS)
    assert not [text for text in alarms(world) if "admits no broker" in text]
    assert sum(bool(served) for served in world.served().values()) == len(owners(world))


def test_offered_load_below_the_served_rate_counts_as_not_reported() -> None:
    worlds = [running_bad_groups(kind(Config(), 4, seed=4)) for kind in (World, Misreporting)]
    for world in worlds:
        heat(world)
        world.run(MINUTES_MS)
    honest, wrong = (
        [(row["bundle"], row["source"], row["destination"]) for row in decided(world, "transfer")]
        for world in worlds
    )
    assert wrong == honest != []


RESERVED = ("broker-4", "broker-5")
QUIET = ("splitting.enabled=false", "shedding.grace_period_ms=1000", "shedding.cool_down_ms=0")


def grouped(*settings: str) -> World:
    """Six brokers at rest, of which a policy reserves the last two."""
    world = World(parse_assignments(Config(), [*QUIET, *settings]), 6)
    world.run(2_000)
    world.command(
        "set_isolation_policy", policy="stores", namespaces=["t/stores"], primary=["broker-[45].*"]
    )
    for name, bundles in (("t/n", 32), ("t/stores", 8)):
        world.command("create_namespace", namespace=name, bundles=bundles)
    world.run(60_000)
    return world


def is_reserved(broker: str) -> bool:
    return broker.startswith(RESERVED)


def load(world: World, shared: float, reserved: float) -> None:
    """Give each broker of a group the same message rate, msg/s."""
    held: dict[str, int] = {}
    for owner in owners(world).values():
        held[owner] = held.get(owner, 0) + 1
    world.rates = {
        bundle: (reserved if is_reserved(owner) else shared) / held[owner]
        for bundle, owner in owners(world).items()
    }
    world.run(180_000, step_ms=5_000)


def proposals(world: World) -> Mapping[str, PlanProposal]:
    assert world.state is not None
    return world.state.rules.proposals


def test_broker_that_is_added_joins_the_group_that_may_use_it() -> None:
    world = grouped()
    load(world, 4_000.0, 100.0)
    found = foreseen(world, add_brokers=1)
    (added,) = (one for one in found.after.brokers if one.broker.startswith("new-broker"))
    assert added.group == "broker-0:8080"
    assert found.after.imbalance is not None
    assert found.after.imbalance <= 1.3


def waiting(world: World, hot: Sequence[str]) -> PlanProposal | None:
    """The plan that waits once the load of these bundles has grown."""
    for bundle in hot:
        world.rates[bundle] *= 4.0
    for _ in range(180):
        world.run(2_000)
        for one in proposals(world).values():
            if one.station is PlanStatus.WAITS:
                return one
    return None


def bundles_of(world: World, broker: str) -> list[str]:
    return [name for name, owner in owners(world).items() if owner.startswith(broker)]


@pytest.mark.parametrize(("percent", "waits"), [(5, True), (99, False)])
def test_share_of_messages_that_asks_is_that_of_the_group(percent: int, *, waits: bool) -> None:
    """The reserved group carries a tenth of all messages: a bundle of it is below 5 % of all."""
    world = grouped(
        "cluster.approval=ask_above",
        "cluster.approval_bundles=100",
        f"cluster.approval_percent={percent}",
    )
    load(world, 6_000.0, 1_200.0)
    bundles = bundles_of(world, RESERVED[0])
    assert (waiting(world, bundles[:2]) is not None) is waits
