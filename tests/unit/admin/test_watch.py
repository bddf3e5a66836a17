"""The watch stream: what it tells, where it goes on, how it ends."""

import asyncio
import json
from time import time
from typing import Any

import pytest

from jobs.adapters.following.view import Changes
from jobs.service.access import Caller, Grant, Role
from jobs.service.access_control import ServiceCounts
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.changes import END, ChangeFeed, RecordChange, format_place, parse_place
from jobs.service.context import AdminContext
from jobs.service.v1.ownership import Watcher
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import ask
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter, bundles_of

BUNDLE = bundles_of("acme/ns1", 4)[0]


def move(writer: TablesWriter, version: int, broker: str = "broker-2:8080") -> None:
    writer.batch([Row(bundle=BUNDLE, version=version, destination=broker)])


async def take(watcher: Watcher, place: Any, count: int) -> list[dict[str, str]]:
    parts = watcher.parts(place)
    found: list[dict[str, str]] = []
    while len(found) < count:
        part = await asyncio.wait_for(anext(parts), 10)
        blocks = [one for one in part.decode().strip().split("\n\n") if one != ": end"]
        found += [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    for event in found:
        table, _, event["id"] = event["id"].rpartition("-")
        assert len(table) == 8
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


def test_events_rendered_during_a_reload_are_not_kept_for_watchers_after_it(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, context = moving
    feed = context.changes
    assert feed is not None
    after = feed.after

    def reload(*question: Any) -> Any:
        reloaded = Changes(version=3, is_whole=True, is_other_table=True, table_id="other-1")
        feed.add(reloaded)
        return after(*question)

    monkeypatch.setattr(feed, "after", reload)
    route = context.view.snapshot.namespaces["acme/ns1"].live[0]
    rendered = watcher(context)._render(  # noqa: SLF001 (between two steps of the stream)
        feed.rendered, (2, END), [RecordChange(place=(3, 0), route=route)], (3, 0)
    )
    assert rendered
    assert feed.rendered == {}


def test_changes_read_before_a_reload_are_neither_sent_nor_kept_after_it(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, context = moving
    feed = context.changes
    assert feed is not None
    move(writer, 2)
    context.follower.poll()
    route = context.view.snapshot.namespaces["acme/ns1"].live[0]

    def read_log(*_: object) -> Any:
        reloaded = Changes(version=3, is_whole=True, is_other_table=True, table_id="otherone-1")
        feed.add(reloaded)
        return [RecordChange(place=(3, 0), route=route)], (3, END)

    monkeypatch.setattr(feed, "after", lambda *_: None)
    monkeypatch.setattr(feed, "read_log", read_log)
    (event,) = asyncio.run(take(watcher(context), (2, END), 1))
    assert event["event"] == "reset"
    assert feed.rendered == {}


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
        again = Watcher(context, memory, "", 10)
        events = asyncio.run(take(again, parse_place("4.0"), 4))
        versions = [json.loads(event["data"])["version_id"] for event in events]
        assert versions == [4, 5, 6, 7]
        late = asyncio.run(take(Watcher(context, memory, "", 0.05), memory.end, 1))
        assert late[0]["event"] == "alive"


def test_watcher_whose_place_is_gone_or_of_the_future_must_begin_anew(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.service.v1.ownership._CATCH_UP_S", 0.05)
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
    monkeypatch.setattr(Watcher, "_event", lambda *_: made.append(1) or b"id: 0123abcd-3.0\n\n")
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


class Expiring:
    """A gate that believes everybody for a moment."""

    counts = ServiceCounts()

    def caller(self, scope: object) -> Caller:
        del scope
        grants = (Grant(role=Role.VIEWER),)
        return Caller(name="ada", address="", grants=grants, expires_at_s=time() + 0.1)


def test_stream_ends_with_the_token_that_it_was_opened_with(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    _, context = moving
    app = AdminApp(context, ROUTES, gate=Expiring())
    answer = asyncio.run(asyncio.wait_for(ask(app, "/v1/watch", body=[b"", b""]), 10))
    assert answer.status == 200
    assert b"-2.end\nevent: start\n" in answer.body


def test_id_that_names_no_table_is_refused_and_one_of_another_begins_anew(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.service.v1.ownership._CATCH_UP_S", 0.05)
    _, context = moving
    assert context.changes is not None
    app = AdminApp(context, ROUTES, gate=Expiring())
    table = context.changes.table
    for given in ("2.end", "-2.end", f"{table}-", f"{table}-x", f"{table}2.end"):
        answer = asyncio.run(ask(app, f"/v1/watch?last_event_id={given}", body=[b""]))
        assert answer.status == 400
        assert b"names the table" in answer.body
    for given in (f"{table}-2.end", "0123abcd-2.end"):
        path = f"/v1/watch?alive_ms=500&last_event_id={given}"
        answer = asyncio.run(asyncio.wait_for(ask(app, path, body=[b"", b""]), 10))
        assert answer.status == 200
        assert (b"event: reset" in answer.body) is (given != f"{table}-2.end")


def test_namespace_that_can_not_be_is_refused(moving: tuple[TablesWriter, AdminContext]) -> None:
    app = AdminApp(moving[1], ROUTES, gate=Expiring())
    asked = ask(app, "/v1/watch?namespace=acme", body=[b"", b""])
    assert asyncio.run(asyncio.wait_for(asked, 10)).status == 400


def test_place_is_read_back_as_written_and_one_that_is_none_recognised() -> None:
    for place in ((0, 0), (12, 345), (7, END)):
        assert parse_place(format_place(place)) == place
    for text in ("", ".", "1", "1.", ".1", "-1.0", "1.0.0", "a.b", "1.End", "².0", "1.²"):
        assert parse_place(text) is None
