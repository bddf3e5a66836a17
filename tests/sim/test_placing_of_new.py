"""What is made in several batches goes by what was placed before, though nobody has reported it."""

from lbcore.balancer.decisions.placement import make_snapshot, usable_brokers
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.config.tree import Config
from lbcore.plan.snapshot import Bools, Ints
from tests.support.worlds.world import World, states


def seen(world: World, *, later_ms: int = 0, unreported: bool = False) -> tuple[Bools, Bools, Ints]:
    """Which bundles are awaited, whose load is known, and who has them or will."""
    assert world.state is not None
    work = BatchContext.on(world.state, world.config, "v", world.now_ms)
    if unreported:
        work.now_ms = int(work.ledger.at_ms.max()) + later_ms
        work.ledger.short_count = work.ledger.short_count * 0
    bundles = make_snapshot(work, usable_brokers(work))[0].bundles
    assert bundles.is_awaited is not None
    assert bundles.is_load_known is not None
    return bundles.is_awaited, bundles.is_load_known, bundles.owner


def test_bundle_is_awaited_from_its_placement_to_its_first_report_or_for_a_minute() -> None:
    world = World(Config(), 3)
    world.run(20_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    most = 0
    for _ in range(40):
        world.run(500)
        is_awaited, is_known, owner = seen(world)
        assert not (is_awaited & is_known).any()
        assert ((is_awaited | is_known) == (owner >= 0)).all()
        most = max(most, int(is_awaited.sum()))
    assert most == states(world)["Owned"] == 12
    assert seen(world)[1].all()
    assert seen(world, later_ms=60_000, unreported=True)[0].any()
    assert not seen(world, later_ms=60_001, unreported=True)[0].any()
