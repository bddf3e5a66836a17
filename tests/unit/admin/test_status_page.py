"""The console's page, overview and heat map, and plans over HTTP."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.tables import arrow_schema, ensure_tables, table_path
from jobs.service.access import Grant, Role
from jobs.service.all_routes import FOLDER, PAGE_ROUTES, ROUTES
from jobs.service.app import AdminApp
from jobs.service.v1.showing import BUNDLES_MAX, MOMENTS_MAX, OF_BROKERS, read_heat
from lbcore.balancer.rules import PlanStatus
from lbcore.model.resources import COUNT
from lbcore.model.tables import LOAD_HISTORY
from tests.support.admin.admin_world import Gate, make_context
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.worlds.checked_world import decided, hot_world
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World


@pytest.fixture(scope="module")
def world() -> World:
    return eventful()


@pytest.fixture(scope="module")
def app(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminApp]:
    root = tmp_path_factory.mktemp("page")
    write_tables(world, root)
    with (
        mock.patch("tests.support.admin.admin_world.CLUSTER", CLUSTER),
        mock.patch("jobs.service.v1.reading.wall_ms", return_value=world.now_ms),
    ):
        yield AdminApp(replace(make_context(root), cluster=CLUSTER), ROUTES, gate=Gate(None))


def get(app: AdminApp, path: str, *grants: Grant) -> Answer:
    app._gate = Gate(grants or None)  # noqa: SLF001 (as configured)
    return asyncio.run(ask(app, path))


def scripts(app: AdminApp) -> str:
    paths = [route.path for route in PAGE_ROUTES if route.path.endswith(".js")]
    return "\n".join(get(app, path).body.decode() for path in paths)


def test_page_is_served_to_everybody_under_a_strict_policy(app: AdminApp) -> None:
    for route in PAGE_ROUTES:
        answer = get(app, route.path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert get(app, "/page/nothing.js").status == 404


def test_page_asks_for_nothing_that_its_policy_forbids(app: AdminApp) -> None:
    page = get(app, "/").body.decode()
    script = scripts(app)
    served = {route.path for route in PAGE_ROUTES}
    assert set(re.findall(r'(?:href|src)="(/[^"]*)"', page)) <= served
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son\w+=|style=", page) == []
    elsewhere = re.findall(r"https?://[^\s\"']+", page + script)
    assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", script)
    asked = set(re.findall(r"(?:ask\(|return )[`\"](/v1/\w+|/lookup/v2/topic)", script))
    known = {route.path for route in ROUTES}
    assert asked >= {"/v1/overview", "/v1/explain", "/v1/heat", "/lookup/v2/topic"}
    assert all(any(path.startswith(one) for path in known) for one in asked - {"/lookup/v2/topic"})
    imported = set(re.findall(r'from "\./([\w.]+)"', script))
    assert {f"/page/{name}" for name in imported} <= served


def test_page_has_what_its_script_looks_for(app: AdminApp) -> None:
    page = get(app, "/").body.decode()
    wanted = set(re.findall(r"\bat\(\"([\w-]+)\"\)", scripts(app)))
    assert wanted
    assert wanted <= set(re.findall(r'id="([\w-]+)"', page))
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".py"} >= {
        "index.html", "console.css", "shell.js",
    }  # fmt: skip


def test_overview_is_for_viewers_of_the_cluster(app: AdminApp) -> None:
    assert get(app, "/v1/overview").status == 401
    tenants = Grant(role=Role.VIEWER, cluster=CLUSTER, tenant="t")
    assert get(app, "/v1/overview", tenants).status == 403
    assert get(app, "/v1/overview", Grant(role=Role.VIEWER)).status == 200


def test_overview_tells_brokers_balance_and_decisions(app: AdminApp, world: World) -> None:
    found = get(app, "/v1/overview", Grant(role=Role.VIEWER)).json
    status = found["status"]
    names = {str(row["broker"]) for row in world.other_rows["brokers"]}
    assert {row["broker"] for row in status["broker_rows"]} == names
    assert status["phase"] == "ready"
    assert status["in_flight_count"] == len(status["in_flight"]) == 0
    rows = world.other_rows["load_history"]
    last = [row["traffic"] for row in rows if row["minute_ms"] == rows[-1]["minute_ms"]]
    loads = [traffic[0] + traffic[1] for traffic in last]
    assert found["balance"][-1]["brokers"] == len(loads) == 3
    wanted = max(loads) * len(loads) / sum(loads)
    assert found["balance"][-1]["imbalance"] == pytest.approx(wanted)
    assert [row["at_ms"] for row in found["balance"]] == sorted({row["minute_ms"] for row in rows})
    decisions = found["decisions"]
    assert decisions[0]["decision_id"] == world.decisions[-1]["decision_id"]
    assert [d["kind"] for d in decisions].count("skip") <= 1
    moved = {str(row["decision_id"]): row for row in decided(world, "transfer", "Overloaded")}
    told = [one for one in decisions if one["decision_id"] in moved]
    assert told
    for one in told:
        assert one["bundle"] == moved[one["decision_id"]]["bundle"]
        assert any("points apart" in text for text in one["messages"])
        assert one["outcome"] in {"helped", "ineffective"}


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
        mock.patch("jobs.service.v1.reading.wall_ms", return_value=world.now_ms),
    ):
        app = AdminApp(replace(make_context(root), cluster=CLUSTER), ROUTES)

        def get(path: str) -> tuple[int, Any]:
            answer = asyncio.run(ask(app, path))
            return answer.status, answer.json

        yield get, name


def test_list_has_each_plan_without_its_steps_and_one_plan_has_them(asked: Any) -> None:
    get, name = asked
    status, found = get("/v1/plans")
    assert status == 200
    one = next(plan for plan in found["plans"] if plan["plan"] == name)
    assert one["station"] == "done"
    assert one["done"] == one["step_count"] > 0
    assert one["after"]["max"] < one["before"]["max"]
    assert "steps" not in one
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


_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def test_grid_has_each_reported_value_in_its_place(tmp_path: Path) -> None:
    world = eventful()
    write_tables(world, tmp_path)
    reader = TableReader(tmp_path, CLUSTER)
    found = read_heat(reader, by="msg_rate", until_ms=world.now_ms, window_ms=_HOUR_MS)
    rows = world.other_rows["load_history"]
    assert found["names"] == sorted({str(row["broker"]) for row in rows})
    assert sum(cell is not None for line in found["values"] for cell in line) == len(rows)
    for row in rows:
        line = found["values"][found["names"].index(row["broker"])]
        column = (row["minute_ms"] - found["from_ms"]) // found["step_ms"]
        wanted = row["traffic"][0] + row["traffic"][1]
        assert line[column] == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("by", OF_BROKERS)
def test_every_resource_can_be_asked_for(tmp_path: Path, by: str) -> None:
    _write(tmp_path, brokers=2, bundles=3)
    reader = TableReader(tmp_path, CLUSTER)
    found = read_heat(reader, by=by, until_ms=_HOUR_MS, window_ms=_HOUR_MS)
    assert found["names"] == ["broker-0", "broker-1"]
    assert found["values"][0].count(None) == found["moments"] - 1


def test_hottest_bundles_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    _write(tmp_path, brokers=1, bundles=BUNDLES_MAX + 5)
    asked = {"by": "msg_rate_in", "until_ms": _HOUR_MS, "window_ms": 7 * 24 * _HOUR_MS}
    found = read_heat(TableReader(tmp_path, CLUSTER), broker="broker-0", **asked)
    assert found["left_out"] == 5
    assert len(found["names"]) == BUNDLES_MAX
    assert "t/n/00004" not in found["names"]
    assert "t/n/00005" in found["names"]
    assert found["moments"] <= MOMENTS_MAX


def _write(root: Path, *, brokers: int, bundles: int) -> None:
    """One minute of load; bundle number N has N messages a second."""
    ensure_tables(root)
    rates = [float(at) for at in range(bundles)]
    filled = {"percent": [50.0] * COUNT, "traffic": [1.0] * 4, "usage": 0.5, "score": 0.5}
    filled |= {"broker_group": ""}
    rows = [
        {
            **{column.name: 0 for column in LOAD_HISTORY.columns},
            **filled,
            **dict.fromkeys(("topics", "sessions"), rates),
            **{f"msg_{what}": rates for what in ("rate_in", "rate_out")},
            **{f"msg_throughput_{way}": rates for way in ("in", "out")},
            "cluster": CLUSTER,
            "broker": f"broker-{at}",
            "bundles": [f"t/n/{number:05}" for number in range(bundles)],
            "minute_ms": _HOUR_MS - _MINUTE_MS,
        }
        for at in range(brokers)
    ]
    shown = pa.Table.from_pylist(rows, schema=arrow_schema(LOAD_HISTORY))
    write_deltalake(str(table_path(root, LOAD_HISTORY.name)), shown, mode="append")
