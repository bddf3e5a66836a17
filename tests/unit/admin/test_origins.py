"""Requests that a page elsewhere could send, and bodies of hostile JSON."""

import asyncio
import json
import socket
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.command_client import CommandOutcome
from jobs.service.access_control import FOREIGN_HOST, FOREIGN_ORIGIN, FOREIGN_TYPE, OriginGuard
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.exchange import VALUES_MAX, HttpError
from jobs.service.routes import SAFE, Route
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command
from tests.support.admin.admin_world import Balancer, make_context, outcome, write_tables
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.admin.fake_pulsar import FOLDER
from tests.unit.wire.test_commands import FULL

JSON = {"content-type": "application/json"}
OURS = {"host": "127.0.0.1:8090"}


def scope(method: str = "GET", local: str = "127.0.0.1", **headers: str) -> dict[str, Any]:
    given = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()]
    return {"method": method, "headers": given, "server": (local, 8090)}


def status_of(origins: OriginGuard, found: dict[str, Any]) -> int:
    try:
        origins.check_host(found)
        if found["method"] not in SAFE:
            origins.check_write(found)
    except HttpError as error:
        return error.status
    return 200


HOSTS = [
    ("127.0.0.1", 200),
    ("127.0.0.1:8090", 200),
    ("127.0.0.2:1", 200),
    ("localhost", 200),
    ("LOCALHOST:8090", 200),
    ("localhost.", 200),
    ("[::1]:8090", 200),
    ("[::1]", 200),
    ("[0:0:0:0:0:0:0:1]:1", 200),
    ("[::ffff:127.0.0.1]:8090", 200),
    ("[fd00::7]", 200),
    ("[fd00::7]:1", 200),
    ("[fd00::8]:1", 421),
    ("::1", 421),
    ("[::1].evil.example", 421),
    ("[::1]evil.example", 421),
    ("ballast.example", 200),
    ("ballast.example:81", 200),
    ("other.example:7", 200),
    ("other.example", 421),
    ("evil.example", 421),
    ("evil.example:8090", 421),
    ("localhost.evil.example", 421),
    ("127.0.0.1.evil.example", 421),
    ("evil.example#127.0.0.1", 421),
    ("evil.example/localhost", 421),
    ("localhost@evil.example", 421),
    ("evil.example@localhost", 421),
    ("localhost, evil.example", 421),
    ("10.0.0.7", 421),
    ("0.0.0.0", 421),  # noqa: S104 (nothing listens)
    ("2130706433", 421),
    ("0x7f.1", 421),
    ("lookup", 421),
    ("", 421),
    ("[::1", 421),
    ("localhost:port", 421),
    ("\xff", 421),
]


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_service_on_loopback_answers_under_its_own_names_only(host: str, status: int) -> None:
    origins = OriginGuard("127.0.0.1", ["ballast.example", "other.example:7", "[fd00::7]"])
    for _ in range(2):
        assert status_of(origins, scope(host=host)) == status
    assert origins.refused[FOREIGN_HOST] == 2 * (status == 421)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("10.0.0.7:8090", 200),
        ("10.0.0.8", 421),
        ("lookup-1:8090", 200),
        (socket.gethostname(), 200),
        ("evil.example", 421),
    ],
)
def test_service_on_every_address_answers_under_names_that_nobody_can_own(
    host: str, status: int
) -> None:
    origins = OriginGuard("0.0.0.0")  # noqa: S104 (nothing listens)
    assert status_of(origins, scope(host=host, local="10.0.0.7")) == status


@pytest.mark.parametrize(
    ("host", "local", "status"),
    [
        ("[fd00::7]:8090", "fd00::7", 200),
        ("[fd00:0::0007]:8090", "fd00::7", 200),
        ("[fe80::1]:8090", "fe80::1%eth0", 200),
        ("[fe80::1%25eth0]:8090", "fe80::1%eth0", 200),
        ("10.0.0.7:8090", "::ffff:10.0.0.7", 200),
        ("[::ffff:10.0.0.7]", "10.0.0.7", 200),
        ("[fd00::8]", "fd00::7", 421),
    ],
)
def test_address_may_be_written_in_every_way(host: str, local: str, status: int) -> None:
    assert status_of(OriginGuard("::"), scope(host=host, local=local)) == status


def test_request_without_a_host_is_no_browsers() -> None:
    assert status_of(OriginGuard("127.0.0.1"), scope()) == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, 200),
        ({"content-type": "Application/JSON; charset=utf-8"}, 200),
        ({"content-type": "application/vnd.partitioned-topic-metadata+json"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "text/plain; application/json"}, 415),
        ({"content-type": "text/plain;charset=application/json"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/jsonx"}, 415),
        ({"content-type": ""}, 415),
        ({"content-length": "2"}, 415),
        ({"transfer-encoding": "chunked"}, 415),
        ({"content-type": "text/plain", "authorization": "Bearer abc"}, 200),
        ({"content-type": "text/plain", "authorization": "Basic abc"}, 415),
        ({**JSON, "origin": "http://127.0.0.1:8090"}, 200),
        ({**JSON, "origin": "http://ballast.example"}, 200),
        ({**JSON, "origin": "https://ballast.example"}, 200),
        ({**JSON, "origin": "https://ballast.example:444"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:3000"}, 403),
        ({**JSON, "origin": "http://127.0.0.1"}, 403),
        ({**JSON, "origin": "http://evil.example"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:8090.evil.example"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:8090@evil.example"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "origin": ""}, 403),
        ({**JSON, "origin": "http://[bad"}, 403),
        ({**JSON, "origin": "http://evil.example", "authorization": "Bearer abc"}, 403),
        ({**JSON, "sec-fetch-site": "cross-site"}, 403),
        ({**JSON, "sec-fetch-site": "same-site"}, 403),
        ({**JSON, "sec-fetch-site": "same-origin"}, 200),
        ({**JSON, "sec-fetch-site": "none"}, 200),
    ],
)
def test_change_that_a_page_elsewhere_could_ask_for_is_refused(
    method: str, headers: dict[str, str], status: int
) -> None:
    origins = OriginGuard("127.0.0.1", ["ballast.example"])
    assert status_of(origins, scope(method, **OURS, **headers)) == status
    assert origins.refused[FOREIGN_TYPE] == (status == 415)
    assert origins.refused[FOREIGN_ORIGIN] == (status == 403)


@pytest.mark.parametrize("name", [b"origin", b"sec-fetch-site"])
def test_change_that_names_two_pages_is_refused_when_one_is_elsewhere(name: bytes) -> None:
    own, other = {
        b"origin": (b"http://127.0.0.1:8090", b"http://evil.example"),
        b"sec-fetch-site": (b"same-origin", b"cross-site"),
    }[name]
    origins = OriginGuard("127.0.0.1", [])
    for values in ((own, other), (other, own)):
        asked = scope("PUT", **OURS, **JSON)
        asked["headers"] += [(name, value) for value in values]
        assert status_of(origins, asked) == 403


def test_change_without_a_body_needs_no_type_where_its_method_is_no_forms() -> None:
    origins = OriginGuard("127.0.0.1")
    found = {m: status_of(origins, scope(m, **OURS)) for m in ("POST", "PUT", "DELETE", "PATCH")}
    assert found == {"POST": 415, "PUT": 200, "DELETE": 200, "PATCH": 200}


def test_every_recorded_request_of_pulsars_tools_is_obeyed() -> None:
    origins = OriginGuard("127.0.0.1")
    changes = [
        (exchange["method"], exchange.get("requestHeaders", {}))
        for path in FOLDER.glob("*.json")
        for exchange in json.loads(path.read_text())["exchanges"]
        if exchange["method"] not in SAFE
    ]
    assert len(changes) > 10
    for method, headers in changes:
        given = {k.lower(): v for k, v in headers.items() if k.lower() != "host"}
        assert status_of(origins, scope(method, **OURS, **given)) == 200


@cache
def context_of(tables: Path) -> AdminContext:
    return make_context(tables)


def call(tables: Path, balancer: Balancer, path: str, **more: Any) -> Answer:
    origins = OriginGuard("127.0.0.1")
    app = AdminApp(replace(context_of(tables), commands=balancer), ROUTES, origins=origins)
    return asyncio.run(ask(app, path, **more))


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.method not in SAFE], ids=lambda r: f"{r.method} {r.path}"
)
def test_no_route_that_changes_something_obeys_a_form(tables: Path, route: Any) -> None:
    path = "/".join("acme" if part.startswith("{") else part for part in route.path.split("/"))
    attacks = ({"content-type": "text/plain"}, {**JSON, "origin": "http://evil.example"})
    for headers in attacks:
        balancer = Balancer()
        given = {**OURS, **headers}
        found = call(tables, balancer, path, method=route.method, headers=given, body=b"{}")
        assert found.status in (403, 415)
        assert not balancer.commands
        (entry,) = balancer.entries
        assert not entry.is_allowed


@pytest.mark.parametrize("path", ["/admin/v2/brokers/leaderBroker", "/admin/v2/clusters/c1"])
def test_address_of_the_service_is_never_what_the_caller_calls_it(tables: Path, path: str) -> None:
    for headers in ({"host": "evil.example:1"}, {"x-forwarded-host": "evil.example"}):
        found = call(tables, Balancer(), path, headers=headers)
        assert found.status == 200
        assert "evil" not in json.dumps(found.json)


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


def written(command: Command) -> CommandOutcome:
    """Done, once it has been written for Kafka as the real port does."""
    format_message(command)
    return outcome(command)


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
