"""The admin service's frame: routes, rights, bodies, errors, the audit, what is done."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.service.access import Caller, Grant, Role
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Reply, Request, json_reply
from jobs.service.routes import Route, Router
from lbcore.wire.kinds.balancing_commands import Pause
from lbcore.wire.kinds.namespace_commands import UnloadNamespace
from tests.support.admin.admin_world import Balancer, Gate, make_context, write_tables
from tests.support.admin.asgi_calls import Answer, ask


async def echo(request: Request, context: AdminContext) -> Reply:
    del context
    return json_reply({**request.params, "body": request.body.decode()})


async def other(request: Request, context: AdminContext) -> Reply:
    del request, context
    return json_reply("other")


async def unload(request: Request, context: AdminContext) -> Reply:
    name = f"{request.params['tenant']}/{request.params['namespace']}"
    outcome = await context.command(UnloadNamespace(namespace=name), request)
    if outcome.status != "done":
        raise HttpError(409, outcome.reason)
    return Reply(status=204)


async def fail(request: Request, context: AdminContext) -> Reply:
    await context.command(Pause(), request)
    raise RuntimeError("nobody foresaw this")


async def hang(request: Request, context: AdminContext) -> Reply:
    await context.command(Pause(), request)
    return await asyncio.Future()


TEST_ROUTES = (
    *ROUTES,
    Route(method="POST", path="/x/fail", handler=fail),
    Route(method="POST", path="/x/hang", handler=hang),
    Route(method="GET", path="/x/{tenant}/{name}", handler=echo, role=Role.VIEWER),
    Route(method="POST", path="/x/{tenant}/{name}", handler=echo, role=Role.OPERATOR),
    Route(method="GET", path="/x/{tenant}/literal", handler=other, role=Role.VIEWER),
    Route(method="PUT", path="/x/{tenant}/{namespace}/unload", handler=unload),
)


@pytest.fixture
def app(tables: Path, balancer: Balancer) -> AdminApp:
    return AdminApp(make_context(tables, balancer), TEST_ROUTES, body_max_bytes=100)


def call(app: AdminApp, path: str, **request: object) -> Answer:
    return asyncio.run(ask(app, path, **request))  # type: ignore[arg-type]


def test_path_part_is_decoded_after_the_path_was_split(app: AdminApp) -> None:
    assert call(app, "/x/acme/a%2Fb%20c").json == {"tenant": "acme", "name": "a/b c", "body": ""}
    assert call(app, "/x/acme/literal").json == "other"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/x/acme", 404),
        ("GET", "/x//name", 404),
        ("GET", "/x/acme/name/more", 404),
        ("DELETE", "/x/acme/name", 405),
        ("POST", "/x/acme/literal", 405),
        ("HEAD", "/x/acme/name", 200),
    ],
)
def test_request_that_no_route_serves_has_a_reason(
    app: AdminApp, method: str, path: str, status: int
) -> None:
    reply = call(app, path, method=method)
    assert reply.status == status
    if status >= 400:
        assert reply.json["detail"]


def test_body_beyond_the_limit_is_refused_however_it_comes(app: AdminApp) -> None:
    parts = [b"x" * 60, b"x" * 60]
    for headers in ({"content-length": "120"}, {}):
        reply = call(app, "/x/acme/n", method="POST", body=parts, headers=headers)
        assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert call(app, "/x/acme/n", method="POST", body=[b"a", b"b"]).json["body"] == "ab"


def test_answer_older_than_asked_for_is_refused(app: AdminApp) -> None:
    assert call(app, "/v1/pins?max_age_ms=60000").status == 200
    follower = app._context.follower  # noqa: SLF001 (made old)
    view = follower.view
    assert view is not None
    follower.view = type(view)(
        snapshot=view.snapshot, confirmed_ms=view.confirmed_ms - 120_000, writer=view.writer
    )
    assert call(app, "/v1/pins?max_age_ms=60000").status == 503
    assert call(app, "/v1/pins?max_age_ms=x").status == 400


def test_command_is_sent_in_the_callers_name_and_recorded(
    app: AdminApp, balancer: Balancer
) -> None:
    app._gate = Gate([Grant(role=Role.ADMIN, tenant="acme")])  # noqa: SLF001 (as configured)
    assert call(app, "/x/acme/ns1/unload", method="PUT").status == 204
    (command,) = balancer.commands
    assert (command.kind, command.principal, command.address) == (
        "unload_namespace",
        "ada",
        "10.0.0.1",
    )
    (entry,) = balancer.entries
    assert entry.is_allowed
    assert entry.action == "PUT /x/acme/ns1/unload"
    assert entry.command_id == command.command_id


@pytest.mark.parametrize("how", ["fail", "hang"])
def test_command_of_an_action_without_an_answer_is_recorded(
    app: AdminApp, balancer: Balancer, how: str
) -> None:
    async def act() -> None:
        await asyncio.wait_for(ask(app, f"/x/{how}", method="POST"), 1.0)  # the service stops

    with pytest.raises((RuntimeError, asyncio.TimeoutError)):
        asyncio.run(act())
    (entry,) = balancer.entries
    assert entry.command_id == balancer.commands[0].command_id
    assert entry.is_allowed
    assert entry.reason


@pytest.mark.parametrize(
    ("asked", "body", "count"),
    [
        ("PUT /x/acme/ns1/unload", b"x" * 101, 1),
        ("PUT /x/acme/ns1/unload?max_age_ms=x", b"", 1),
        ("GET /x/acme/a?max_age_ms=x", b"", 0),
    ],
)
def test_action_that_is_refused_before_it_is_understood_is_recorded(
    app: AdminApp, balancer: Balancer, asked: str, body: bytes, count: int
) -> None:
    method, path = asked.split()
    assert call(app, path, method=method, body=body).status in (400, 413)
    assert [entry.is_allowed for entry in balancer.entries] == [False] * count
    assert balancer.commands == []


def test_command_that_nobody_takes_up_is_503_with_its_id(app: AdminApp, balancer: Balancer) -> None:
    balancer.answer = lambda _: None
    reply = call(app, "/x/acme/ns1/unload", method="PUT")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert balancer.commands[0].command_id in reply.json["detail"]


def test_two_routes_of_one_path_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="twice"):
        Router([TEST_ROUTES[1], TEST_ROUTES[1]])


HERE = Caller(name="admin", address="127.0.0.1")
REQUEST = Request(params={}, query={}, headers={}, body=b"", caller=HERE)


def test_done_is_told_when_the_tables_have_been_read_once_more(tmp_path: Path) -> None:
    write_tables(tmp_path)
    context = replace(make_context(tmp_path, Balancer()), catch_up_ms=60_000)

    async def tell() -> list[bool]:
        telling = asyncio.create_task(context.command(Pause(), REQUEST))
        await asyncio.sleep(0.1)
        was_told = [telling.done()]
        context.follower.poll()
        await asyncio.sleep(0.1)
        was_told.append(telling.done())
        context.views.refresh()
        return [*was_told, (await telling).status == "done"]

    assert asyncio.run(tell()) == [False, False, True]


def test_done_is_told_after_a_while_when_the_tables_can_not_be_read(tmp_path: Path) -> None:
    write_tables(tmp_path)
    context = replace(make_context(tmp_path, Balancer()), catch_up_ms=50)
    assert asyncio.run(context.command(Pause(), REQUEST)).status == "done"
