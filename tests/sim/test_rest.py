"""A job at rest has fewer batches, and nothing that matters is later for it."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import pytest

from lbcore.agent.state import Stop
from lbcore.balancer.rest import Heard
from lbcore.config.tree import Config, changed
from lbcore.wire.messages import Envelope, Heartbeat, Tick
from tests.support.worlds.resting_world import RestingWorld
from tests.support.worlds.ruled_world import outcome
from tests.support.worlds.world import CLUSTER, World, gapless, is_settled

CONFIG = Config()
TRIGGER_MS = CONFIG.pipeline.trigger_ms
REST_MS = CONFIG.pipeline.rest_ms
CYCLE_MS = CONFIG.pipeline.decision_interval_ms
BROKER = "broker-1:8080"
AWAKE = replace(CONFIG, pipeline=replace(CONFIG.pipeline, rest_ms=0))


def settled(config: Config, brokers: int = 4) -> RestingWorld:
    world = RestingWorld(config, brokers, seed=3)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=16)
    world.run(40_000)
    assert is_settled(world)
    return world


def cycles_ms(world: World) -> list[int]:
    """When there was a cycle."""
    numbers = [(int(str(r["cycle"])), int(str(r["now_ms"]))) for r in world.reports]
    return [at_ms for (last, _), (cycle, at_ms) in pairwise(numbers) if cycle > last]


def test_job_at_rest_has_a_third_of_the_batches_and_every_cycle_when_it_is_due() -> None:
    world, awake = settled(CONFIG), settled(AWAKE)
    for one in (world, awake):
        one.batches_ms.clear()
        one.reports.clear()
        one.run(120_000)
    assert len(awake.batches_ms) == 120_000 // TRIGGER_MS
    passed_over = REST_MS // TRIGGER_MS  # this world's batches begin at triggers alone
    most = 1 / (1 + passed_over) + TRIGGER_MS / CYCLE_MS
    assert len(world.batches_ms) <= most * len(awake.batches_ms)
    gaps = {b - a for a, b in pairwise(cycles_ms(world))}
    assert gaps == {CYCLE_MS}


@pytest.mark.parametrize(("large", "triggers"), [(17, 1), (16, 2)])
def test_large_job_reads_right_before_a_cycle_what_came_in_its_rest(
    large: int, triggers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lbcore.balancer.rest._LARGE", large)
    most_ms = 4 * TRIGGER_MS
    world = settled(changed(CONFIG, {"pipeline.rest_ms": most_ms}))
    world.reports.clear()
    world.run(120_000)
    assert {b - a for a, b in pairwise(cycles_ms(world))} == {CYCLE_MS}
    rests = [(int(str(r["now_ms"])), int(str(r["rest_ms"]))) for r in world.reports]
    shortened = [at_ms + rest_ms for at_ms, rest_ms in rests if TRIGGER_MS < rest_ms < most_ms]
    due_ms = {(at_ms + triggers * TRIGGER_MS) % CYCLE_MS for at_ms in shortened}
    assert due_ms == {0}, "a cluster of its own plans at the full ten seconds"


def test_job_that_may_not_rest_has_a_batch_at_every_trigger() -> None:
    world = settled(AWAKE)
    assert world.passed_over == 0
    world = settled(CONFIG)
    passed = world.passed_over
    world.command("set_config", values={"pipeline.rest_ms": 0})
    world.run(2 * TRIGGER_MS)
    passed = world.passed_over
    world.run(60_000)
    assert world.passed_over == passed


@lru_cache
def _told_ms(happens: Callable[[World], None], offset_ms: int, *, rests: bool) -> list[int]:
    """When rows of ownership followed what happens so long after a settled minute; ms since it."""
    world = settled(CONFIG if rests else AWAKE)
    world.run(20_000 + offset_ms)
    began_ms = world.now_ms
    before = len(world.events)
    happens(world)
    world.run(60_000)
    assert gapless(world)
    return sorted({int(str(row["at_ms"])) - began_ms for row in world.events[before:]})


def kill(world: World) -> None:
    world.kill(BROKER)


def stop(world: World) -> None:
    world.advance(world.brokers[BROKER], [Stop()])


def start_again(world: World) -> None:
    world.start(BROKER)


def drain(world: World) -> None:
    world.command("drain_broker", broker=BROKER)


def create(world: World) -> None:
    world.command("create_namespace", namespace="t/m", bundles=4)


@pytest.mark.parametrize("offset_ms", [0, 1_000, 2_000, 4_500, 9_000])
@pytest.mark.parametrize("happens", [kill, stop, start_again, drain, create])
def test_what_happens_at_rest_is_answered_as_soon_as_by_a_job_that_never_rests(
    happens: Callable[[World], None], offset_ms: int
) -> None:
    awake = _told_ms(happens, offset_ms, rests=False)
    assert awake, "something is to be told"
    assert _told_ms(happens, offset_ms, rests=True)[0] <= awake[0]
    assert _told_ms(happens, offset_ms, rests=True)[-1] <= awake[-1] + TRIGGER_MS


def test_job_does_not_rest_while_something_is_on_its_way() -> None:
    world = settled(CONFIG)
    world.brokers[BROKER].is_hanging = True  # it answers nothing, so what it is told stays open
    world.command("drain_broker", broker="broker-0:8080")
    world.run(2 * TRIGGER_MS)
    world.reports.clear()
    world.run(CONFIG.ownership.in_flight_timeout_ms - 3 * TRIGGER_MS)
    assert {r["rest_ms"] for r in world.reports if r["in_flight"]} == {0}
    assert any(r["in_flight"] for r in world.reports)


def without_brokers() -> RestingWorld:
    """Bundles that nobody can own."""
    world = RestingWorld(CONFIG, 0)
    world.command("create_namespace", namespace="t/n", bundles=2)
    return world


def braked() -> RestingWorld:
    """So many brokers are silent that nothing is done about it yet."""
    world = settled(CONFIG, 6)
    for name in sorted(world.brokers)[:4]:
        world.kill(name)
    world.run(CONFIG.ownership.broker_timeout_ms + 5_000)
    return world


def behind() -> RestingWorld:
    """A batch is as large as it may be, so that more may be unread."""
    full = {"agent.heartbeat_interval_ms": 500, "pipeline.max_offsets_per_trigger": 100}
    return RestingWorld(changed(CONFIG, full), 50)


@pytest.mark.parametrize("make", [without_brokers, braked, behind])
def test_job_does_not_rest_while(make: Callable[[], RestingWorld]) -> None:
    world = make()
    world.run(2 * TRIGGER_MS)
    world.reports.clear()
    world.run(5 * TRIGGER_MS)
    assert [r["rest_ms"] for r in world.reports] == [0] * 5


@pytest.mark.parametrize("kind", ["create_namespace", "delete_namespace"])
def test_work_in_slices_over_bundles_that_nobody_asks_for_goes_on_without_a_rest(kind: str) -> None:
    took_ms, rests_ms = [], []
    bundles = 96 if kind == "create_namespace" else 24  # a new cluster makes four slices in one
    for base in (CONFIG, AWAKE):
        config = changed(base, {"ownership.assign": "on_demand", "limits.bundles_made_max": 4})
        world = RestingWorld(config, 2, seed=3)
        world.command("create_namespace", namespace="t/n", bundles=bundles)
        world.run(60_000)
        rests_ms.append(max(int(str(r["rest_ms"])) for r in world.reports))
        began_ms = world.now_ms
        arguments = {"bundles": bundles} if kind == "create_namespace" else {}
        name = "t/m" if kind == "create_namespace" else "t/n"
        command = world.command(kind, namespace=name, **arguments)
        world.run(60_000)
        assert outcome(world, command)["status"] == "done"
        took_ms.append(int(str(outcome(world, command)["at_ms"])) - began_ms)
    assert rests_ms == [REST_MS, 0], "free bundles that nobody asks for keep nobody awake"
    assert took_ms[0] == took_ms[1] > 4 * TRIGGER_MS


def test_only_what_was_never_said_before_is_news_of_a_broker() -> None:
    def beat(broker: str, start: str) -> Heartbeat:
        return Heartbeat(
            envelope=Envelope(
                cluster=CLUSTER, broker=broker, incarnation=start, seq=1, reported_at_ms=1
            )
        )

    heard = Heard()
    said = [beat("b1", "one"), beat("b1", "one"), beat("b2", "one"), beat("b1", "two")]
    assert [heard.has_news([message]) for message in said] == [True, False, True, True]
    assert not heard.has_news([Tick(cluster=CLUSTER)])


def test_a_thousand_brokers_that_were_never_heard_end_one_rest() -> None:
    beats = [
        Heartbeat(
            envelope=Envelope(
                cluster=CLUSTER, broker=f"b{number}", incarnation="1", seq=1, reported_at_ms=1
            )
        )
        for number in range(1_000)
    ]
    heard = Heard()
    assert heard.has_news(beats)
    assert not heard.has_news(beats)
