"""Every route of the table × everybody who may ask: let in or refused, as docs/security.md says."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import IO

import pytest

from jobs.service.access import Grant, Role
from jobs.service.all_routes import FOLDER, ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.routes import Route
from jobs.service.v1.reading import readers
from tests.support.admin.admin_world import Balancer, Gate, make_context, write_tables
from tests.support.admin.asgi_calls import ask

ASSETS = (".css", ".js", ".svg", ".md")
# The files of the console hold nothing of the cluster: those in their folder, and only those.
OPEN = {"/", *(f"/page/{path.name}" for path in FOLDER.glob("*.*") if path.suffix in ASSETS)}
SQL = "/v1/sql"
OF_TENANTS = (
    "/admin/v2/namespaces/{tenant}",
    "/admin/v2/{domain}/",
    "/admin/{domain}/",
    "/admin/v2/schemas/",
)
NAMES = {
    "tenant": "acme",
    "namespace": "free",
    **dict.fromkeys(("bundle", "range"), "0x00000000_0xffffffff"),
    "domain": "persistent",
    "cluster": "c1",
    "kind": "pause",
    **{name: name for name in ("topic", "broker", "group", "policy", "key", "value", "version")},
    **{name: name for name in ("allocator", "command_id", "decision_id", "plan")},
}

CALLERS = {
    "nobody": None,
    "without a role": (),
    "admin of all clusters": (Grant(role=Role.ADMIN),),
    "viewer of another cluster": (Grant(role=Role.VIEWER, cluster="c2"),),
    **{
        f"{role.name.lower()} of {where}": (Grant(role=role, cluster="c1", tenant=tenant),)
        for role in Role
        for where, tenant in (("the tenant", "acme"), ("another", "other"), ("all", "*"))
    },
}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> AdminContext:
    root: Path = tmp_path_factory.mktemp("rights") / "tables"
    write_tables(root)
    return make_context(root, Balancer())


def needed(route: Route) -> tuple[Role, str] | None:
    """The role that the page of security asks for, and of which tenant; None = a proof is enough.

    From method and path alone, so that a new route is held to the rule, whatever it declares.
    """
    if route.path == "/v1/openapi.json":
        return None
    path, tenant = route.path, "acme" if "{tenant}" in route.path else "*"
    if path == SQL:
        return Role.ADMIN, "*"
    is_read = route.method == "GET" or path == "/v1/lookups"
    if path == "/v1/lookups":
        return Role.VIEWER, "acme"  # of its topic
    if path.startswith("/v1/"):
        if is_read:
            return Role.VIEWER, tenant
        return Role.OPERATOR, tenant
    is_of_tenant = path.startswith(OF_TENANTS) and not path.endswith(("/unload", "/split"))
    return (Role.VIEWER if is_read else Role.ADMIN), tenant if is_of_tenant else "*"


def may(grants: tuple[Grant, ...], wanted: tuple[Role, str] | None, clusters: str) -> bool:
    """Whether one of the grants is the role, or more, on the tenant, or on all."""
    return wanted is None or any(
        one.role >= wanted[0] and one.cluster in clusters and one.tenant in ("*", wanted[1])
        for one in grants
    )


async def read_elsewhere(*question: object) -> tuple[IO[bytes], str]:
    del question
    return BytesIO(b"{}"), "1"


@pytest.mark.parametrize("who", CALLERS)
def test_route_lets_in_whom_the_page_of_security_names_and_nobody_else(
    context: AdminContext, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ask", read_elsewhere)
    grants, wrong = CALLERS[who], []
    app = AdminApp(context, ROUTES, gate=Gate(grants))
    for route in ROUTES:
        path = route.path.format_map(NAMES)
        body = b'{"topics":["persistent://acme/free/t"]}' if path == "/v1/lookups" else b""
        query = {"/v1/watch": "?last_event_id=never"}.get(path, "")
        answer = asyncio.run(ask(app, path + query, method=route.method, body=body))
        refused = 401 if grants is None else 403
        clusters = "*" if path == SQL else "c1*"  # its rows are of all clusters
        is_let_in = route.is_open or (grants is not None and may(grants, needed(route), clusters))
        if (answer.status == refused) is is_let_in:
            wrong.append((route.method, route.path, answer.status))
    assert wrong == []
    assert {route.path for route in ROUTES if route.is_open} == OPEN
