"""Any number of scorer groups and partitions: what a batch knows does not depend on them.

Production scorers, balancer and agents in virtual time. A report of topics is keyed by its bundle,
all else by its broker, so the two meet in a group only by chance.
"""

from collections import Counter
from dataclasses import replace

import pytest

from lbcore.balancer.intake.intake import TAKEN_OR_NOT
from lbcore.config.tree import Config
from lbcore.validation.dynamic import with_dynamic
from tests.support.worlds.simulated_brokers import Faults
from tests.support.worlds.world import World, is_settled

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


@pytest.mark.parametrize(
    ("groups", "partitions"), [(1, 1), (2, 4), (3, 1), (5, 7), (8, 3), (16, 16)]
)
def test_topics_of_every_bundle_are_known_whatever_the_groups(groups: int, partitions: int) -> None:
    world = running(groups, partitions)
    assert is_settled(world)
    assert world.state is not None
    known = [name for name in world.state.ledger.names if world.state.topics.topics_of(name)]
    assert len(known) == BUNDLES
    assert world.state.topics.count == len(TOPICS)


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
