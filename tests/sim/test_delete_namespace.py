"""Deleting a namespace that must be empty: what brokers report counts, whatever made the topics."""

import pytest

from tests.sim.test_commands import rows, told
from tests.sim.test_split_commands import NAMESPACE, TOPICS, live, running
from tests.support.worlds.world import World


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
    world.command(
        "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/__change_events"
    )
    world.command(
        "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/orders", value=3
    )
    world.run(15_000)
    assert delete(world) == "refused"
    world.command("delete_record", record_type="topic", name=f"persistent://{NAMESPACE}/orders")
    assert delete(world) == "done"


SYSTEM = (
    f"persistent://{NAMESPACE}/__change_events",
    f"persistent://{NAMESPACE}/__transaction_buffer_snapshot-partition-3",
)


def test_system_topics_that_brokers_report_keep_no_namespace_and_others_beside_them_do() -> None:
    world = running(topics=SYSTEM)
    world.topics_else = 0
    world.run(70_000)
    world.topics = {**world.topics, TOPICS[0]: 10.0}
    world.run(70_000)
    assert delete(world) == "refused"
    del world.topics[TOPICS[0]]
    world.run(70_000)
    assert delete(world) == "done"


def test_bundle_whose_last_topic_is_gone_keeps_no_namespace() -> None:
    world = running(topics=TOPICS[:1])
    world.topics_else = 0
    world.run(70_000)
    assert delete(world) == "refused"
    world.topics = {}
    world.run(70_000)
    assert delete(world) == "done"


def test_after_a_rebuild_nothing_is_deleted_that_nobody_has_told_to_be_empty() -> None:
    world = running()
    world.rebuild_job()
    command_id = world.command("delete_namespace", namespace=NAMESPACE, only_empty=True)
    world.run(500)
    assert told(world, command_id) == ["refused"]
    assert "has not reported" in rows(world, command_id)[-1]["reason"]
    world.run(120_000)
    assert delete(world) == "refused"
    assert live(world)
