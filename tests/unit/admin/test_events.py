"""The stream of events: when it tells of a batch, when that it lives, and how many may listen."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status_rows import read_overview
from jobs.service.access import Caller
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError, Request
from jobs.service.v1 import watch
from jobs.service.views import SHOWN_TABLES, SMALL_TABLES
from lbcore.model.tables import COMMANDS, LOAD_HISTORY
from tests.support.admin.admin_world import make_context, write_tables
from tests.support.admin.asgi_calls import ask
from tests.support.tables.commands_table import CommandsTable
from tests.support.tables.lookup_tables import Row, TablesWriter, bundles_of

BUNDLE = bundles_of("acme/ns1", 4)[0]


@pytest.fixture
def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TablesWriter, AdminContext]:
    """Tables that a test writes on to, and a context that follows them by hand."""
    monkeypatch.setattr(watch, "_LOOK_S", 0.02)
    writer = write_tables(tmp_path / "tables")
    return writer, make_context(tmp_path / "tables")


async def listen(context: AdminContext, alive_ms: int = 60_000) -> AsyncIterator[bytes]:
    caller = Caller(name="ada", address="")
    query = {"alive_ms": [str(alive_ms)]}
    request = Request(method="GET", path="/v1/events", params={}, query=query, headers={}, body=b"",
                      raw_path="/v1/events", reached_at="", caller=caller)  # fmt: skip
    return (await watch.get_events(request, context)).stream


async def told(parts: AsyncIterator[bytes]) -> tuple[str, Any]:
    block = (await asyncio.wait_for(anext(parts), 10)).decode()
    assert block.endswith("\n\n")
    kind, data = (line.partition(": ")[2] for line in block.splitlines()[:2])
    return kind, json.loads(data)


def test_page_is_told_of_a_batch_and_of_nothing_while_there_is_none(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving

    async def run() -> None:
        parts = await listen(context)
        kind, first = await told(parts)
        assert (kind, first["table_version"]) == (
            "batch",
            context.view.snapshot.position.table_version,
        )
        waiting = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        writer.batch([Row(bundle=BUNDLE, version=2, destination="broker-2:8080")])
        context.follower.poll()
        block = (await asyncio.wait_for(waiting, 10)).decode()
        assert block.startswith("event: batch\n")
        assert f'"table_version":{first["table_version"] + 1}' in block
        await parts.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_page_is_told_of_a_table_that_changes_without_a_change_of_ownership(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    writer, context = moving

    async def run() -> None:
        parts = await listen(context)
        await told(parts)
        writer.brokers("broker-9:8080")
        context.views.refresh()
        assert (await told(parts))[0] == "batch"
        await parts.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_page_is_told_of_what_a_batch_commits_after_its_events(
    moving: tuple[TablesWriter, AdminContext], tmp_path: Path
) -> None:
    """Asked before it was there, the page would show it with the next batch, or 10 s later."""
    commands = CommandsTable(tmp_path / "tables")
    _, context = moving

    async def run() -> None:
        parts = await listen(context)
        await told(parts)
        context.views.refresh()
        await told(parts)  # that these tables are there
        commands.add("c-1", "done")
        context.views.refresh()
        assert (await told(parts))[0] == "batch"
        await parts.aclose()  # type: ignore[attr-defined]
        context.views.refresh()
        assert context.views.version(COMMANDS.name) == -1  # nobody is to be told

    asyncio.run(run())


def test_every_table_that_an_overview_shows_is_told_of(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    tables = TableReader.table
    monkeypatch.setattr(
        TableReader, "table", lambda self, name, *a: read.add(name) or tables(self, name, *a)
    )
    _, context = moving
    read_overview(TableReader(context.views.root, context.cluster), context.config, 1)
    assert len(read) > len(SHOWN_TABLES)
    assert read <= {table.name for table in (*SMALL_TABLES, LOAD_HISTORY, *SHOWN_TABLES)}


def test_stream_without_batches_says_that_it_lives(
    moving: tuple[TablesWriter, AdminContext],
) -> None:
    _, context = moving

    async def run() -> None:
        parts = await listen(context, alive_ms=500)
        assert [(await told(parts))[0] for _ in range(3)] == ["batch", "alive", "alive"]
        await parts.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_only_so_many_listen_and_who_leaves_makes_room(
    moving: tuple[TablesWriter, AdminContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LISTENERS_MAX", 2)
    _, context = moving

    async def run() -> None:
        streams = [await listen(context) for _ in range(2)]
        for parts in streams:
            await told(parts)
        with pytest.raises(HttpError, match="2 pages listen") as refused:
            await listen(context)
        assert refused.value.status == 503
        await streams[0].aclose()  # type: ignore[attr-defined]
        await told(await listen(context))

    asyncio.run(run())


def test_interval_that_is_none_is_refused(moving: tuple[TablesWriter, AdminContext]) -> None:
    app = AdminApp(moving[1], ROUTES)
    for alive_ms in ("1", "x", "60001"):
        assert asyncio.run(ask(app, f"/v1/events?alive_ms={alive_ms}")).status == 400
