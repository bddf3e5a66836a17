"""Deleting a namespace that must be empty: what brokers report counts, whatever made the topics."""

import pytest

from tests.sim.test_commands import rows, told
from tests.sim.test_split_commands import NAMESPACE, TOPICS, running
from tests.world import World


def delete(world: World) -> str:
    """Ask for it; the last status."""
    command_id = world.command("delete_namespace", namespace=NAMESPACE, only_empty=True)
    world.run(15_000)
    if told(world, command_id)[-1] == "refused":
        assert "not empty" in rows(world, command_id)[-1]["reason"]
    return told(world, command_id)[-1]


@pytest.mark.parametrize("topics", [TOPICS, TOPICS[:1]])
def test_namespace_whose_topics_brokers_report_is_not_deleted(topics: tuple[str, ...]) -> None:
    world = running(topics=topics)
    assert delete(world) == "refused"
    world.restart_job()
    assert delete(world) == "refused"


def test_namespace_is_deleted_all_the_same_when_nobody_asked_whether_it_is_empty() -> None:
    world = running()
    command_id = world.command("delete_namespace", namespace=NAMESPACE)
    world.run(15_000)
    assert told(world, command_id)[-1] == "done"


def test_topics_that_were_created_here_keep_a_namespace_and_system_topics_do_not() -> None:
    world = World(running(topics=()).config, 2, seed=3)
    world.topics_else = 0
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.command("create_topic", topic=f"persistent://{NAMESPACE}/__change_events")
    world.command("create_topic", topic=f"persistent://{NAMESPACE}/orders", partitions=3)
    world.run(15_000)
    assert delete(world) == "refused"
    world.command("delete_topic", topic=f"persistent://{NAMESPACE}/orders")
    assert delete(world) == "done"
