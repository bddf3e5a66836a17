"""Whatever JSON is sent, the answer is a sentence with 4xx and nothing is asked of the balancer."""

import asyncio
import json
from typing import Any

import pytest

from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import CommandEnd
from jobs.service.exchange import VALUES_MAX
from jobs.service.routes import Route
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command
from tests.support.admin.admin_world import Balancer, make_context, write_tables
from tests.support.admin.asgi_calls import Answer, ask
from tests.unit.wire.test_commands import FULL

HOSTILE = (
    "1e999",
    "-1e999",
    "NaN",
    "-Infinity",
    "1" + "0" * 400,
    "1" + "0" * 5_000,
    "-1" + "0" * 25,
    '"\\ud800"',
    "[1e999]",
    '{"x": 1e999}',
    "[" * 500 + "]" * 500,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 900 + "1" + "}" * 900,
)
"""JSON texts in place of a value: none of them is one that everybody can read and write again."""

MANY = {
    "numbers": "[" + "1," * VALUES_MAX + "1]",
    "lists": "[" + "[]," * VALUES_MAX + "[]]",
    "fields": "{" + ",".join(f'"{n}":0' for n in range(VALUES_MAX + 1)) + "}",
}
"""More than is parsed in one call."""

SLOT = "@@"
WRITING = [route for route in ROUTES if route.method in ("POST", "PUT")]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AdminApp:
    root = tmp_path_factory.mktemp("hostile") / "tables"
    write_tables(root)
    balancer = Balancer()
    balancer.answer = written
    return AdminApp(make_context(root, balancer), ROUTES)


def written(command: Command) -> CommandEnd:
    """Done, once it has been written for Kafka as the real port does."""
    format_message(command)
    return CommandEnd(command_id=command.command_id, status="done", reason="", result={})


def send(app: AdminApp, path: str, body: str, method: str = "POST") -> Answer:
    return asyncio.run(ask(app, path, body=body.encode(), method=method))


@pytest.mark.parametrize("name", MANY)
def test_body_of_very_many_values_is_refused_before_it_is_parsed(
    app: AdminApp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.service.exchange.orjson.loads", lambda _: pytest.fail("parsed"))
    answer = send(app, "/v1/lookups", MANY[name])
    assert answer.status == 400
    assert "at most 25000 values" in answer.json["detail"]


def with_slots(body: Any) -> list[Any]:
    """The body, a slot in place of one of its values in each."""
    if not isinstance(body, dict):
        return []
    return [{**body, name: SLOT} for name in body]


def filled(body: Any, hostile: str) -> str:
    return json.dumps(body).replace(f'"{SLOT}"', hostile)


@pytest.mark.parametrize("kind", sorted(FULL))
def test_a_command_with_hostile_json_is_refused_with_a_sentence(app: AdminApp, kind: str) -> None:
    for body in with_slots(FULL[kind]):
        for hostile in HOSTILE:
            reply = send(app, f"/v1/commands/{kind}", filled(body, hostile))
            assert 400 <= reply.status < 500, (body, hostile[:40], reply.status)
            assert len(reply.json["detail"]) > 10


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: str(text)[:12])
@pytest.mark.parametrize("key", ["shedding.avg_low_threshold", "shedding.avg_low_hits", "x"])
def test_a_setting_of_hostile_json_is_refused_with_a_sentence(
    app: AdminApp, key: str, hostile: str
) -> None:
    reply = send(app, "/v1/commands/set_config", f'{{"values": {{"{key}": {hostile}}}}}')
    assert reply.status == 400
    assert reply.json["detail"]


@pytest.mark.parametrize("route", WRITING, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_answers_hostile_json_with_an_error_of_ours(app: AdminApp, route: Route) -> None:
    example = route.example
    path = example.path if example else route.path.replace("{", "").replace("}", "")
    bodies = [SLOT, {"x": SLOT}, *with_slots(example.body if example else None)]
    for body in bodies:
        for hostile in HOSTILE:
            reply = send(app, path, filled(body, hostile), route.method)
            assert reply.status < 500 or reply.status == 501, (body, hostile[:40], reply.body)
