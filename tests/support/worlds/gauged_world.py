"""A world whose brokers measure usages once a minute, as means over it, as Pulsar's do."""

from dataclasses import replace

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.ruled_world import skewed
from tests.support.worlds.simulated_brokers import Broker

MINUTE_MS = 60_000


class GaugedWorld(CheckedWorld):
    """A CheckedWorld whose brokers measure usages once a minute, as means over it."""

    def load(self, broker: Broker) -> LoadRead:
        read = super().load(broker)
        if not hasattr(self, "past"):
            self.past: dict[str, list[tuple[int, float]]] = {}
            self.gauges: dict[str, tuple[int, float]] = {}
        past = self.past.setdefault(broker.name, [])
        past.append((self.now_ms, float(read.usage[0])))
        minute = self.now_ms // MINUTE_MS
        if self.gauges.get(broker.name, (-1, 0.0))[0] != minute:
            window = [usage for at_ms, usage in past if at_ms > self.now_ms - MINUTE_MS]
            self.gauges[broker.name] = (minute, float(np.mean(window)))
        usage = np.array([self.gauges[broker.name][1], *read.usage[1:]])
        return replace(read, usage=usage)


def long_hot(config: Config, rate: float = 3_000.0) -> GaugedWorld:
    """One broker of four has long been hot, and balancing is paused. rate: of its bundles."""
    world = GaugedWorld(config, 4, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=24)
    world.run(25_000)
    world.command("pause")
    skewed(world)
    world.rates = {name: min(one, rate) for name, one in world.rates.items()}
    world.run(8 * MINUTE_MS)
    return world
