"""A checked world of three brokers, the first of which carries most."""

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.world import World, is_settled

HOT, COLD = "broker-0:8080", "broker-1:8080"
SETTINGS = (
    "shedding.strategy=uniform",
    "placement.strategy=least_long_term_message_rate",
    "shedding.cool_down_ms=0",
    "shedding.grace_period_ms=120000",
    "splitting.enabled=false",
)


def hot_world(*more: str) -> World:
    """It begins to shed now. more: settings."""
    config = parse_assignments(Config(), [*SETTINGS, "shedding.is_shedding=false", *more])
    world = CheckedWorld(config, 3)
    world.command("create_namespace", namespace="acme/a", bundles=24)
    world.run(60_000)
    assert is_settled(world)
    for row in world.newest():
        world.rates[str(row["bundle"])] = 800.0 if row["destination"] == HOT else 50.0
    world.run(600_000, step_ms=10_000)
    world.command("set_config", values={"shedding.is_shedding": True})
    return world
