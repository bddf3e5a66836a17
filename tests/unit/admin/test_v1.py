"""Our own paths: every example of the OpenAPI document, roles."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.service.access import Caller, Grant, Role
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext, CommandEnd
from jobs.service.routes import Example, Route
from jobs.service.v1.openapi import draw_openapi
from lbcore.wire.commands import KINDS
from tests.support.admin.admin_world import Balancer, make_context, write_tables
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.tables.lookup_tables import Row, TablesWriter, bundles_of

OWN = [route for route in ROUTES if route.about is not None]
BUNDLE = bundles_of("acme/ns1", 4)[0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("v1") / "tables"
    write_tables(root)
    return root


@pytest.fixture
def balancer() -> Balancer:
    return Balancer()


@pytest.fixture
def app(tables: Path, balancer: Balancer) -> AdminApp:
    return AdminApp(make_context(tables, balancer), ROUTES)


def call(app: AdminApp, path: str, value: Any = None, **request: Any) -> Answer:
    body = b"" if value is None else json.dumps(value).encode()
    return asyncio.run(ask(app, path, body=body, **request))


def fits(found: Any, wanted: Any) -> bool:
    """Whether an answer is the example's; None there stands for whatever varies."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            (key in found) and fits(found[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(fits(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return wanted is None or found == wanted


@pytest.mark.parametrize("route", OWN, ids=lambda r: f"{r.method} {r.path}")
def test_example_of_the_document_is_what_is_answered(app: AdminApp, route: Route) -> None:
    assert route.about is not None
    example: Example = route.about.example
    reply = call(app, example.path, example.body, method=route.method)
    assert reply.status == example.status, reply.body
    assert example.answer is None or fits(reply.json, example.answer), reply.json


def test_document_has_every_own_path_once_and_is_served(app: AdminApp) -> None:
    document = call(app, "/v1/openapi.json").json
    assert document == json.loads(json.dumps(draw_openapi(OWN)))
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(OWN)
    assert len({one["operationId"] for one in operations}) == len(OWN)
    assert all(one["summary"].endswith(".") for one in operations)
    without = [r for r in ROUTES if r.path.startswith("/v1/") and r.about is None]
    assert without == []


def test_every_kind_of_command_can_be_asked_for(app: AdminApp, balancer: Balancer) -> None:
    for kind in KINDS:
        assert call(app, f"/v1/commands/{kind}", {"x": 1}, method="POST").status == 400
    assert balancer.commands == []
    reply = call(app, "/v1/commands/king", {}, method="POST")
    assert reply.status == 404


@pytest.mark.parametrize(
    ("status", "code"), [("done", 200), ("accepted", 202), ("refused", 409), ("timed_out", 504)]
)
def test_outcome_of_a_command_is_told_by_the_status(
    app: AdminApp, balancer: Balancer, status: str, code: int
) -> None:
    balancer.answer = lambda command: CommandEnd(
        command_id=command.command_id, status=status, reason="because", result={"a": 1}
    )
    reply = call(app, f"/v1/bundles/{BUNDLE}/unload?command_id=x1", {}, method="PUT")
    assert reply.status == code
    assert reply.json == {
        "command_id": "x1",
        "status": status,
        "reason": "because",
        "result": {"a": 1},
    }
    assert balancer.commands[0].arguments == {"bundle": BUNDLE}
    assert balancer.entries[0].command_id == "x1"


class Named:
    """A gate that lets one caller in."""

    def __init__(self, *grants: Grant) -> None:
        self.grants = grants

    def caller(self, scope: object) -> Caller:
        del scope
        return Caller(name="ada", address="", grants=self.grants)


ACME = {"tenant": "acme", "cluster": "c1"}


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (Grant(role=Role.VIEWER, **ACME), {"watch", "lookups"}),
        (Grant(role=Role.OPERATOR, **ACME), {"watch", "lookups", "unload", "pause_ns"}),
        (
            Grant(role=Role.ADMIN, **ACME),
            {"watch", "lookups", "unload", "pause_ns", "create"},
        ),
        (Grant(role=Role.ADMIN, cluster="c2"), set()),
        (
            Grant(role=Role.OPERATOR, cluster="c1"),
            {"watch", "lookups", "unload", "pause_ns", "pause_all", "drain"},
        ),
    ],
)
def test_command_takes_its_role_on_what_it_touches(
    app: AdminApp, balancer: Balancer, grant: Grant, allowed: set[str]
) -> None:
    app._gate = Named(grant)  # noqa: SLF001 (as configured)
    cases = {
        "watch": ("GET", "/v1/ownership?namespace=acme/ns1", None),
        "lookups": ("POST", "/v1/lookups", {"topics": ["persistent://acme/ns1/t"]}),
        "unload": ("POST", "/v1/commands/unload_bundle", {"bundle": BUNDLE}),
        "pause_ns": ("PUT", "/v1/pause", {"namespace": "acme/ns1"}),
        "create": ("POST", "/v1/commands/create_namespace", {"namespace": "acme/new"}),
        "pause_all": ("PUT", "/v1/pause", {}),
        "drain": ("PUT", "/v1/brokers/broker-1/drain", {}),
        "settings": ("POST", "/v1/commands/reset_config", {"keys": []}),
        "other": ("POST", "/v1/commands/unload_bundle", {"bundle": BUNDLE.replace("acme", "x")}),
    }
    if grant.tenant == "*":
        cases.pop("other")
    replies = {name: call(app, p, v, method=m).status for name, (m, p, v) in cases.items()}
    assert {name for name, status in replies.items() if status == 200} == allowed
    assert {s for name, s in replies.items() if name not in allowed} == {403}
    refused = [entry for entry in balancer.entries if not entry.is_allowed]
    assert len(refused) == len(cases) - len(allowed)


def test_ownership_is_paged_in_name_order(app: AdminApp) -> None:
    seen, after = [], ""
    while True:
        page = call(app, f"/v1/ownership?limit=4&after={after}").json
        seen += [row["bundle"] for row in page["bundles"]]
        after = page["next"]
        if not after:
            break
    assert seen == sorted(seen)
    assert len(seen) == 9


@pytest.fixture
def moving(tmp_path: Path) -> tuple[TablesWriter, AdminContext]:
    """Tables that a test writes on to, and a context that follows them by hand."""
    root = tmp_path / "tables"
    writer = write_tables(root)
    return writer, make_context(root)


def move(writer: TablesWriter, version: int, broker: str = "broker-2:8080") -> None:
    writer.batch([Row(bundle=BUNDLE, version=version, destination=broker)])


def test_earlier_ownership_and_differences_come_from_the_events(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving
    app = AdminApp(context, ROUTES)
    before_ms = writer.now_ms
    move(writer, 2)
    for moment in (before_ms, "v2"):
        old = call(app, f"/v1/ownership?namespace=acme/ns1&as_of={moment}").json["bundles"]
        assert (old[0]["bundle"], old[0]["destination"]) == (BUNDLE, "broker-1:8080")
    (change,) = call(app, f"/v1/ownership/diff?from={before_ms}").json["changes"]
    assert change["before"]["destination"] == "broker-1:8080"
    assert change["after"]["destination"] == "broker-2:8080"
    assert call(app, "/v1/ownership?as_of=yesterday").status == 400
    assert call(app, "/v1/ownership?as_of=v99").status == 503
    history = call(app, f"/v1/bundles/{BUNDLE}/history").json["events"]
    assert [row["version_id"] for row in history] == [1, 2]
