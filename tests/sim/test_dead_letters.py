"""Rejected messages are kept within a budget; of those beyond it the table says how many."""

from lbcore.config.pipeline import Pipeline
from lbcore.config.tree import Config
from tests.support.worlds.world import World

PER_DAY = 1_048_576
CONFIG = Config(pipeline=Pipeline(rejected_bytes_per_day=PER_DAY))
HOUR_MS = 3_600_000


def send(world: World, count: int, size: int) -> None:
    """Garbage from a sender that may write broker-load."""
    for _ in range(count):
        world.put(("broker-load", 0), b"local/evil", b"x" * size, world.now_ms)


def kept(world: World) -> list[dict[str, object]]:
    return [
        dict(row) for row in world.other_rows["rejected_reports"] if row["reason"] != "not_kept"
    ]


def missing(world: World) -> int:
    rows = [row for row in world.other_rows["rejected_reports"] if row["reason"] == "not_kept"]
    return sum(int(str(row["detail"]).split(" ", 1)[0]) for row in rows)


def size(world: World) -> int:
    return sum(len(row["raw"]) for row in kept(world))  # type: ignore[arg-type]


def test_rejected_messages_are_kept_up_to_a_budget_and_counted_beyond() -> None:
    world = World(CONFIG, brokers=2)
    world.run(5_000)
    send(world, 1_500, 1_000)
    world.run(5_000)
    assert 0 < size(world) <= PER_DAY // 24
    assert len(kept(world)) + missing(world) == 1_500
    first = size(world)
    send(world, 500, 1_000)
    world.run(5_000)
    assert size(world) <= first + PER_DAY // 24 // 100
    assert len(kept(world)) + missing(world) == 2_000


def test_budget_comes_back_with_time() -> None:
    world = World(CONFIG, brokers=2)
    world.run(5_000)
    send(world, 100, 1_000)
    world.run(5_000)
    before = len(kept(world))
    world.now_ms += HOUR_MS
    send(world, 100, 1_000)
    world.run(5_000)
    assert len(kept(world)) >= 2 * before - 1
    assert len(kept(world)) + missing(world) == 200
