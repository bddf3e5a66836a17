"""Lookups that wait: for whom, for how long, what is asked for them, and how they end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.processes.clocks import boot_ms
from jobs.service.app import Assignments
from jobs.service.context import AdminContext
from jobs.service.lookup_http import Hooks, LookupApp
from jobs.service.views import TableViews
from lbcore.config.ownership import ON_DEMAND, OwnershipConfig
from lbcore.config.tree import Config
from lbcore.model.bundles import HashFunction
from lbcore.ownership.records import State
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot
from tests.support.admin.admin_world import Balancer
from tests.support.admin.asgi_calls import Answer, ask

LOOKUP = "/lookup/v2/topic/persistent/t/n/x"
LONG_MS = 3_600_000


def route(state: State, version: int, lower: int = 0, upper: int = 0xFFFFFFFF) -> BundleRoute:
    owner = "b1" if state in (State.OWNED, State.SPLITTING) else ""
    return BundleRoute(
        bundle=f"t/n/0x{lower:08x}_0x{upper:08x}",
        namespace="t/n",
        lower=lower,
        upper=upper,
        state=state,
        version_id=version,
        source="b1",
        destination=owner,
    )


class World:
    """A service over a snapshot that the test changes."""

    def __init__(self, *routes: BundleRoute, **options: Any) -> None:
        self.follower = DeltaFollower(Path("nowhere"), "c1")
        self.asked: list[tuple[str, int]] = []
        self.app = LookupApp(
            self.follower,
            hooks=Hooks(ask_owner=lambda r: self.asked.append((r.bundle, r.version_id))),
            **{"wait_ms": LONG_MS, **options},
        )
        self.snapshot = (
            LookupSnapshot(cluster="c1")
            .with_namespaces({"t/n": HashFunction.CRC32})
            .with_brokers([BrokerAddress(broker="b1", pulsar_service_url="pulsar://b1:6650")])
        )
        self.show(*routes)

    def show(self, *routes: BundleRoute) -> None:
        self.snapshot = self.snapshot.with_routes(routes)
        self.follower.view = View(snapshot=self.snapshot, confirmed_ms=boot_ms(), writer=None)
        self.app.notice_change()

    async def waiting(self, count: int) -> None:
        await until(lambda: self.app.metrics.waiting == count)


async def until(is_reached: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_reached():
            return
        await asyncio.sleep(0.005)
    raise AssertionError


@pytest.mark.parametrize("first", [State.FREE, State.RELEASING, State.INIT])
def test_lookup_waits_through_the_states_without_an_owner(first: State) -> None:
    async def run() -> Answer:
        world = World(route(first, 1))
        asking = asyncio.ensure_future(ask(world.app, LOOKUP))
        await world.waiting(1)
        world.show(route(State.FREE, 2))
        await until(lambda: world.asked[-1:] == [(route(State.FREE, 2).bundle, 2)])
        world.show(route(State.OWNED, 3))
        return await asyncio.wait_for(asking, 5)

    answer = asyncio.run(run())
    assert (answer.status, answer.headers["x-ballast-version-id"]) == (200, "3")


def test_lookup_of_a_bundle_that_is_split_while_it_waits_gets_the_childs_owner() -> None:
    async def run() -> Answer:
        world = World(route(State.FREE, 1))
        asking = asyncio.ensure_future(ask(world.app, LOOKUP))
        await world.waiting(1)
        half = 0x80000000
        children = (route(State.OWNED, 1, 0, half), route(State.OWNED, 1, half))
        world.show(route(State.DELETED, 2), *children)
        return await asyncio.wait_for(asking, 5)

    answer = asyncio.run(run())
    assert answer.status == 200
    assert answer.headers["x-ballast-bundle"].count("80000000") == 1


@pytest.mark.parametrize("options", [{"wait_ms": 0}, {"waiting_max": 0}])
def test_lookup_that_may_not_wait_asks_for_an_owner_all_the_same(options: dict[str, int]) -> None:
    world = World(route(State.FREE, 1), **options)
    assert asyncio.run(ask(world.app, LOOKUP)).status == 503
    assert world.asked == [(route(State.FREE, 1).bundle, 1)]


def test_client_that_leaves_while_it_waits_gives_its_place_back() -> None:
    async def run() -> None:
        world = World(route(State.FREE, 1), waiting_max=1)
        asking = asyncio.ensure_future(ask(world.app, LOOKUP, leaves_after_s=0.05))
        await world.waiting(1)
        assert (await ask(world.app, LOOKUP)).status == 503
        await asyncio.wait_for(asking, 5)
        await world.waiting(0)

    asyncio.run(run())


def test_service_that_ends_tells_who_waits_to_come_again_elsewhere() -> None:
    async def run() -> Answer:
        world = World(route(State.FREE, 1))
        asking = asyncio.ensure_future(ask(world.app, LOOKUP))
        await world.waiting(1)
        world.app.end_waits()
        assert (await asyncio.wait_for(ask(world.app, LOOKUP), 5)).status == 503
        return await asyncio.wait_for(asking, 5)

    answer = asyncio.run(run())
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_service_that_stops_has_clients_use_another_connection() -> None:
    world = World(route(State.OWNED, 1))
    world.app.is_stopping = True
    for path in (LOOKUP, "/alive", "/health", "/nowhere"):
        assert asyncio.run(ask(world.app, path)).headers["connection"] == "close"


@pytest.mark.parametrize(
    "path",
    [LOOKUP, f"{LOOKUP}/bundle", f"{LOOKUP}?max_age_ms=x", "/alive", "/health", "/metrics", "/no"],
)
def test_every_answer_says_how_old_it_is_and_of_what_type_once(path: str) -> None:
    answer = asyncio.run(ask(World(route(State.OWNED, 1)).app, path))
    names = [name for name, _ in answer.sent_headers]
    for name in (
        "content-type",
        "x-ballast-table-version",
        "x-ballast-age-ms",
        "x-ballast-writer-silent-ms",
    ):
        assert names.count(name) == 1, (path, name)


def context(balancer: Balancer, assign: str = ON_DEMAND) -> AdminContext:
    config = replace(Config(), ownership=OwnershipConfig(assign=assign))
    follower = DeltaFollower(Path("nowhere"), "c1")
    follower.view = View(snapshot=LookupSnapshot(cluster="c1"), confirmed_ms=0, writer=None)
    views = TableViews("nowhere", "c1")
    return AdminContext(
        cluster="c1", follower=follower, views=views, config=config, commands=balancer
    )


async def asked(*asks: tuple[Assignments, BundleRoute]) -> None:
    for assignments, bundle in asks:
        assignments.ask(bundle)
    await asyncio.sleep(0.01)


def test_many_lookups_of_a_free_bundle_ask_for_an_owner_once_a_record() -> None:
    balancer = Balancer()
    one = Assignments(context(balancer))
    first, again = route(State.FREE, 1), route(State.FREE, 5)
    asyncio.run(asked(*[(one, first)] * 20, *[(one, again)] * 20))
    assert [command.kind for command in balancer.commands] == ["assign_bundle"] * 2
    assert one.asked == 2


def test_replicas_ask_with_the_same_id_so_that_one_is_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.service.app.time", lambda: 1_000_000.0)
    balancer = Balancer()
    made = context(balancer)
    bundles = (route(State.FREE, 1), route(State.FREE, 2))
    asyncio.run(asked(*((Assignments(made), bundle) for bundle in bundles for _ in range(3))))
    assert len(balancer.commands) == 6
    assert len({command.command_id for command in balancer.commands}) == 2


@pytest.mark.parametrize(("assign", "state"), [("eager", State.FREE), (ON_DEMAND, State.RELEASING)])
def test_owner_is_not_asked_for_where_the_balancer_gives_one_by_itself(
    assign: str, state: State
) -> None:
    balancer = Balancer()
    asyncio.run(asked((Assignments(context(balancer, assign)), route(state, 1))))
    assert balancer.commands == []
