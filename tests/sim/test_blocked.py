"""A broker that stays hot and gives nothing: explain, status and metrics say why, with numbers."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lbcore.explain.broker import explain_broker
from lbcore.explain.cluster import explain_cluster
from lbcore.explain.status import ClusterStatus, StatusRows, make_status
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import PlanState
from tests.support.worlds.checked_world import decided, foreseen, owners, running, skewed
from tests.support.worlds.explained_world import rows_of
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
    there = {bundle for bundle in moved if owners(found)[bundle] == HOT}
    found.rates = {b: 2_500.0 if b in there else 1.0 for b in owners(found)}
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
            blocked=[row for row in rows.decisions if row["kind"] == "blocked"],
        ),
        world.config,
        world.now_ms,
    )


def newest_blocked(world: World) -> Mapping[str, Any]:
    return decided(world, "blocked")[-1]


def test_hot_broker_in_its_grace_is_told_with_its_bundles_by_verdict(world: World) -> None:
    row = newest_blocked(world)
    inputs = json.loads(row["inputs"])
    assert (row["source"], row["reason"]) == (HOT, "recently_unloaded")
    assert inputs["counts"]["recently_unloaded"] >= 4
    assert sum(inputs["counts"].values()) == inputs["bundles"]


def test_explain_names_the_verdict_and_until_when_and_what_allows_it(world: World) -> None:
    count = json.loads(newest_blocked(world)["inputs"])["counts"]["recently_unloaded"]
    explained = explain_broker(rows_of(world), HOT)
    assert explained is not None
    (words,) = [text for text in explained.changes if text.startswith(f"{HOT} is at ")]
    assert f"{count} of its " in words
    assert "bundles moved a short while ago; the first may move again at " in words
    assert "To allow it now: `ballast config set shedding.grace_period_ms=0`" in words
    assert words in explain_cluster(rows_of(world)).changes
    assert not any("larger than what is to be moved" in text for text in explained.changes)


def test_explanation_of_the_past_says_the_verdicts_that_the_cycle_recorded(world: World) -> None:
    explained = explain_broker(replace(rows_of(world), is_past=True), HOT)
    assert explained is not None
    assert any("moved a short while ago" in text for text in explained.blocks)
    assert not any("To allow it now" in text for text in explained.changes)


def test_status_and_explain_say_the_same_counts(world: World) -> None:
    found = status_of(world)
    (blocked,) = found.blocked
    assert blocked.messages in found.alarms
    assert found.why == f"nothing is moving, though {HOT} is hot"
    assert blocked.messages.startswith(f"{HOT} is at ")
    assert " bundles moved a short while ago" in blocked.messages
    explained = explain_broker(rows_of(world), HOT)
    assert explained is not None
    assert blocked.messages in explained.blocks
    assert blocked.messages in explain_cluster(rows_of(world)).blocks


def test_metrics_say_who_is_blocked_by_what_and_for_how_long(world: World) -> None:
    (gauges,) = [world.reports[-1]["gauges"]]
    blocked = gauges["blocked"][HOT]  # type: ignore[index]
    assert blocked["reason"] == "recently_unloaded"
    assert blocked["for_ms"] >= 60_000


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
