"""A driver's wrong hour from its beginning to a reader that starts long after it, on real tables.

The production Machines in virtual time, through the production sink, read by the production reader.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs.adapters.following.delta_follower import DeltaFollower
from lbcore.balancer.effects import REPORT, Effect
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from tests.support.tables.crashed_batches import Place, steps_of
from tests.support.tables.lookup_tables import content
from tests.support.values.clusters import with_constants
from tests.support.worlds.world import CLUSTER, World

HOUR_MS = 3_600_000
LATE = "t/late"
CONFIG = with_constants(
    parse_config(
        {
            "ownership": {"tombstone_delay_ms": 30_000},
            "signals": {"report_max_interval_ms": 5_000},
            "shedding": {"is_balancing": False},
        }
    ),
    {"pipeline.load_history_interval_ms": 600_000},
)


class WrittenWorld(World):
    """A World whose job writes tables, and is started on them again by `start_job`."""

    def __init__(self, config: Config, brokers: int, root: Path) -> None:
        self.place = Place(root)
        self._query, self._batch_id = 0, 0
        super().__init__(config, brokers)

    def start_job(self) -> None:
        """A job that has no checkpoint begins on the tables."""
        self.job.state, self.job.scored = self.place.rebuilt(self.config), {}
        self._query, self._batch_id = self._query + 1, 0

    def take_effects(self, effects: Sequence[Effect]) -> None:
        super().take_effects(effects)
        if any(one.rows for one in effects if one.kind != REPORT):
            steps, query = steps_of(effects), f"query-{self._query}"
            assert self.place.write(effects, self._batch_id, steps=steps, query=query)
            self._batch_id += 1


def _check_reader(world: WrittenWorld) -> None:
    reader = DeltaFollower(str(world.place.root), CLUSTER)
    reader.poll()
    assert reader.view is not None, reader.counts
    assert not reader.counts.refused
    found = {bundle: broker for bundle, _, broker in content(reader)}
    assert found == {bundle: name for bundle, (name,) in world.served().items()}


@pytest.mark.long
@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS])
def test_reader_that_starts_after_a_drivers_wrong_hour_and_a_split_serves_all(
    tmp_path: Path, *, ahead_ms: int, is_started_again: bool
) -> None:
    world = WrittenWorld(CONFIG, 2, tmp_path / "tables")
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=2)
    world.run(12_000)
    world.driver_ahead_ms = ahead_ms
    world.start_job()  # its first batch has no other clock to go by
    world.run(2_000)
    world.command("create_namespace", namespace=LATE, bundles=2)
    world.run(12_000)
    made_ms = {int(str(r["at_ms"])) for r in world.events if r["namespace"] == LATE}
    assert all(abs(at_ms - world.now_ms - ahead_ms) < 60_000 for at_ms in made_ms)
    world.driver_ahead_ms = 0
    if is_started_again:
        world.start_job()
    world.run(4_000)
    (parent, _) = sorted(name for name in world.current if name.startswith(f"{LATE}/"))
    world.command("split_bundle", bundle=parent, unload=False)
    world.run(12_000)
    assert parent not in world.served()
    _check_reader(world)
    world.run(15 * 60_000, step_ms=5_000)
    assert parent not in world.current, "its record is to be forgotten"
    world.command("create_namespace", namespace="t/after", bundles=1)
    world.run(12_000)
    assert {row["state"] for row in world.newest()} == {"Owned", "Deleted"}
    _check_reader(world)
