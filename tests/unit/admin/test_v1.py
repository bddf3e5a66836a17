"""Our own paths: every example of the OpenAPI document, roles, watching."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.admin.about import Example
from jobs.admin.access import Caller, Grant, Role
from jobs.admin.all_routes import ROUTES
from jobs.admin.app import AdminApp
from jobs.admin.changes import END, ChangeFeed, format_place, parse_place
from jobs.admin.context import AdminContext, CommandOutcome
from jobs.admin.routes import Route
from jobs.admin.v1.commands import OPERATING
from jobs.admin.v1.openapi import draw_openapi
from jobs.admin.v1.watch import Watcher
from lbcore.wire.commands import KINDS
from tests.admin_world import Balancer, make_context, write_tables
from tests.asgi_calls import Answer, ask
from tests.lookup_tables import CLUSTER, Row, TablesWriter, bundles_of

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
    assert KINDS.keys() >= OPERATING
    assert balancer.commands == []
    reply = call(app, "/v1/commands/king", {}, method="POST")
    assert reply.status == 404


@pytest.mark.parametrize(
    ("status", "code"), [("done", 200), ("accepted", 202), ("refused", 409), ("timed_out", 504)]
)
def test_outcome_of_a_command_is_told_by_the_status(
    app: AdminApp, balancer: Balancer, status: str, code: int
) -> None:
    balancer.answer = lambda command: CommandOutcome(
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


# -- watching


async def take(watcher: Watcher, place: Any, count: int) -> list[dict[str, str]]:
    """The first events of a stream."""
    parts = watcher.parts(place)
    found: list[dict[str, str]] = []
    while len(found) < count:
        part = await asyncio.wait_for(anext(parts), 10)
        blocks = [one for one in part.decode().strip().split("\n\n") if one != ": end"]
        found += [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    await parts.aclose()  # type: ignore[attr-defined]
    return found


def watcher(context: AdminContext, namespace: str = "", alive_s: float = 10) -> Watcher:
    assert context.changes is not None
    return Watcher(context, context.changes, namespace, alive_s)


def test_watcher_is_told_each_change_with_its_version(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving

    async def run() -> list[dict[str, str]]:
        reading = asyncio.ensure_future(take(watcher(context), None, 4))
        await asyncio.sleep(0.05)
        for version in (2, 3, 4):
            move(writer, version, f"broker-{version}")
            await asyncio.to_thread(context.follower.poll)
        return await reading

    start, *changes = asyncio.run(run())
    assert (start["event"], start["id"]) == ("start", "2.end")
    assert [change["event"] for change in changes] == ["change"] * 3
    data = [json.loads(change["data"]) for change in changes]
    assert [(one["version_id"], one["broker"]) for one in data] == [
        (2, "broker-2"),
        (3, "broker-3"),
        (4, "broker-4"),
    ]
    assert [change["id"] for change in changes] == ["3.0", "4.0", "5.0"]
    assert [one["table_version"] for one in data] == [3, 4, 5]


@pytest.mark.parametrize("kept", [1_000, 1])
def test_watcher_that_comes_again_misses_nothing_and_gets_nothing_twice(
    moving: tuple[TablesWriter, AdminContext], kept: int
) -> None:
    writer, first = moving
    feed = ChangeFeed(first.views.root, CLUSTER, kept)
    first.follower.on_commits(feed.add)
    for version in range(2, 8):
        move(writer, version)
        first.follower.poll()
    replica = make_context(first.views.root)
    for context, memory in ((first, feed), (replica, replica.changes)):
        assert memory is not None
        again = Watcher(context, memory, "")
        events = asyncio.run(take(again, parse_place("4.0"), 4))
        versions = [json.loads(event["data"])["version_id"] for event in events]
        assert versions == [4, 5, 6, 7]
        late = asyncio.run(take(Watcher(context, memory, "", 0.05), memory.end, 1))
        assert late[0]["event"] == "alive"


def test_watcher_whose_place_is_gone_or_of_the_future_must_begin_anew(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.admin.v1.watch._CATCH_UP_S", 0.05)
    writer, context = moving
    move(writer, 2)
    context.follower.poll()
    for place in ((99, 0), (-5, 0)):
        (event,) = asyncio.run(take(watcher(context), place, 1))
        assert (event["event"], event["id"]) == ("reset", "3.end")


def test_watcher_that_comes_from_a_replica_that_was_ahead_goes_on(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving

    async def run() -> list[dict[str, str]]:
        reading = asyncio.ensure_future(take(watcher(context), (3, END), 1))
        await asyncio.sleep(0.05)
        for version in (2, 3):
            move(writer, version)
            await asyncio.to_thread(context.follower.poll)
        return await reading

    (event,) = asyncio.run(run())
    assert (event["event"], event["id"]) == ("change", "4.0")


def test_watchers_at_one_place_share_what_was_made_for_the_first(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    writer, context = moving
    move(writer, 2)
    context.follower.poll()
    assert context.changes is not None
    monkeypatch.setattr(
        "jobs.admin.v1.watch._change_event", lambda _: made.append(1) or b"data: {}\n\n"
    )
    for _ in range(5):
        asyncio.run(take(watcher(context), (2, END), 1))
    assert len(made) == 1


def test_watcher_is_told_up_to_where_it_knows_all(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving
    writer.batch([])
    context.follower.poll()
    (event,) = asyncio.run(take(watcher(context, alive_s=0.05), (2, END), 1))
    assert (event["event"], event["id"]) == ("alive", "3.end")
    data = json.loads(event["data"])
    assert data["table_version"] == 3
    assert data["brokers_version"] == context.views.version("brokers") >= 0


def test_watcher_of_one_namespace_is_told_of_no_other(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving
    other = bundles_of("acme/ns2", 4)[0]
    writer.batch([Row(bundle=other, version=2, destination="broker-1:8080")])
    move(writer, 2)
    context.follower.poll()
    (event,) = asyncio.run(take(watcher(context, "acme/ns1"), (2, END), 1))
    assert json.loads(event["data"])["bundle"] == BUNDLE


def test_stream_ends_properly_when_the_service_stops_or_the_client_leaves(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    _, context = moving
    app = AdminApp(context, ROUTES)
    sent: list[dict[str, Any]] = []

    async def run(*, leaves: bool) -> None:
        sent.clear()
        asked, left = asyncio.Event(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not asked.is_set():
                asked.set()
                return {"type": "http.request", "body": b"", "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": b"/v1/watch",
            "query_string": b"",
            "headers": [],
        }
        serving = asyncio.ensure_future(app(scope, receive, send))
        await asyncio.sleep(0.1)
        assert app.counts.streams == 1
        if leaves:
            left.set()
        else:
            app.end_streams()
        await asyncio.wait_for(serving, 5)
        assert app.counts.streams == 0

    asyncio.run(run(leaves=True))
    assert sent[-1].get("more_body") is True
    asyncio.run(run(leaves=False))
    assert sent[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.parametrize(
    "text", ["", ".", "1", "1.", ".1", "-1.0", "1.0.0", "a.b", "1.End", "²." * 2]
)
def test_place_that_is_none_is_recognised(text: str) -> None:
    assert parse_place(text) is None


@pytest.mark.parametrize("place", [(0, 0), (12, 345), (7, END)])
def test_place_is_read_back_as_written(place: tuple[int, int]) -> None:
    assert parse_place(format_place(place)) == place
