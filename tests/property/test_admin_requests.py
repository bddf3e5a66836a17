"""Requests of any kind to every route: listed statuses, reasons, and no crash."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.admin.all_routes import ROUTES
from jobs.admin.app import AdminApp
from jobs.admin.routes import Route
from jobs.admin.v1.openapi import draw_openapi
from tests.admin_world import Balancer, make_context, write_tables
from tests.asgi_calls import ask

OWN = [route for route in ROUTES if route.about is not None and not route.path.endswith("/watch")]
DOCUMENT = draw_openapi(ROUTES)

WORDS = st.sampled_from(
    ["acme", "ns1", "free", "0x00000000_0xffffffff", "broker-1:8080", "persistent", "t", "LARGEST"]
) | st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["bundle", "namespace", "broker", "destination", "topics", "values", "parts", "positions"]
)
BODIES = (
    st.just(b"")
    | st.binary(max_size=40)
    | (VALUES | st.dictionaries(NAMES, VALUES, max_size=4)).map(lambda v: json.dumps(v).encode())
)
QUERY_NAMES = st.sampled_from(
    ["namespace", "as_of", "from", "to", "limit", "after", "timeout_ms", "command_id", "max_age_ms"]
)
QUERIES = st.dictionaries(QUERY_NAMES, WORDS | st.integers().map(str), max_size=3)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AdminApp:
    root = tmp_path_factory.mktemp("requests") / "tables"
    write_tables(root)
    return AdminApp(make_context(root, Balancer()), ROUTES)


def request_of(data: st.DataObject, route: Route) -> tuple[str, bytes]:
    """A path with its query, and a body."""
    parts = [
        quote(data.draw(WORDS.filter(bool)), safe="") if part.startswith("{") else part
        for part in route.path.split("/")
    ]
    query = "&".join(f"{k}={quote(v, safe='')}" for k, v in data.draw(QUERIES).items())
    return f"{'/'.join(parts)}?{query}", data.draw(BODIES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), route=st.sampled_from(OWN))
def test_request_to_an_own_path_is_answered_as_the_document_lists(
    app: AdminApp, data: st.DataObject, route: Route
) -> None:
    path, body = request_of(data, route)
    reply = asyncio.run(ask(app, path, method=route.method, body=body))
    listed: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    assert str(reply.status) in listed, (route.method, path, body, reply)
    if reply.status >= 400:
        assert reply.json.get("reason") or reply.json.get("status")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD", "X"]),
    path=st.text(alphabet="/v1adminbrokes%2F.{}~é ", max_size=40),
    body=BODIES,
)
def test_request_to_any_path_is_answered_with_a_reason(
    app: AdminApp, method: str, path: str, body: bytes
) -> None:
    reply = asyncio.run(ask(app, f"/{path}", method=method, body=body))
    assert reply.status in (200, 204, 400, 404, 405, 409, 412)
