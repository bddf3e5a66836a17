"""Plans over HTTP: those that there are, one with its steps, and the way back of what was done."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from lbcore.balancer.state.rules import PlanStatus
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import ask
from tests.support.worlds.checked_world import hot_world
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER, World


def _until(world: World, station: PlanStatus) -> str:
    """Run until a plan is there; its name."""
    assert world.state is not None
    for _ in range(600):
        world.run(1_000)
        for name, one in world.state.rules.proposals.items():
            if one.station is station:
                return name
    raise AssertionError(f"no plan {station.value}")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Status and answer of a path, over a world in which one plan is done; and its name."""
    world = hot_world("cluster.approval=ask")
    world.command("approve_plan", plan=_until(world, PlanStatus.WAITS))
    name = _until(world, PlanStatus.DONE)
    bundle, owner = min((str(row["bundle"]), str(row["destination"])) for row in world.newest())
    other = next(broker for broker in sorted(world.brokers) if broker != owner)
    world.command("propose_plan", moves={bundle: other}, plan="mine")
    world.run(2_000)
    root: Path = tmp_path_factory.mktemp("plans")
    write_tables(world, root)
    with (
        mock.patch("tests.support.admin.admin_world.CLUSTER", CLUSTER),
        mock.patch("jobs.service.v1.planning.wall_ms", return_value=world.now_ms),
    ):
        app = AdminApp(replace(make_context(root), cluster=CLUSTER), ROUTES)

        def get(path: str) -> tuple[int, Any]:
            answer = asyncio.run(ask(app, path))
            return answer.status, answer.json

        yield get, name


def test_list_has_each_plan_and_its_load_without_its_steps(asked: Any) -> None:
    get, name = asked
    status, found = get("/v1/plans")
    assert status == 200
    one = next(plan for plan in found["plans"] if plan["plan"] == name)
    assert one["station"] == "done"
    assert one["done"] == one["step_count"] > 0
    assert one["after"]["max"] < one["before"]["max"]
    assert "steps" not in one


def test_one_plan_has_its_steps_and_an_unknown_one_is_not_found(asked: Any) -> None:
    get, name = asked
    status, one = get(f"/v1/plans/{name}")
    assert status == 200
    assert [step["became"] for step in one["steps"]] == ["done"] * one["step_count"]
    status, found = get("/v1/plans/nosuch")
    assert status == 404
    assert "no plan nosuch" in found["detail"]


@pytest.mark.parametrize("by", ["plan", "since"])
def test_way_back_leads_each_bundle_to_whom_it_was_taken_from(asked: Any, by: str) -> None:
    get, name = asked
    steps = get(f"/v1/plans/{name}")[1]["steps"]
    query = f"plan={name}" if by == "plan" else "since_ms=3600000"
    status, found = get(f"/v1/undo?{query}")
    assert status == 200
    assert found["moves"] == {step["bundle"]: step["source"] for step in steps}
    assert found["left"] == []


def test_way_back_of_nothing_is_refused_in_words(asked: Any) -> None:
    get, _ = asked
    assert get("/v1/undo")[0] == 400
    assert get("/v1/undo?plan=a&since_ms=5")[0] == 400
    assert get("/v1/undo?plan=a&drain=broker-0:8080")[0] == 400
    for query, why in (
        ("plan=nosuch", "there is no plan nosuch"),
        ("plan=mine", "nothing of plan mine was carried out"),
        ("drain=broker-0:8080", "no command has drained broker-0:8080"),
    ):
        status, found = get(f"/v1/undo?{query}")
        assert status == 409
        assert found["detail"].startswith(f"there is nothing to undo: {why}")
