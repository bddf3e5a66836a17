"""What a dry run says of a world, by the tables that the world has written."""

from typing import Any

from lbcore.balancer.rebuild import newest_rows
from lbcore.foresight.forecast import Foresight, WhatIf, foresee
from lbcore.foresight.rehearse import RehearsalRows
from tests.support.worlds.world import CLUSTER, World


def tables_of(world: World) -> RehearsalRows:
    """The rows that a dry run reads."""
    newest = {row["broker"]: row for row in world.other_rows["load_history"]}
    return RehearsalRows(
        tables=newest_rows(world.newest(), world.other_rows),
        load=[dict(row) for row in newest.values()],
        decisions=world.decisions,
    )


def foreseen(world: World, **what_if: Any) -> Foresight:
    """A dry run's answer, asked now."""
    rows = tables_of(world)
    found = foresee(world.config, CLUSTER, rows, world.now_ms, WhatIf(**what_if))
    assert isinstance(found, Foresight), found
    return found
