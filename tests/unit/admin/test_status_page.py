"""The page at `/` is whole, safe and open; what it shows is asked with the caller's rights."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest

from jobs.service.access import Caller, Grant, Role
from jobs.service.all_routes import FOLDER, PAGE_ROUTES, ROUTES
from jobs.service.app import AdminApp
from jobs.service.exchange import HttpError
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.worlds.checked_world import decided
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World


class Gate:
    """Lets nobody in, or one with these grants."""

    def __init__(self, *grants: Grant) -> None:
        self.grants = grants

    def caller(self, scope: object) -> Caller:
        del scope
        if not self.grants:
            raise HttpError(401, "Authentication required")
        return Caller(name="ada", address="", grants=self.grants)


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
        yield AdminApp(replace(make_context(root), cluster=CLUSTER), ROUTES, gate=Gate())


def get(app: AdminApp, path: str, *grants: Grant) -> Answer:
    app._gate = Gate(*grants)  # noqa: SLF001 (as configured)
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
    asked = set(re.findall(r"ask\([`\"](/v1/\w+|/lookup/v2/topic)", script))
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
