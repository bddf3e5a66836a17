"""A command that was confirmed is not carried out again by the first batch after a rebuild.

Of every kind that there is; it comes again as it was, as from a sender that has missed its outcome
or a topic that is read again.
"""

import pytest

from lbcore.balancer.tasks.waiting import status_of
from lbcore.wire.messages import Command
from tests.support.worlds.checked_world import promised
from tests.support.worlds.command_cases import CASES, RecordedWorld, is_carried_out, prepared
from tests.support.worlds.world import CLUSTER

_CARRIED_OUT_MS = 30_000


def answers(world: RecordedWorld, command_id: str) -> list[tuple[object, object, object]]:
    """What the tables were told of a command, one after another."""
    found = [row for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return [(row["status"], row["reason"], row["result"]) for row in found]


@pytest.mark.parametrize("kind", sorted(CASES))
def test_command_that_was_carried_out_is_not_done_again(kind: str) -> None:
    world = prepared(CASES[kind])
    command_id = world.command(kind, **CASES[kind].arguments)
    world.run(_CARRIED_OUT_MS)
    assert is_carried_out(world, command_id)
    told = answers(world, command_id)
    assert told[-1][0] == "done"
    world.rebuild_job()
    assert world.state is not None
    before, events = promised(world.state), len(world.events)
    again = Command(
        cluster=CLUSTER, command_id=command_id, kind=kind, arguments=CASES[kind].arguments
    )
    world.append(again)
    batches = len(world.batches)
    world.run(500)
    assert len(world.batches) > batches, "the first batch after the rebuild"
    assert answers(world, command_id) == told
    assert len(world.events) == events
    after = promised(world.state)
    for name in ("records", "rules", "settings", "created", "commands", "waiting"):
        assert after[name] == before[name], name
    assert status_of(world.state.commands[command_id]) == "done"
