"""Splits in a cluster in virtual time: requested ones and those that the balancer decides."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.rules import Brake
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.plan.snapshot import THROUGHPUT_OUT
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.validation.check import with_dynamic
from tests.sim.test_commands import owner, rows, told
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.world import World, copied, states

NAMESPACE = "t/n"
LOWER = "t/n/0x00000000_0x80000000"
UPPER = "t/n/0x80000000_0xffffffff"
TOPICS = tuple(f"persistent://t/n/topic-{number}" for number in range(12))


@copied
def running(
    values: dict[str, Any] | None = None,
    *,
    brokers: int = 3,
    topics: tuple[str, ...] = TOPICS,
    made: Callable[..., World] = CheckedWorld,
) -> World:
    """Two bundles that nothing but commands divides, their topics reported."""
    quiet = {"splitting.enabled": False, "shedding.is_balancing": False, **(values or {})}
    world = made(with_dynamic(Config(), quiet), brokers, seed=7)
    world.topics = {name: 10.0 + 50.0 * at for at, name in enumerate(topics)}
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.run(20_000)
    return world


def live(world: World) -> list[str]:
    return [str(row["bundle"]) for row in world.newest() if row["state"] != "Deleted"]


def topics_per_bundle(world: World) -> list[int]:
    return [sum(map(Bundle.parse(name).includes_topic, world.topics)) for name in live(world)]


def split(world: World, **arguments: object) -> dict[str, Any]:
    """Ask for a split; the last row of its outcome."""
    command_id = world.command("split_bundle", **arguments)
    world.run(12_000)
    assert told(world, command_id)[-1] != "accepted"
    return rows(world, command_id)[-1]


def _holds(bundle: str, topic: str) -> bool:
    return Bundle.parse(bundle).includes_topic(topic)


def test_split_at_positions_cuts_there_and_leaves_out_those_outside() -> None:
    world = running()
    at = [0x20000000, 0x90000000, 0x60000000]
    outcome = split(world, bundle=LOWER, positions=at)
    assert outcome["result"]["algorithm"] == "specified_positions_divide"
    assert live(world)[:-1] == [
        "t/n/0x00000000_0x20000000",
        "t/n/0x20000000_0x60000000",
        "t/n/0x60000000_0x80000000",
    ]


def test_split_of_the_largest_and_of_the_hottest_take_others_one_after_the_other() -> None:
    world = running()
    counts = dict(zip(live(world), topics_per_bundle(world), strict=True))
    largest = max(counts, key=lambda name: counts[name])
    assert split(world, namespace=NAMESPACE, which="LARGEST")["result"]["bundle"] == largest
    hot = "persistent://t/n/topic-0"
    world.topics = {**world.topics, hot: 50_000.0}
    world.run(90_000)
    expected = next(name for name in live(world) if _holds(name, hot))
    first = world.command("split_bundle", namespace=NAMESPACE, which="HOT")
    second = world.command("split_bundle", namespace=NAMESPACE, which="HOT")
    world.run(20_000)
    assert told(world, first) == ["accepted", "done"]
    assert told(world, second) == ["accepted", "accepted", "done"]
    names = [rows(world, command_id)[-1]["result"]["bundle"] for command_id in (first, second)]
    assert names[0] == expected
    assert names[1] in rows(world, first)[-1]["result"]["children"]
    assert _holds(names[1], hot)


@pytest.mark.parametrize("which", ["LARGEST", "HOT"])
def test_split_of_a_chosen_bundle_waits_for_its_move(which: str) -> None:
    world = running()
    weight = {t: 1.0 if which == "LARGEST" else rate for t, rate in world.topics.items()}
    chosen = max(live(world), key=lambda b: sum(w for t, w in weight.items() if _holds(b, t)))
    target = next(name for name in sorted(world.brokers) if name != owner(world, chosen))
    move = world.command("unload_bundle", bundle=chosen, destination=target)
    command_id = world.command("split_bundle", namespace=NAMESPACE, which=which)
    world.run(20_000)
    assert told(world, move)[-1] == "done"
    assert told(world, command_id)[-1] == "done"
    assert rows(world, command_id)[-1]["result"]["bundle"] == chosen


def test_children_inherit_load_by_their_topics_and_the_rest_of_a_move() -> None:
    world = running()
    target = next(name for name in sorted(world.brokers) if name != owner(world, LOWER))
    world.command("unload_bundle", bundle=LOWER, destination=target)
    world.run(70_000)
    assert world.state is not None
    ledger = world.state.ledger
    row = ledger.index[LOWER]
    before, moved_ms = ledger.short[row].copy(), int(ledger.moved_ms[row])
    assert moved_ms > 0
    command_id = world.command("split_bundle", bundle=LOWER)
    while told(world, command_id)[-1:] != ["done"]:
        world.run(500)
    ledger = world.state.ledger
    children = rows(world, command_id)[-1]["result"]["children"]
    at = [ledger.index[child] for child in children]
    total = sum(rate for topic, rate in world.topics.items() if _holds(LOWER, topic))
    for child, child_row in zip(children, at, strict=True):
        inside = sum(rate for topic, rate in world.topics.items() if _holds(child, topic))
        assert ledger.short[child_row] == pytest.approx(before * inside / total, rel=1e-6)
        assert int(ledger.topics[child_row]) == sum(_holds(child, t) for t in world.topics)
        assert int(ledger.moved_ms[child_row]) == moved_ms


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"bundle": "t/n/0x00000000_0x00000007"}, "no bundle"),
        ({"bundle": LOWER, "algorithm": "by_feeling"}, "topic_count_equally_divide"),
        ({"bundle": LOWER, "algorithm": "specified_positions_divide"}, "needs positions"),
        ({"namespace": "t/nothing", "which": "LARGEST"}, "no namespace"),
    ],
)
def test_split_that_is_not_possible_is_refused_with_what_to_do(
    arguments: dict[str, object], reason: str
) -> None:
    world = running()
    before = len(world.events)
    outcome = split(world, **arguments)
    assert outcome["status"] == "refused"
    assert reason in outcome["reason"]
    assert len(world.events) == before


def test_split_between_topics_that_nobody_has_reported_is_refused() -> None:
    world = running(topics=())
    assert (
        "0 of its topics"
        in split(world, bundle=LOWER, algorithm="topic_count_equally_divide")["reason"]
    )
    for name in TOPICS:
        world.command("create_record", record_type="topic", name=name)
    world.run(2_000)
    outcome = split(world, bundle=LOWER, algorithm="topic_count_equally_divide")
    assert outcome["status"] == "done", "topics that were created here are known, too"
    assert outcome["result"]["without_topics"] == []


def test_hottest_is_the_bundle_of_the_most_bytes_and_not_of_the_most_messages() -> None:
    world = running(made=World)  # whose state may be written to
    assert world.state is not None
    ledger = world.state.ledger
    many, large = sorted(live(world), key=lambda name: -ledger.short[ledger.index[name]][0])
    ledger.short[ledger.index[large]][THROUGHPUT_OUT] += 1e9
    assert split(world, namespace=NAMESPACE, which="HOT")["result"]["bundle"] == large
    assert many in live(world)


def test_namespace_has_its_bundles_cut_by_its_own_algorithm() -> None:
    world = running()
    world.command(
        "create_namespace",
        namespace="t/own",
        bundles=1,
        split_algorithm="topic_count_equally_divide",
    )
    world.topics = {name.replace("t/n/", "t/own/"): 10.0 for name in TOPICS}
    world.run(20_000)
    outcome = split(world, namespace="t/own", which="LARGEST")
    assert outcome["result"]["algorithm"] == "topic_count_equally_divide"
    assert [sum(_holds(c, t) for t in world.topics) for c in outcome["result"]["children"]] == [
        6,
        6,
    ]


def test_split_that_its_owner_refuses_fails_and_says_who() -> None:
    world = running()
    had = owner(world, LOWER)
    world.faults.failing = 1.0
    outcome = split(world, bundle=LOWER)
    assert outcome["status"] == "failed"
    assert had in outcome["reason"]
    assert live(world) == [LOWER, UPPER]


def test_split_of_a_pinned_bundle_leaves_its_children_there() -> None:
    world = running()
    had = owner(world, LOWER)
    world.command("pin_bundle", bundle=LOWER, broker=had)
    outcome = split(world, bundle=LOWER, parts=4, unload=True)
    world.run(30_000)
    assert {owner(world, child) for child in outcome["result"]["children"]} == {had}


def test_split_survives_a_restart_of_the_job_with_the_topics_it_knows() -> None:
    world = running()
    world.restart_job()
    outcome = split(world, bundle=LOWER, algorithm="topic_count_equally_divide")
    assert outcome["status"] == "done"
    world.restart_job()
    child = outcome["result"]["children"][0]
    assert split(world, bundle=child, algorithm="topic_count_equally_divide")["status"] == "done"


def test_hot_bundle_is_divided_between_its_topics_by_itself() -> None:
    world = CheckedWorld(Config(), 4, seed=6, again_one_in=9)
    world.topics = dict.fromkeys(TOPICS, 100.0)
    hot = [name for name in TOPICS if _holds(LOWER, name)][:2]
    world.topics |= dict.fromkeys(hot, 20_000.0)
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.run(400_000)
    decided = [row for row in world.decisions if row["kind"] == "split"]
    assert decided[0]["strategy"] == "flow_or_qps_equally_divide"
    homes = [next(name for name in live(world) if _holds(name, topic)) for topic in hot]
    assert homes[0] != homes[1]
    assert states(world).keys() == {"Owned", "Deleted"}
    assert all(list(world.served()[name]) == [owner(world, name)] for name in live(world))


def test_versions_go_on_above_those_of_parents_that_are_forgotten_and_made_again() -> None:
    world = running({"ownership.tombstone_delay_ms": 30_000})
    split(world, bundle=LOWER)
    world.run(40_000)
    assert world.state is not None
    assert world.state.ledger.record(LOWER) is None
    world.rebuild_job()
    world.command("delete_namespace", namespace=NAMESPACE)
    world.run(60_000)
    highest = max(int(str(row["version_id"])) for row in world.events)
    assert len(world.state.ledger) == 0
    before = len(world.events)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.run(20_000)
    assert live(world) == [LOWER, UPPER]
    assert min(int(str(row["version_id"])) for row in world.events[before:]) > highest


def test_children_of_an_automatic_split_stay_while_the_brake_is_on() -> None:
    world = CheckedWorld(Config(), 8, seed=6, again_one_in=9)
    world.topics = {name: 1_000.0 if _holds(LOWER, name) else 10.0 for name in TOPICS}
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    while states(world).get("Splitting", 0) == 0:
        world.run(500)
        assert world.now_ms < 1_700_000_000_000 + 600_000
    (parent,) = [row for row in world.newest() if row["state"] == "Splitting"]
    children = json.loads(str(parent["children"]))
    assert any(children.values())
    while "Splitting" in states(world):
        assert world.state is not None
        brake = Brake(since_ms=world.now_ms, lost=(), brokers=8)
        world.job.state = replace(world.state, rules=replace(world.state.rules, brake=brake))
        world.run(500)
    ended = [row for row in world.events if row["bundle"] in children]
    assert {row["state"] for row in ended} == {"Owned"}
    assert {row["destination"] for row in ended} == {parent["source"]}


def test_bundle_above_the_limits_is_split_and_all_stays_served_above_its_version() -> None:
    world = World(Config(), 4, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.rates = {"t/n/0x00000000_0x20000000": 40_000.0}
    world.run(430_000)
    splits = [d for d in world.decisions if d["kind"] == "split"]
    assert {d["bundle"] for d in splits} == {"t/n/0x00000000_0x20000000"}
    assert states(world)["Deleted"] == 1
    assert states(world)["Owned"] >= 9
    live = [row for row in world.newest() if row["state"] != "Deleted"]
    served = world.served()
    assert all(list(served[str(row["bundle"])]) == [row["destination"]] for row in live)
    parent = [r for r in world.events if r["bundle"] == "t/n/0x00000000_0x20000000"]
    children = [r for r in world.events if "t/n/0x0" in str(r["bundle"]) and r not in parent]
    assert children
    deleted = max(int(str(row["version_id"])) for row in parent)
    assert min(int(str(row["version_id"])) for row in children) >= deleted


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
