"""Shadows: they think on the job's reports, and the job does what it does without them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.decisions import shadows
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.state.shadows import Shadow
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.foresight.planning_memory import is_planned
from lbcore.model.names import parse_bundle
from lbcore.model.shadow_tables import SHADOW_DECISIONS
from lbcore.ownership.records import State
from lbcore.plan.decision import PlanState
from lbcore.plan.registry import SHEDDING_STRATEGIES, placement_beside
from tests.support.worlds.hot_world import HOT
from tests.support.worlds.ruled_world import owners
from tests.support.worlds.safe_world import safely
from tests.support.worlds.world import World

MINUTE_MS = 60_000
QUICK = ("ballast", "uniform")
"""One that settles destinations itself, and one that leaves them to placement."""


def strategies_world(strategy: str, *more: str) -> World:
    """Three brokers, the first of which carries most, under a strategy that may act at once."""
    shedder = SHEDDING_STRATEGIES[strategy]
    placement = placement_beside(shedder, "least_resource_usage_with_weight")
    settings = [f"shedding.strategy={strategy}", f"placement.strategy={placement}"]
    world = World(
        parse_assignments(Config(), [*settings, "shedding.grace_period_ms=120000", *more]), 3
    )
    world.command("create_namespace", namespace="acme/a", bundles=24)
    world.run(MINUTE_MS)
    for row in world.newest():
        world.rates[str(row["bundle"])] = 800.0 if row["destination"] == HOT else 50.0
    return world


def rows(world: World, strategy: str) -> list[Mapping[str, Any]]:
    """What a shadow wrote, oldest first."""
    return [r for r in world.other_rows[SHADOW_DECISIONS.name] if r["strategy"] == strategy]


def steps(world: World, strategy: str) -> list[tuple[int, str, str, str]]:
    """When a shadow would have moved which bundle from where to where."""
    return [
        (int(row["at_ms"]), step["bundle"], step["source"], step["destination"])
        for row in rows(world, strategy)
        for step in json.loads(row["steps"])
    ]


def moved(world: World) -> list[tuple[int, str, str]]:
    """When the job has moved which bundle from where, in the order of its plans."""
    found = [d for d in world.decisions if is_planned(d)]
    return [(int(str(d["at_ms"])), str(d["bundle"]), str(d["source"])) for d in found]


def shadow(world: World, strategy: str) -> Shadow:
    """What the job's state has of a shadow."""
    assert world.state is not None
    return world.state.shadows[strategy]


def with_everything(world: World) -> None:
    """Hot spots jump, a broker dies and comes back, people pin, unload, split and drain."""
    world.run(4 * MINUTE_MS, step_ms=2_000)
    for at, bundle in enumerate(sorted(owners(world))):
        world.rates[bundle] = 900.0 if at % 4 == 0 else 30.0
    world.kill("broker-2:8080")
    world.run(2 * MINUTE_MS, step_ms=2_000)
    world.start("broker-2:8080")
    bundle = min(owners(world))
    world.command("pin_bundle", bundle=bundle, broker="broker-2:8080")
    world.command("unload_bundle", bundle=max(owners(world)))
    world.command("split_bundle", bundle=sorted(owners(world))[5])
    world.run(3 * MINUTE_MS, step_ms=2_000)
    world.command("drain_broker", broker="broker-1:8080")
    world.run(3 * MINUTE_MS, step_ms=2_000)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.long)
        for name in sorted(SHEDDING_STRATEGIES)
    ],
)
def test_shadow_of_the_acting_strategy_decides_what_the_job_decides(strategy: str) -> None:
    world = strategies_world(strategy, f"cluster.shadow={strategy}")
    with_everything(world)
    assert len(moved(world)) > 3
    assert [one[:3] for one in steps(world, strategy)] == moved(world)
    assert not shadow(world, strategy).elsewhere
    assert world.state is not None
    assert shadow(world, strategy).plan == without_hot(world)


def without_hot(world: World) -> PlanState:
    """The job's memory without what is told of hot brokers, which no plan reads."""
    assert world.state is not None
    return replace(world.state.plan, hot={})


def untold(rows_: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows without the settings' version and the setting, in which the two differ."""
    kept = [row for row in rows_ if row.get("setting") != "cluster.shadow"]
    return [{k: v for k, v in row.items() if k != "config_version"} for row in kept]


def test_shadows_change_nothing_that_the_job_does() -> None:
    alone = strategies_world("avg")
    shadowed = strategies_world("avg", "cluster.shadow=ballast,uniform,threshold")
    for world in (alone, shadowed):
        with_everything(world)
    assert alone.events == shadowed.events
    assert untold(alone.decisions) == untold(shadowed.decisions)
    assert SHADOW_DECISIONS.name not in alone.other_rows
    others = dict(shadowed.other_rows)
    assert len(others.pop(SHADOW_DECISIONS.name)) > 100
    assert {name: untold(found) for name, found in alone.other_rows.items()} == {
        name: untold(found) for name, found in others.items()
    }
    assert alone.state is not None
    assert shadowed.state is not None
    assert replace(alone.state, shadows={}, told="") == replace(
        shadowed.state, shadows={}, told="", ledger=alone.state.ledger
    )
    assert moved(shadowed)
    own = [{one[1:] for one in steps(shadowed, name)} for name in ("ballast", "uniform")]
    assert own[0] != own[1]


def test_shadow_of_a_job_that_only_watches_evens_out_in_thought() -> None:
    world = strategies_world("uniform", "cluster.observe_only=true", "cluster.shadow=uniform")
    world.run(4 * MINUTE_MS, step_ms=2_000)
    told = rows(world, "uniform")
    assert {one["source"] for row in told for one in json.loads(row["steps"])} >= {HOT}
    first = next(row for row in told if row["imbalance"] > 1.8)
    assert first["imbalance"] == first["shadow_imbalance"]
    assert told[-1]["imbalance"] > 1.8, "nothing really moves"
    assert told[-1]["shadow_imbalance"] < 1.4
    assert 0 < told[-1]["elsewhere"] <= sum(row["moves"] for row in told)
    assert told[-1]["reason"]
    assert shadow(world, "uniform").elsewhere.keys() <= owners(world).keys()


def test_shadow_that_would_not_have_moved_stays_where_things_were() -> None:
    """A strategy that waits for many hits: what the job evens out stays uneven for it."""
    world = strategies_world("uniform", "cluster.shadow=overload")
    world.run(4 * MINUTE_MS, step_ms=2_000)
    told = rows(world, "overload")
    assert moved(world)
    assert not steps(world, "overload")
    assert told[-1]["imbalance"] < 1.4
    assert told[-1]["shadow_imbalance"] > 1.8, "2.67 once averages of bundles have followed"
    first: dict[str, str] = {}
    for _, bundle, source in moved(world):
        first.setdefault(bundle, source)
    left = {bundle for bundle, source in first.items() if owners(world)[bundle] != source}
    assert shadow(world, "overload").elsewhere.keys() == left


@pytest.mark.parametrize("strategy", ["ballast", "uniform"])
def test_shadow_goes_on_after_a_restart_as_if_there_had_been_none(strategy: str) -> None:
    found = []
    for is_restarted in (False, True):
        world = strategies_world("avg", f"cluster.shadow={strategy}")
        world.run(3 * MINUTE_MS, step_ms=2_000)
        before = shadow(world, strategy)
        if is_restarted:
            world.restart_job()
            assert shadow(world, strategy) == before
        world.run(2 * MINUTE_MS, step_ms=2_000)
        found.append(rows(world, strategy))
    assert found[0] == found[1]


def test_shadow_begins_anew_where_things_are_after_a_rebuild() -> None:
    world = strategies_world("uniform", "cluster.observe_only=true", "cluster.shadow=uniform")
    world.run(3 * MINUTE_MS, step_ms=2_000)
    assert shadow(world, "uniform").elsewhere
    world.rebuild_job()
    assert world.state is not None
    assert not world.state.shadows
    count = len(rows(world, "uniform"))
    world.run(3 * MINUTE_MS, step_ms=2_000)
    assert rows(world, "uniform")[count]["elsewhere"] == 0
    assert rows(world, "uniform")[-1]["shadow_imbalance"] < 1.4


def test_shadow_is_set_and_taken_back_by_a_command() -> None:
    world = strategies_world("avg")
    world.run(MINUTE_MS, step_ms=2_000)
    world.command("set_config", values={"cluster.shadow": "ballast"})
    world.run(MINUTE_MS, step_ms=2_000)
    assert rows(world, "ballast")
    world.command("set_config", values={"cluster.shadow": ""})
    world.run(MINUTE_MS, step_ms=2_000)
    assert world.state is not None
    assert not world.state.shadows
    count = len(rows(world, "ballast"))
    world.run(MINUTE_MS, step_ms=2_000)
    assert len(rows(world, "ballast")) == count


def test_broker_that_dies_takes_with_it_what_the_shadow_had_there() -> None:
    world = strategies_world("uniform", "cluster.observe_only=true", "cluster.shadow=uniform")
    world.run(3 * MINUTE_MS, step_ms=2_000)
    there = {one.broker for one in shadow(world, "uniform").elsewhere.values()}
    (gone, *_) = sorted(there)
    world.kill(gone)
    world.run(2 * MINUTE_MS, step_ms=2_000)
    assert all(one.broker != gone for one in shadow(world, "uniform").elsewhere.values())
    last = [step for step in steps(world, "uniform") if step[0] > world.now_ms - MINUTE_MS]
    assert gone not in {destination for *_, destination in last}


def test_children_of_a_split_are_where_the_shadow_had_their_parent() -> None:
    world = strategies_world("uniform", "cluster.observe_only=true", "cluster.shadow=uniform")
    world.run(3 * MINUTE_MS, step_ms=2_000)
    parent, place = min(shadow(world, "uniform").elsewhere.items())
    world.command("split_bundle", bundle=parent)
    world.run(16_000, step_ms=2_000)
    assert world.state is not None
    found = shadow(world, "uniform").elsewhere
    assert parent not in found
    children = [name for name in found if lies_in(name, parent)]
    assert len(children) == 2
    assert place in [found[name] for name in children], "but for what it has moved since"
    rows_ = [world.state.ledger.index[name] for name in children]
    assert (world.state.ledger.state[rows_] == STATE_CODE[State.OWNED]).all()


def lies_in(bundle: str, parent: str) -> bool:
    namespace, lower, upper = parse_bundle(bundle)
    of, low, high = parse_bundle(parent)
    return namespace == of and low <= lower and upper <= high


def test_shadow_that_raises_is_put_aside_and_its_neighbours_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = strategies_world("avg", "cluster.shadow=ballast,uniform")
    world.run(MINUTE_MS, step_ms=2_000)
    original = shadows.shadow_config  # type: ignore[attr-defined]

    def raising(config: Config, strategy: str) -> Config:
        if strategy == "ballast":
            raise RuntimeError("planted")
        return original(config, strategy)

    monkeypatch.setattr(shadows, "shadow_config", raising)
    counts = {name: len(rows(world, name)) for name in ("ballast", "uniform")}
    monkeypatch.setattr(world, "step_balancer", lambda updates: safely(world, world.state, updates))
    world.run(MINUTE_MS, step_ms=2_000)
    assert len(rows(world, "ballast")) == counts["ballast"]
    assert len(rows(world, "uniform")) > counts["uniform"]
