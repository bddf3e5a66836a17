"""What was shed of late rests, also after a rebuild; and so do the roles of brokers."""

from tests.support.worlds.checked_world import hot_world


def test_rebuild_brings_graces_and_roles_back() -> None:
    world = hot_world()
    while not any(d["kind"] in ("transfer", "unload") for d in world.decisions):
        world.run(1_000)
    assert world.state is not None
    plan = world.state.plan
    assert plan.unloaded_ms
    assert plan.gave_ms
    assert plan.took_ms
    rebuilt = world.job.rebuilt().plan
    assert rebuilt.unloaded_ms == plan.unloaded_ms
    assert rebuilt.gave_ms == plan.gave_ms
    assert rebuilt.took_ms == plan.took_ms
    world.run(200_000, step_ms=5_000)
    assert not world.job.rebuilt().plan.gave_ms, "a role ends by its own time"
