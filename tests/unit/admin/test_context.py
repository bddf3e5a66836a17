"""What has been done is told only when the service's own tables show it."""

import asyncio
from dataclasses import replace
from pathlib import Path

from jobs.service.access import Caller
from jobs.service.exchange import Request
from lbcore.wire.kinds.balancing_commands import Pause
from tests.support.admin.admin_world import Balancer, make_context, write_tables

HERE = Caller(name="admin", address="127.0.0.1")
REQUEST = Request(method="PUT", path="/", params={}, query={}, headers={}, body=b"", caller=HERE)


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
        return [*was_told, (await telling).is_done]

    assert asyncio.run(tell()) == [False, False, True]


def test_done_is_told_after_a_while_when_the_tables_can_not_be_read(tmp_path: Path) -> None:
    write_tables(tmp_path)
    context = replace(make_context(tmp_path, Balancer()), catch_up_ms=50)
    assert asyncio.run(context.command(Pause(), REQUEST)).is_done
