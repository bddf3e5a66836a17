"""Effects of moves where usages are a mean of the past minute, as a Pulsar broker's are."""

from dataclasses import replace

import numpy as np

from lbcore.agent.reporting import LoadRead
from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.ruled_world import decided, skewed
from tests.support.worlds.simulated_brokers import Broker

MINUTE_MS = 60_000
OF_THE_MOMENT = SignalsConfig(report_max_interval_ms=10_000)
OF_THE_MINUTE = replace(OF_THE_MOMENT, usage_window_ms=MINUTE_MS, usage_cadence_ms=MINUTE_MS)


class GaugedWorld(CheckedWorld):
    """A CheckedWorld whose brokers measure usages once a minute, as means over it."""

    def _load(self, broker: Broker) -> LoadRead:
        read = super()._load(broker)
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


def effects_with(signals: SignalsConfig) -> list[dict[str, object]]:
    """The effects of the first plan's moves away from a broker that has long been hot."""
    world = GaugedWorld(replace(Config(), signals=signals), 4, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=24)
    world.run(25_000)
    world.command("pause")
    skewed(world)
    world.run(8 * MINUTE_MS)
    world.command("resume")
    world.run(5 * MINUTE_MS)
    first = decided(world, "transfer")[0]["at_ms"]
    return [dict(r) for r in world.other_rows["decision_effects"] if r["decided_ms"] == first]


def test_effect_is_judged_when_usages_are_all_of_the_time_since() -> None:
    found = effects_with(OF_THE_MINUTE)
    assert {effect["outcome"] for effect in found} == {"helped"}
    assert all(int(str(e["at_ms"])) > int(str(e["moved_ms"])) + 2 * MINUTE_MS for e in found)


def test_effect_judged_by_the_reports_alone_is_judged_too_early() -> None:
    assert "no_better" in {effect["outcome"] for effect in effects_with(OF_THE_MOMENT)}
