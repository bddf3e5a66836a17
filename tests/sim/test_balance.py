"""Balance in a cluster in virtual time: followed load, spread partitions, scorer groups."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lbcore.balancer.intake import TAKEN_OR_NOT
from lbcore.balancer.rules import PlanStatus
from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.ownership.records import State
from lbcore.signals.shown_load import imbalance
from lbcore.sim.summary import BundleOpened, ObservedMove, moves, thrash
from lbcore.validation.check import with_dynamic
from tests.support.worlds.checked_world import MINUTE_MS, decided, long_hot, owners
from tests.support.worlds.simulated_brokers import Faults
from tests.support.worlds.world import World, is_settled

MINUTE_MS_OF_BALANCE, HOUR_MS = 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
STEP_MS = 5_000


def cluster(brokers: int, bundles: int) -> World:
    """A cluster at rest with equal load, whose batches come every 5 s."""
    config = Config()
    pipeline = replace(config.pipeline, trigger_ms=STEP_MS)
    world = World(replace(config, pipeline=pipeline), brokers, seed=4)
    world.run(10_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(MINUTE_MS_OF_BALANCE)
    assert is_settled(world)
    world.rates = dict.fromkeys(owners(world), 300.0)
    return world


def loads(world: World) -> dict[str, float]:
    """The true rate of each broker."""
    found = dict.fromkeys(world.brokers, 0.0)
    for bundle, broker in owners(world).items():
        found[broker] += world.rates[bundle]
    return found


def moved(world: World) -> list[ObservedMove]:
    """Each change of owner there ever was."""
    return moves(
        BundleOpened(
            bundle=str(row["bundle"]),
            broker=str(row["destination"]),
            at_ms=int(str(row["at_ms"])),
        )
        for row in world.events
        if row["state"] == State.OWNED.value
    )


def wander(world: World, duration_ms: int) -> list[float]:
    """Load that wanders once in a day from what one broker has at first to what the next has.

    Returns max/mean of the brokers' loads, each ten minutes.
    """
    homes, names, found = owners(world), sorted(world.brokers), []
    for minute in range(duration_ms // MINUTE_MS_OF_BALANCE):
        for name, home in sorted(homes.items()):
            phase = (
                2
                * math.pi
                * (minute * MINUTE_MS_OF_BALANCE / DAY_MS + names.index(home) / len(names))
            )
            world.rates[name] = 300.0 * (1 + 0.8 * math.sin(phase)) + world.random.uniform(0, 30)
        world.run(MINUTE_MS_OF_BALANCE, step_ms=STEP_MS)
        if minute % 10 == 9:
            found.append(imbalance(loads(world).values()) or 0.0)
    return found


def check_calm(world: World, duration_ms: int, measured: list[float]) -> None:
    """Load is spread, and no bundle goes to and fro."""
    made = moved(world)
    most = max(Counter(move.bundle for move in made).values(), default=0)
    settled = sorted(measured[len(measured) // 2 :])
    assert made
    assert thrash(made) == 0
    assert most <= 1 + 8 * duration_ms // DAY_MS
    assert settled[len(settled) // 2] <= 1.35


def test_load_that_wanders_is_followed_without_bundles_going_to_and_fro() -> None:
    world = cluster(4, 24)
    check_calm(world, HOUR_MS, wander(world, HOUR_MS))


@pytest.mark.long
def test_load_that_wanders_for_a_day_is_followed_without_bundles_going_to_and_fro() -> None:
    world = cluster(4, 24)
    check_calm(world, DAY_MS, wander(world, DAY_MS))


MINUTE = 60_000
PARTITIONS = 8
ORDERS = tuple(f"persistent://t/n/orders-partition-{number}" for number in range(PARTITIONS))
SEGMENTS = tuple(
    f"segment://t/n/orders/{at * 0x2000:04x}-{at * 0x2000 + 0x1FFF:04x}-{at + 7}"
    for at in range(PARTITIONS)
)
EITHER = pytest.mark.parametrize("topics", [ORDERS, SEGMENTS], ids=["partitions", "segments"])


def crowded_world(topics: Sequence[str]) -> tuple[World, dict[str, str]]:
    """Four brokers with even load; one has all bundles of a topic's parts. And these."""
    config = with_dynamic(
        Config(),
        {
            "shedding.strategy": "ballast",
            "placement.strategy": "ballast",
            "splitting.enabled": False,
        },
    )
    world = World(config, 4, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=32)
    world.command("create_namespace", namespace="t/else", bundles=60)
    world.run(20_000)
    world.topics = dict.fromkeys(topics, 10.0)
    holds = {
        topic: bundle
        for topic in topics
        for bundle in world.current
        if Bundle.parse(bundle).includes_topic(topic)
    }
    assert len(set(holds.values())) >= PARTITIONS // 2  # crc32 of partitions' names is near
    home = min(world.brokers)
    for bundle in sorted(set(holds.values())):
        world.command("unload_bundle", bundle=bundle, destination=home)
    world.run(MINUTE)
    return world, holds


def owners_of(world: World, bundles: dict[str, str]) -> Counter[str]:
    """Broker → how many partitions."""
    return Counter(world.current[bundle]["destination"] for bundle in bundles.values())


@EITHER
def test_topic_whose_partitions_are_all_on_one_broker_is_spread_and_stays_so(
    topics: Sequence[str],
) -> None:
    world, holds = crowded_world(topics)
    assert len(owners_of(world, holds)) == 1
    world.run(10 * MINUTE)
    found = owners_of(world, holds)
    assert max(found.values()) <= PARTITIONS // 2
    reasons = [one["reason"] for one in world.decisions if one["kind"] == "transfer"]
    assert "Crowded" in reasons
    before = len(world.decisions)
    world.run(10 * MINUTE)
    later = world.decisions[before:]
    assert [one for one in later if one["kind"] in {"transfer", "unload"}] == []


def test_plan_that_spreads_a_topic_waits_for_its_approval_though_it_evens_out_no_load() -> None:
    world, holds = crowded_world(ORDERS)
    (home,) = owners_of(world, holds)
    others = {bundle: row["destination"] for bundle, row in world.current.items()}
    counts = Counter(others.values())
    for bundle in sorted(set(others) - set(holds.values())):
        load = 500.0 if others[bundle] == home else 1_000.0
        world.rates[bundle] = load / counts[others[bundle]]
    world.command("set_config", values={"cluster.approval": "ask"})
    world.run(3 * MINUTE)
    assert world.state is not None
    (name,) = world.state.rules.proposals
    assert {step.reason for step in world.state.rules.proposals[name].steps} == {"Crowded"}
    world.command("approve_plan", plan=name)
    world.run(MINUTE)
    assert world.state.rules.proposals[name].station is PlanStatus.DONE
    assert len(owners_of(world, holds)) > 1


@EITHER
def test_partitions_of_a_dead_broker_are_not_all_placed_on_one_other(
    topics: Sequence[str],
) -> None:
    world, holds = crowded_world(topics)
    (home,) = owners_of(world, holds)
    world.kill(home)
    world.run(MINUTE)
    found = owners_of(world, holds)
    assert home not in found
    assert len(found) == 3
    assert max(found.values()) <= PARTITIONS // 2


OF_THE_MOMENT = SignalsConfig(report_max_interval_ms=10_000)
OF_THE_MINUTE = replace(OF_THE_MOMENT, usage_window_ms=MINUTE_MS)


def effects_with(signals: SignalsConfig) -> list[dict[str, object]]:
    """The effects of the first plan's moves away from a broker that has long been hot."""
    world = long_hot(replace(Config(), signals=signals))
    world.command("resume")
    world.run(5 * MINUTE_MS)
    first = decided(world, "transfer")[0]["at_ms"]
    return [dict(r) for r in world.other_rows["decision_effects"] if r["decided_ms"] == first]


def test_effect_is_judged_when_usages_are_all_of_the_time_since() -> None:
    found = effects_with(OF_THE_MINUTE)
    assert {effect["outcome"] for effect in found} == {"helped"}
    assert all(int(str(e["at_ms"])) > int(str(e["moved_ms"])) + 2 * MINUTE_MS for e in found)


def test_effect_judged_by_the_reports_alone_is_judged_too_early() -> None:
    assert "ineffective" in {effect["outcome"] for effect in effects_with(OF_THE_MOMENT)}


NAMESPACE = "t/n"
BUNDLES = 16
TOPICS = tuple(f"persistent://t/n/topic-{number}" for number in range(200))
QUIET = {"shedding.is_balancing": False, "splitting.enabled": False}


def running(groups: int, partitions: int, faults: Faults | None = None) -> World:
    """A cluster of five brokers whose bundles all have topics, reported to so many groups."""
    config = with_dynamic(Config(), QUIET)
    pipeline = replace(config.pipeline, scorer_groups=groups)
    world = World(replace(config, pipeline=pipeline), 5, seed=groups)
    world.partitions = partitions
    world.faults = faults or Faults()
    world.topics = dict.fromkeys(TOPICS, 10.0)
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=BUNDLES)
    world.run(25_000)
    return world


def counted(world: World) -> Counter[str]:
    total: Counter[str] = Counter()
    for report in world.reports:
        counts = report["counts"]
        assert isinstance(counts, dict)
        total.update(counts)
    return total


def test_topics_are_known_again_after_a_rebuild_and_with_another_number_of_groups() -> None:
    world = running(groups=5, partitions=4)
    world.rebuild_job()
    world.job.scorers = {number: world.job.scorers[number] for number in range(2)}
    world.topics |= {f"persistent://t/n/more-{number}": 10.0 for number in range(100)}
    world.run(20_000)
    assert world.state is not None
    assert world.state.topics.count == len(world.topics)


def test_partitions_that_are_added_while_brokers_restart_leave_nothing_out() -> None:
    world = running(groups=3, partitions=2)
    world.faults.read = 0.3
    world.partitions = 7
    for name in sorted(world.brokers)[:3]:
        world.kill(name)
        world.start(name)
        world.run(3_000)
    world.topics |= {f"persistent://t/n/more-{number}": 10.0 for number in range(100)}
    world.faults.read = 1.0
    world.run(90_000)
    assert is_settled(world)
    assert world.state is not None
    assert world.state.topics.count == len(world.topics)
    assert not world.state.liveness.missing_ticks(world.config.ownership.tick_alarm_ms)


def test_every_report_of_topics_is_taken_or_counted_with_a_reason() -> None:
    world = running(4, 4, Faults(repeated=0.5, delay_ms=3_000, read=0.5))
    world.command("unload_namespace", namespace=NAMESPACE)
    world.run(30_000)
    sent = sum(read for (topic, _), read in world.read.items() if topic == "topic-load")
    counts = {name: n for name, n in counted(world).items() if name.startswith("topics:")}
    assert sum(counts.values()) == sent
    assert counts.keys() <= {f"topics:{result}" for result in TAKEN_OR_NOT}
    assert counts["topics:late"] > 0
