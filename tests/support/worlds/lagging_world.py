"""A checked world where things may take long: a batch that hangs, a service that is slow."""

from collections.abc import Sequence
from dataclasses import replace

from lbcore.balancer.state.batch_context import BalancerState
from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.scorer.group_update import GroupUpdate
from lbcore.scorer.tracks import RawMessage
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.simulated_brokers import Broker


class LaggingWorld(CheckedWorld):
    """A CheckedWorld.

    read_until_ms: the job sees nothing of the log that is later: its batches are full. slow_ms: how
    long callbacks of a broker take.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.read_until_ms: int | None = None
        self.slow_ms: dict[str, int] = {}
        super().__init__(config, brokers, seed=seed)

    def read_rows(self) -> list[RawMessage]:
        """What the job sees of what nobody has read yet."""
        if self.read_until_ms is None:
            return super().read_rows()
        whole = dict(self.log)
        for place, messages in whole.items():
            seen = [m for m in messages if m.position.timestamp_ms <= self.read_until_ms]
            self.log[place] = seen
        found = super().read_rows()
        self.log.update(whole)
        return found

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        """The second operator's part of a batch, which is full when some of the log is left."""
        if any(self.read[place] < len(found) for place, found in self.log.items()):
            full = {"accepted": self.config.pipeline.max_offsets_per_trigger}
            updates = [replace(updates[0], counts=full), *updates[1:]]
        return super().step_balancer(updates)

    def call_ms(self, broker: Broker) -> int:
        """How long a callback of a broker takes; the dice are thrown for a slow one, too."""
        drawn_ms = super().call_ms(broker)
        return self.slow_ms.get(broker.name, drawn_ms)
