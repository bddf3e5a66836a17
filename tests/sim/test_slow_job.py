"""A job that is slower than its own timeouts, or behind, gives brokers time to answer."""

from dataclasses import replace

from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord
from lbcore.scorer.broker_states import RawMessage
from lbcore.wire.messages import Acks, Message
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import World

BATCH_MS = 6_000
BEHIND = 8


class SlowJob(World):
    """Batches that take as long as they are apart: their records leave when they end."""

    def __init__(self, config: Config, brokers: int) -> None:
        super().__init__(config, brokers)
        self._leaving: list[tuple[int, OwnershipRecord]] = []

    def _announce(self, record: OwnershipRecord) -> None:
        self._leaving.append((self.now_ms + BATCH_MS, record))

    def look(self) -> None:
        """What the batch before wrote reaches the brokers now."""
        due = [record for at_ms, record in self._leaving if at_ms <= self.now_ms]
        self._leaving = [item for item in self._leaving if item[0] > self.now_ms]
        for record in due:
            super()._announce(record)


def test_bundles_are_opened_once_by_a_job_slower_than_the_in_flight_timeout() -> None:
    config = Config()
    config = replace(
        config,
        pipeline=replace(config.pipeline, trigger_ms=BATCH_MS),
        ownership=replace(config.ownership, in_flight_timeout_ms=BATCH_MS // 2),
    )
    world = SlowJob(config, 3)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(20 * BATCH_MS)
    events = [(row["bundle"], row["state"]) for row in world.events]
    assert sorted(state for _, state in events) == sorted(["Free", "Assigning", "Owned"] * 8)


class JobBehind(World):
    """Batches that are full; each answer stands in the log behind what fills some of them."""

    def send(self, broker: Broker, message: Message) -> None:
        if isinstance(message, Acks):
            self.delayed.append((self.now_ms + BEHIND * BATCH_MS, message))
        else:
            super().send(broker, message)

    def read_rows(self) -> list[RawMessage]:
        """Of full batches."""
        return [replace(one, is_full=True) for one in super().read_rows()]


def test_bundles_are_opened_once_by_a_job_whose_full_batches_leave_the_answers_unread() -> None:
    config = Config()
    pipeline = replace(config.pipeline, trigger_ms=BATCH_MS)
    world = JobBehind(replace(config, pipeline=pipeline), 50)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(20 * BATCH_MS)
    states = sorted(str(row["state"]) for row in world.events)
    assert states.count("Owned") == 8
    assert not [row for row in world.decisions if row["kind"] == "repair"]
