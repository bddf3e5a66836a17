"""A broker that stays hot, held by a rule: explain, status and metrics say which, with numbers."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.rebuild import newest_rows
from lbcore.explain.broker import explain_broker
from lbcore.explain.cluster import explain_cluster
from lbcore.explain.status import ClusterStatus, StatusRows, make_status
from lbcore.foresight.foresee import Foresight, WhatIf, foresee
from lbcore.foresight.rehearse import RehearsalRows
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.ruled_world import decided, owners, running, skewed
from tests.support.worlds.world import CLUSTER, World

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
    held = {bundle for bundle in moved if owners(found)[bundle] == HOT}
    found.rates = {b: 2_500.0 if b in held else 1.0 for b in owners(found)}
    found.run(180_000)
    return found


def status_of(world: World) -> ClusterStatus:
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
            rejected=(),
            held=[row for row in rows.decisions if row["kind"] == "held"],
        ),
        world.config,
        world.now_ms,
    )


def foreseen(world: World, **what_if: Any) -> Foresight:
    newest = {row["broker"]: row for row in world.other_rows["load_history"]}
    rows = RehearsalRows(
        tables=newest_rows(world.newest(), world.other_rows),
        load=[dict(row) for row in newest.values()],
        decisions=list(reversed(world.decisions)),
    )
    found = foresee(world.config, CLUSTER, rows, world.now_ms, WhatIf(**what_if))
    assert isinstance(found, Foresight), found
    return found


def newest_held(world: World) -> Mapping[str, Any]:
    return decided(world, "held")[-1]


def test_hot_broker_held_by_the_grace_is_told_with_its_numbers(world: World) -> None:
    row = newest_held(world)
    inputs = json.loads(row["inputs"])
    assert (row["source"], row["reason"]) == (HOT, "grace")
    (cause,) = inputs["causes"]
    grace_ms = world.config.shedding.grace_period_ms
    assert cause["bundles"] >= 4
    assert row["at_ms"] < cause["first_ms"] <= cause["last_ms"] <= row["at_ms"] + grace_ms


def test_explain_and_status_name_the_rule_and_until_when_in_the_same_words(world: World) -> None:
    explained = explain_broker(rows_of(world), HOT)
    assert explained is not None
    rule = next(text for text in explained.changes if text.startswith("held by grace: "))
    assert "moved a short while ago (grace), the first until 2" in rule
    assert "shedding.grace_period_ms" in rule
    found = status_of(world)
    (held,) = found.held
    assert held.words in found.alarms
    assert found.why == f"nothing is moving, though {HOT} is hot"
    assert held.words in explained.blocks
    assert rule in held.words
    assert f"{HOT} is hot for " in held.words
    assert held.words in explain_cluster(rows_of(world)).blocks
    assert not any("larger than what is to be moved" in text for text in explained.changes)


def test_metrics_say_who_is_held_by_what_and_for_how_long(world: World) -> None:
    (gauges,) = [world.reports[-1]["gauges"]]
    held = gauges["held"][HOT]  # type: ignore[index]
    assert held["reason"] == "grace"
    assert held["for_ms"] >= 60_000


def test_dry_run_knows_the_grace_and_says_what_the_job_then_does(world: World) -> None:
    found = foreseen(world)
    moves = ("transfer", "unload")
    assert [one for one in found.decisions if one["kind"] in moves] == []
    assert "held by grace: " in found.held[0]
    assert " is hot for 0 ms" not in found.held[0]
    assert any("judged last" in text for text in found.unknown)
    before = len(decided(world, "transfer"))
    world.run(found.cycle_ms * found.cycles)
    assert len(decided(world, "transfer")) == before
    ended = foreseen(world, settings=("shedding.grace_period_ms=0",))
    assert any(one["kind"] == "transfer" and one["source"] == HOT for one in ended.decisions)


def test_held_broker_survives_packing_and_is_over_when_it_cools(world: World) -> None:
    assert world.state is not None
    hot = world.state.plan.hot
    assert HOT in hot
    plan = world.state.plan
    assert type(plan).from_row(json.loads(json.dumps(plan.to_row()))).hot == hot
    assert "hot" not in replace(plan, hot={}).to_row()
    world.rates = dict.fromkeys(owners(world), 1.0)
    world.run(120_000)
    assert newest_held(world)["reason"] == "Over"
    assert status_of(world).held == ()


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
