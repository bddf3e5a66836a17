"""No route does much at a time: rows and calls between two turns of the loop, over all routes.

A world with one large namespace, many small ones, many topics and a topic with very many partitions
is asked everything; counted is what a step of the event loop takes from the tables and how many
functions it calls. No clock is looked at.
"""

import asyncio
import pickle
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import IO, Any

import pytest

from jobs.adapters.http.fair_scheduling import FairScheduler
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.routes import Route
from jobs.service.v1.reading import Read, readers
from lbcore.route.slices import WORK_MAX
from tests.support.admin.admin_world import BROKERS, Balancer, make_context
from tests.support.admin.asgi_calls import ask
from tests.support.tables.lookup_tables import TablesWriter, owned

LARGE, SMALL, PARTITIONS = 7_500, 2_000, 1 << 20
CALLS_MAX = 32 * WORK_MAX
"""Calls in a step of the loop: 1,024 values are written in a slice, some with a dozen calls."""

PART_MAX_BYTES = 1 << 18
PARTS = 12
ELSEWHERE_BYTES = 1 << 22
NAMES: Mapping[str, str] = {
    "tenant": "acme",
    "namespace": "large",
    "bundle": "0x00000000_0xffffffff",
    "range": "0x00000000_0xffffffff",
    "domain": "persistent",
    "topic": "t1",
    "cluster": "c1",
    "broker": BROKERS[0],
    "group": "g",
    "policy": "p",
    "kind": "pause",
    "key": "loadBalancerSheddingEnabled",
    "value": "true",
    "allocator": "default",
    "plan": "p",
}
QUERIES = {
    "/v1/ownership": "limit=1000000",
    "/v1/ownership/diff": "from=0",
    "/v1/decisions": "limit=1000",
    "/v1/watch": "last_event_id=never",
    "/admin/v2/broker-stats/load-report": f"broker={BROKERS[0]}",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("turns") / "tables"
    writer = TablesWriter(root)
    small = [f"small{number % 7}/ns{number}" for number in range(SMALL)]
    writer.namespaces(dict.fromkeys(("acme/large", "acme/wide", *small), "crc32"))
    writer.brokers(*BROKERS)
    names = {"acme/large": LARGE, "acme/wide": 4, **dict.fromkeys(small, 1)}
    writer.batch([row for name, count in names.items() for row in owned(name, count, BROKERS[:1])])
    made = [(f"persistent://acme/large/t{number}", 0) for number in range(LARGE)]
    made.append(("persistent://acme/wide/w", PARTITIONS))
    writer.topics(dict(made))
    writer.anti_affinity(small)
    return root


@pytest.fixture(scope="module")
def context(tables: Path) -> AdminContext:
    made = make_context(tables, Balancer())
    object.__setattr__(made, "turns", FairScheduler(budget_s=0.0))
    return made


class Steps:
    """Counts the calls between two turns of the event loop, and the longest part of an answer."""

    def __init__(self) -> None:
        self.most_calls = self.longest_part = self._calls = 0

    async def of(self, route: Route, context: AdminContext) -> int:
        """Ask for a route; its status. An answer is read until it is long enough to know."""
        app = AdminApp(context, ROUTES)
        loop = asyncio.get_running_loop()
        is_done = False

        def turn() -> None:
            self.most_calls = max(self.most_calls, self._calls)
            self._calls = 0
            if not is_done:
                loop.call_soon(turn)

        turn()
        sys.setprofile(self._count)
        try:
            answer = await ask(_Limited(app, self), *path_of(route), method=route.method)
        finally:
            sys.setprofile(None)
            is_done = True
        return answer.status

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        del frame, argument
        self._calls += event in ("call", "c_call")


class _Limited:
    """Hangs up on an answer that has had many parts."""

    def __init__(self, app: AdminApp, steps: Steps) -> None:
        self._app, self._steps, self._left = app, steps, PARTS

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        gone = asyncio.get_running_loop().create_future()

        async def limited(message: Any) -> None:
            part = len(message.get("body", b""))
            self._steps.longest_part = max(self._steps.longest_part, part)
            self._left -= 1
            if not self._left and not gone.done():
                gone.set_result(None)
            await send(message)

        async def receiving() -> Any:
            if self._left == PARTS:
                message = await receive()
                if message["type"] == "http.request" and not gone.done():
                    return message
            await gone
            return {"type": "http.disconnect"}

        await self._app(scope, receiving, limited)


def path_of(route: Route) -> tuple[str]:
    """A path that the route serves, with the query that asks for most."""
    path = route.path.format_map(_Names(NAMES))
    query = QUERIES.get(route.path, "")
    return (f"{path}?{query}" if query else path,)


class _Names(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name


async def read_elsewhere(read: Read, *place: object) -> tuple[IO[bytes], str]:
    """What is read in another process, large: what it takes there holds nobody up here."""
    pickle.dumps((read, *place))
    return BytesIO(b'{"rows":"' + b"x" * ELSEWHERE_BYTES + b'"}'), "1"


@pytest.mark.parametrize(
    "route", [pytest.param(route, id=f"{route.method} {route.path}") for route in ROUTES]
)
def test_route_takes_bounded_steps_whatever_there_is(
    context: AdminContext, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ask", read_elsewhere)
    steps = Steps()
    status = asyncio.run(steps.of(route, context))
    assert status < 500 or status in (501, 503), status
    assert steps.most_calls < CALLS_MAX, f"{steps.most_calls} calls in one step of the loop"
    assert steps.longest_part < PART_MAX_BYTES


def test_short_answer_has_its_length_and_a_long_one_none(context: AdminContext) -> None:
    app = AdminApp(context, ROUTES)
    short = asyncio.run(ask(app, "/v1/ownership?limit=3"))
    long = asyncio.run(ask(app, "/v1/ownership"))
    assert int(short.headers["content-length"]) == len(short.body)
    assert "content-length" not in long.headers
    assert len(long.json["bundles"]) == LARGE + SMALL + 4
