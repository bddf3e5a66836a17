"""What the design promises of a state that is rebuilt from the tables, against the one before.

Load averages and hits begin anew, and liveness watches every broker from now on; the rest must be
the same: records, brokers, namespaces, rules, settings, tenants, topics, commands and their
ends.
"""

import json
from collections.abc import Mapping

from lbcore.balancer.state.batch_context import BalancerState
from tests.support.worlds.checked_world import CheckedWorld, records_of
from tests.support.worlds.world import World


class RebuiltWorld(CheckedWorld):
    """A CheckedWorld that looks, whenever its job is rebuilt, whether the tables told it all."""

    def rebuild_job(self) -> None:
        """The job comes back from the tables, as it was."""
        check_tables(self)
        super().rebuild_job()


def check_tables(world: World) -> None:
    """The tables are those of a replay of the log of events, and give the state that there is."""
    replayed = {str(row["bundle"]): row for row in world.newest()}
    for bundle, row in world.current.items():
        assert {name: replayed[bundle][name] for name in _SHARED} == {n: row[n] for n in _SHARED}
    assert all(
        replayed[bundle]["state"] == "Deleted" for bundle in set(replayed) - {*world.current}
    )
    if world.state is not None:
        after = promised(world.job.rebuilt())
        for name, value in promised(world.state).items():
            assert after[name] == value, name


_SHARED = ("state", "version_id", "source", "destination", "destination_incarnation", "is_forced")


def promised(state: BalancerState) -> Mapping[str, object]:
    """What a rebuild brings back."""
    return {
        "records": records_of(state),
        "brokers": {
            name: (
                entry.incarnation,
                entry.is_silent,
                entry.is_draining,
                {key: text for key, text in entry.texts.items() if text},
                entry.starts_ms,
                entry.restarted_ms,
            )
            for name, entry in state.brokers.items()
        },
        "namespaces": state.namespaces,
        "rules": state.rules,
        "settings": json.loads(json.dumps(state.settings)),
        "created": state.records,
        "commands": state.commands,
        "waiting": {
            command_id: (waiting.deadline_ms, waiting.is_queued, waiting.moving)
            for command_id, waiting in state.waiting.items()
        },
    }
