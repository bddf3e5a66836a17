"""Requests of any kind to every route: listed statuses, reasons, and no crash."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.service.all_routes import ROUTES, draw_openapi
from jobs.service.app import AdminApp
from jobs.service.routes import Route
from tests.support.admin.admin_world import Balancer, make_context, write_tables
from tests.support.admin.asgi_calls import ask, check_answer, operation_of

STREAM = "text/event-stream"  # goes on until its client leaves
SHOWN = [route for route in ROUTES if not route.is_open and route.media_type != STREAM]
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


AGES = ("x-ballast-table-version", "x-ballast-age-ms", "x-ballast-writer-silent-ms")


def fitting(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema of the document's kind."""
    kind = schema.get("type")
    if kind == "integer":
        return st.integers(min_value=schema.get("minimum"), max_value=1 << 60)
    if kind == "array":
        items = fitting(schema.get("items", {}))
        return st.lists(items, max_size=min(3, schema.get("maxItems", 3)))
    if kind == "object":
        known = {name: fitting(part) for name, part in schema.get("properties", {}).items()}
        required = {name: known.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=known)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "string": WORDS,
        "boolean": st.booleans(),
        "number": st.floats(allow_nan=False, allow_infinity=False),
    }
    return plain.get(kind, VALUES)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AdminApp:
    root = tmp_path_factory.mktemp("requests") / "tables"
    write_tables(root)
    return AdminApp(make_context(root, Balancer()), ROUTES)


def request_of(data: st.DataObject, route: Route, operation: Mapping[str, Any]) -> Any:
    """A path with its query, and a body: as the document says, or otherwise."""
    parts = [
        quote(data.draw(WORDS.filter(bool)), safe="") if part.startswith("{") else part
        for part in route.path.split("/")
    ]
    if data.draw(st.booleans()):
        query, body = data.draw(QUERIES), data.draw(BODIES)
    else:
        shared = DOCUMENT["components"]["parameters"]
        known = [
            shared.get(str(one.get("$ref")).rpartition("/")[2], one)
            for one in operation["parameters"]
        ]
        told = [one for one in known if one["in"] == "query"]
        chosen = data.draw(st.lists(st.sampled_from(told), max_size=3))
        query = {one["name"]: str(data.draw(fitting(one["schema"]))) for one in chosen}
        content = operation.get("requestBody", {"content": {}})["content"]
        schema = content.get("application/json", {"schema": None})["schema"]
        body = b"" if schema is None else json.dumps(data.draw(fitting(schema))).encode()
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"{'/'.join(parts)}?{text}", body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), route=st.sampled_from(SHOWN))
def test_request_to_any_route_is_answered_as_the_document_says(
    app: AdminApp, data: st.DataObject, route: Route
) -> None:
    path, body = request_of(data, route, operation_of(DOCUMENT, route))
    reply = asyncio.run(ask(app, path, method=route.method, body=body))
    check_answer(DOCUMENT, route, reply)
    assert [int(reply.headers[name]) for name in AGES[:2]] >= [0, 0]
    assert int(reply.headers[AGES[2]]) >= -1


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
