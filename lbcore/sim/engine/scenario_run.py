"""A scenario from its start to its end, and its load over the hash space and time."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from lbcore.config.tree import Config
from lbcore.model.bundles import HASH_SPACE
from lbcore.model.names import parse_bundle
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import schedule_events
from lbcore.sim.load.load import Floats
from lbcore.sim.scenario.model import Scenario

ROWS_MAX = 300
FRAMES_MAX = 300
_PERCENT = 100.0

_RangeLoad: TypeAlias = tuple[int, int, float]  # lower and upper end of a bundle, msg/s


@dataclass(frozen=True, slots=True)
class LoadMapRow:
    """A point of a namespace's hash space."""

    namespace: str
    position: int


@dataclass(slots=True)
class LoadMap:
    """Load over the hash space and time, for pictures.

    A namespace has as many rows as it began with bundles, fewer beyond ROWS_MAX in all. A row shows
    the bundle at its position, so that the load of split bundles can be compared over time.

    loads: a frame each, float64[rows], percent of a broker of capacity 1.
    """

    engine: Engine
    rows: list[LoadMapRow] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    loads: list[Floats] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def begin(self) -> None:
        """Lay out the rows, and take a frame every few samples from now on."""
        scenario = self.engine.scenario
        total = sum(space.bundles for space in scenario.namespaces)
        part = min(1.0, ROWS_MAX / max(1, total))
        for space in scenario.namespaces:
            count = max(1, round(space.bundles * part))
            width = HASH_SPACE // count
            self.rows += [LoadMapRow(space.name, at * width + width // 2) for at in range(count)]
        samples = scenario.run_ms // scenario.sample_ms
        self._every = max(1, -(-samples // FRAMES_MAX))
        self.engine.when_sampled = self.take

    def take(self) -> None:
        """Take a frame of this moment, if one is due."""
        self._seen += 1
        if self._seen % self._every:
            return
        loads = self.engine.coverage.bundle_rates()
        ranges: dict[str, list[_RangeLoad]] = {}
        for bundle in sorted(loads):
            namespace, lower, upper = parse_bundle(bundle)
            ranges.setdefault(namespace, []).append((lower, upper, loads[bundle]))
        shown = [_load_at(ranges.get(row.namespace, []), row.position) for row in self.rows]
        self.times_ms.append(self.engine.clock.scenario_ms)
        self.loads.append(np.array(shown) * (_PERCENT / self.engine.scenario.full_rate))

    def row_of(self, bundle: str) -> int:
        """The row nearest to a bundle's middle."""
        namespace, lower, upper = parse_bundle(bundle)
        middle = (lower + upper) // 2
        distances = [
            abs(row.position - middle) if row.namespace == namespace else HASH_SPACE
            for row in self.rows
        ]
        return int(np.argmin(distances))


def _load_at(ranges: Sequence[_RangeLoad], position: int) -> float:
    """Return the load of the bundle at a position; nan if none is served there."""
    at = bisect_right(ranges, (position, HASH_SPACE, np.inf)) - 1
    has_it = at >= 0 and position <= ranges[at][1]
    return ranges[at][2] if has_it else np.nan


def run_scenario(scenario: Scenario, config: Config) -> Run:
    """Run a scenario to its end; deterministic."""
    engine = Engine(scenario, config)
    schedule_events(engine)
    return engine.run()


def run_with_load_map(scenario: Scenario, config: Config) -> tuple[Run, LoadMap]:
    """Run a scenario as `run_scenario` does, and return its load map too."""
    engine = Engine(scenario, config)
    load_map = LoadMap(engine)
    load_map.begin()
    schedule_events(engine)
    return engine.run(), load_map
