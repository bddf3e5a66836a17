"""Our own paths: every example of the OpenAPI document, roles."""

import asyncio
import gzip
import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobs.service.access import Grant, Role
from jobs.service.all_routes import IN_FRONT, ROUTES, draw_openapi
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.routes import Route
from lbcore.wire.commands import KINDS
from tests.support.admin.admin_world import BROKERS, Balancer, Gate, make_context, outcome
from tests.support.admin.asgi_calls import Answer, ask, check_answer
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter, bundles_of

SHOWN = [route for route in ROUTES if not route.is_open]
OWN = [route for route in SHOWN if route.path.startswith("/v1/")]
DOCUMENT = draw_openapi(SHOWN)
BUNDLE = bundles_of("acme/ns1", 4)[0]


@pytest.fixture
def app(tables: Path, balancer: Balancer) -> AdminApp:
    return AdminApp(make_context(tables, balancer), ROUTES)


def call(app: AdminApp, path: str, value: Any = None, **request: Any) -> Answer:
    body = b"" if value is None else json.dumps(value).encode()
    return asyncio.run(ask(app, path, body=body, **request))


@pytest.mark.parametrize("route", OWN, ids=lambda r: f"{r.method} {r.path}")
def test_example_of_the_document_is_answered_as_it_says(app: AdminApp, route: Route) -> None:
    assert route.example is not None
    reply = call(app, route.example.path, route.example.body, method=route.method)
    assert reply.status == route.example.status, reply.body
    check_answer(DOCUMENT, route, reply)


@pytest.mark.parametrize(
    "route",
    [route for route in SHOWN if route.path.startswith("/admin/") and route.method == "GET"],
    ids=lambda route: str(route.path),
)
def test_answer_on_a_path_of_pulsar_is_of_its_schema(app: AdminApp, route: Route) -> None:
    known = {"cluster": CLUSTER, "bundle": BUNDLE.rpartition("/")[2], "broker": BROKERS[0]}
    known |= {"tenant": "acme", "namespace": "ns1", "domain": "persistent", "topic": "t"}
    path = re.sub(r"{(\w+)}", lambda found: known.get(found[1], "x"), route.path)
    reply = call(app, path)
    check_answer(DOCUMENT, route, reply)
    assert reply.status < 500 or "broker-stats" in path


def test_document_has_every_path_once_and_is_served(app: AdminApp) -> None:
    document = call(app, "/v1/openapi.json").json
    assert document == json.loads(json.dumps(DOCUMENT))
    Draft202012Validator.check_schema(document["components"]["schemas"])
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(SHOWN) + len(IN_FRONT)
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"].endswith(".") for one in operations)


@pytest.mark.parametrize(
    ("path", "kind", "detail"),
    [
        ("/v1/nosuch", "application/problem+json", "detail"),
        ("/admin/v2/nosuch", "application/json", "reason"),
        ("/admin/v2/namespaces/acme/nosuch", "application/json", "reason"),
    ],
)
def test_error_is_a_problem_but_of_pulsar_on_its_paths(
    app: AdminApp, path: str, kind: str, detail: str
) -> None:
    reply = call(app, path)
    assert (reply.status, reply.headers["content-type"]) == (404, kind)
    if detail == "detail":
        title = {"type": "about:blank", "title": "Not Found", "status": 404}
        assert reply.json == {**title, "detail": "HTTP 404 Not Found"}
    else:
        assert reply.json.keys() == {"reason"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/undo",
        "/v1/bundles?by=nosuch",
        "/v1/bundles/acme/a@b/0x0_0x1/history",
        "/v1/heat?by=nosuch",
        "/v1/timeline?kinds=nosuch",
    ],
)
def test_question_that_no_table_can_answer_is_refused_before_one_is_read(
    tmp_path: Path, balancer: Balancer, path: str
) -> None:
    without_tables = AdminApp(make_context(tmp_path, balancer), ROUTES)
    assert call(without_tables, path).status == 400


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
    balancer.answer = lambda command: outcome(
        command, status=status, reason="because", result={"a": 1}
    )
    reply = call(app, "/v1/commands/unload_bundle?command_id=x1", {"bundle": BUNDLE}, method="POST")
    assert reply.status == code
    if code < HTTPStatus.BAD_REQUEST:
        named = {"status": status, "reason": "because"}
    else:
        title = HTTPStatus(code).phrase
        named = {"type": "about:blank", "title": title, "status": code, "detail": "because"}
        named["outcome"] = status
    assert reply.json == {**named, "command_id": "x1", "result": {"a": 1}}
    assert balancer.commands[0].arguments == {"bundle": BUNDLE}
    assert balancer.entries[0].command_id == "x1"


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
    app._gate = Gate([grant])  # noqa: SLF001 (as configured)
    cases = {
        "watch": ("GET", "/v1/ownership?namespace=acme/ns1", None),
        "lookups": ("POST", "/v1/lookups", {"topics": ["persistent://acme/ns1/t"]}),
        "unload": ("POST", "/v1/commands/unload_bundle", {"bundle": BUNDLE}),
        "pause_ns": ("POST", "/v1/commands/pause", {"namespace": "acme/ns1"}),
        "create": ("POST", "/v1/commands/create_namespace", {"namespace": "acme/new"}),
        "pause_all": ("POST", "/v1/commands/pause", {}),
        "drain": ("POST", "/v1/commands/drain_broker", {"broker": "broker-1"}),
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


LARGE = ["/v1/ownership", "/v1/ownership?as_of=v2", "/v1/openapi.json", "/page/core.js"]


@pytest.mark.parametrize("path", LARGE)
def test_large_answer_is_packed_for_who_takes_it_and_not_sent_twice(
    tables: Path, path: str
) -> None:
    app = AdminApp(make_context(tables), ROUTES)
    plain, packed = call(app, path), call(app, path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert call(app, path, headers={"Accept-Encoding": "gzip;q=0"}).body == plain.body
    tag = packed.headers["etag"]
    assert tag == plain.headers["etag"]
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = call(app, path, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert call(app, path, headers={"If-None-Match": '"other"'}).body == plain.body
    head = call(app, path, method="HEAD", headers={"Accept-Encoding": "gzip"})
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", tag)


def test_entity_tag_changes_with_what_it_names(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving
    app = AdminApp(context, ROUTES)

    def tags() -> list[str | None]:
        return [call(app, path).headers.get("etag") for path in ("/v1/ownership", "/v1/brokers")]

    before = tags()
    assert tags() == before
    writer.batch([Row(bundle=BUNDLE, version=2, destination=BROKERS[1])])
    context.follower.poll()
    assert [one != two for one, two in zip(tags(), before, strict=True)] == [True, False]
