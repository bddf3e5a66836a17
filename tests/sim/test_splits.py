"""Splits by themselves, in a cluster in virtual time: decided, carried out, placed."""

import pytest

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.scenario.parse import parse_scenario
from tests.support.worlds.world import World, gapless, is_settled, states


def with_a_hot_bundle() -> World:
    world = World(Config(), 4, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.rates = {"t/n/0x00000000_0x20000000": 40_000.0}
    world.run(430_000)
    return world


def test_bundle_above_the_limits_is_split_and_all_stays_served() -> None:
    world = with_a_hot_bundle()
    splits = [d for d in world.decisions if d["kind"] == "split"]
    assert {d["bundle"] for d in splits} == {"t/n/0x00000000_0x20000000"}
    assert states(world)["Deleted"] == 1
    assert states(world)["Owned"] >= 9
    live = [row for row in world.newest() if row["state"] != "Deleted"]
    served = world.served()
    assert all(list(served[str(row["bundle"])]) == [row["destination"]] for row in live)


def test_children_of_a_split_begin_above_their_parents_version() -> None:
    world = with_a_hot_bundle()
    parent = [r for r in world.events if r["bundle"] == "t/n/0x00000000_0x20000000"]
    children = [r for r in world.events if "t/n/0x0" in str(r["bundle"]) and r not in parent]
    assert children
    deleted = max(int(str(row["version_id"])) for row in parent)
    assert min(int(str(row["version_id"])) for row in children) >= deleted


def test_cold_bundles_are_never_split() -> None:
    world = World(Config(), 4, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(90_000)
    assert not [d for d in world.decisions if d["kind"] == "split"]
    assert is_settled(world)
    assert gapless(world)


ONE_HOT_TOPIC = """\
brokers 3
namespace t/n bundles=30 topics=1
own t/n all all
load t/n even 0.5pt each
load t/n topic {rate}msg/s bundles=4-4
set pipeline.trigger_ms=2000 signals.report_max_interval_ms=10000
run 5m
"""


@pytest.mark.parametrize(("strategy", "rate"), [("avg", 60_000), ("ballast", 20_000)])
def test_hot_bundle_of_one_topic_is_told_once_and_never_split(strategy: str, rate: int) -> None:
    both = (f"shedding.strategy={strategy}", f"placement.strategy={strategy}")
    scenario = parse_scenario(ONE_HOT_TOPIC.format(rate=rate))
    config = parse_assignments(parse_assignments(Config(), scenario.settings), both)
    run = run_scenario(scenario, config)
    assert measure_named(run, "decisions", "skip/unsplittable") == 1
    assert measure_named(run, "splits") == 0
    assert measure_named(run, "returns") == 0


def test_hot_bundle_below_the_limits_is_divided_when_no_move_can_place_it() -> None:
    text = ONE_HOT_TOPIC.format(rate=20_000).replace("topics=1", "topics=8")
    scenario = parse_scenario(text.replace("load t/n topic", "load t/n even"))
    both = ("shedding.strategy=ballast", "placement.strategy=ballast")
    run = run_scenario(
        scenario, parse_assignments(parse_assignments(Config(), scenario.settings), both)
    )
    assert measure_named(run, "decisions", "split/FairShare") == 1
    assert measure_named(run, "imbalance.end") <= 1.3
