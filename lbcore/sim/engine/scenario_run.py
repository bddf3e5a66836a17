"""A scenario from start to end: its events, its load over hash space and time.

The verbs are those of `scenario.parse`: faults, brokers that come and go, commands.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any, TypeAlias

import numpy as np

from lbcore.config.tree import Config
from lbcore.model.bundles import HASH_SPACE
from lbcore.model.names import parse_bundle
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.job import Job
from lbcore.sim.engine.log import START_MS, NetworkPath
from lbcore.sim.engine.node import Impairment
from lbcore.sim.load.load import Floats
from lbcore.sim.scenario.model import BrokerSpec, Scenario, ScenarioEvent

ROWS_MAX = 300
FRAMES_MAX = 300
_PERCENT = 100.0

_RangeLoad: TypeAlias = tuple[int, int, float]  # lower and upper end of a bundle, msg/s


@dataclass(frozen=True, slots=True)
class LoadMapRow:
    """A point of a namespace's hash space."""

    namespace: str
    position: int


class LoadMap:
    """Load over the hash space and time, for pictures.

    A namespace has as many rows as it began with bundles, fewer beyond ROWS_MAX in all. A row shows
    the bundle at its position, so that the load of split bundles can be compared over time.

    loads: a frame each, float64[rows], percent of a broker of capacity 1.
    """

    def __init__(self, engine: Engine) -> None:
        """Lay out the rows, and take a frame every few samples from now on."""
        scenario = engine.scenario
        self.rows: list[LoadMapRow] = []
        self.times_ms: list[int] = []
        self.loads: list[Floats] = []
        total = sum(space.bundles for space in scenario.namespaces)
        part = min(1.0, ROWS_MAX / max(1, total))
        for space in scenario.namespaces:
            rows = max(1, round(space.bundles * part))
            width = HASH_SPACE // rows
            self.rows += [LoadMapRow(space.name, at * width + width // 2) for at in range(rows)]
        self._every = max(1, -(-(scenario.run_ms // scenario.sample_ms) // FRAMES_MAX))
        self._engine = engine
        engine.when_sampled = self.take

    def take(self) -> None:
        """Take a frame of this moment, if one is due."""
        if len(self._engine.recorder.samples) % self._every:
            return
        loads = self._engine.coverage.bundle_rates()
        ranges: dict[str, list[_RangeLoad]] = defaultdict(list)
        for bundle in sorted(loads):
            namespace, lower, upper = parse_bundle(bundle)
            ranges[namespace].append((lower, upper, loads[bundle]))
        shown = [_load_at(ranges[row.namespace], row.position) for row in self.rows]
        self.times_ms.append(self._engine.clock.scenario_ms)
        self.loads.append(np.array(shown) * (_PERCENT / self._engine.scenario.full_rate))

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


Options: TypeAlias = Mapping[str, Any]
Verb: TypeAlias = Callable[[Engine, str, Options], None]


def schedule_events(engine: Engine) -> None:
    """Schedule all events of the scenario."""
    for event in engine.scenario.scenario_events:
        engine.clock.at(START_MS + event.at_ms, partial(_execute, engine, event))


def _execute(engine: Engine, event: ScenarioEvent) -> None:
    """Execute an event on those of its brokers that there are."""
    written = engine.nodes if event.brokers == ("all",) else event.brokers
    names = [name for name in written if name in engine.nodes]
    if event.verb == "restart":
        _restart(engine, names, event.options)
    else:
        for name in names if event.brokers else [""]:
            _VERBS[event.verb](engine, name, event.options)


def _add(engine: Engine, _: str, options: Options) -> None:
    free = (f"b{at}" for at in count(1) if f"b{at}" not in engine.nodes)
    for name in list(islice(free, options["brokers"])):
        engine.add_node(
            BrokerSpec(name=name, capacity=options["capacity"], domain=options["domain"])
        )
        engine.start(name)


def _restart(engine: Engine, names: list[str], options: Options) -> None:
    """Run a rolling restart.

    With every=0 each broker waits until the one before is back.
    """
    every_ms = options["every"]
    if every_ms:
        for at, name in enumerate(names):
            engine.clock.after(at * every_ms, partial(_restart_in_turn, engine, [name], options))
    elif names:
        _restart_in_turn(engine, names, options)


def _restart_in_turn(engine: Engine, names: list[str], options: Options) -> None:
    """Restart the first of these brokers, then the others."""
    first, *others = names

    def back() -> None:
        engine.start(first)
        if others:
            engine.clock.after(options["down"], partial(_restart_in_turn, engine, others, options))

    node = engine.nodes[first]
    down = partial(engine.clock.after, options["down"], back)
    if options["crash"] or not node.is_there:
        node.crash()
        down()
    else:
        node.stop(down)


def _lasting(begin: Verb, end: Verb) -> Verb:
    """Return a verb for a fault for a time; set again, it lasts until the later end."""

    def verb(engine: Engine, name: str, options: Options) -> None:
        begin(engine, name, options)
        key = verb, name
        ends_ms = max(engine.fault_ends_ms.get(key, 0), engine.clock.now_ms + options["for"])
        engine.fault_ends_ms[key] = ends_ms

        def end_if_over() -> None:
            if engine.fault_ends_ms.get(key) == engine.clock.now_ms:
                del engine.fault_ends_ms[key]
                end(engine, name, options)

        engine.clock.at(ends_ms, end_if_over)

    return verb


def _fault(
    of: Callable[[Engine, str], object], then: Verb = lambda *_: None, **attributes: str
) -> Verb:
    """Return a verb that sets attributes of an object for a time.

    attributes: name → the option whose value it takes, "" = True; at the end it is 0 or False
    again. then: done at the end.
    """

    def begin(engine: Engine, name: str, options: Options) -> None:
        for attribute, option in attributes.items():
            setattr(of(engine, name), attribute, options[option] if option else True)

    def end(engine: Engine, name: str, options: Options) -> None:
        for attribute in attributes:
            setattr(of(engine, name), attribute, type(getattr(of(engine, name), attribute))())
        then(engine, name, options)

    return _lasting(begin, end)


def _impairment(engine: Engine, name: str) -> Impairment:
    return engine.nodes[name].impairment


def _path(engine: Engine, name: str) -> NetworkPath:
    return engine.log.paths[name]


def _job(engine: Engine, _: str) -> Job:
    return engine.job


def _command(engine: Engine, _: str, options: Options) -> None:
    engine.command(options["kind"], **options["arguments"])


_VERBS: Mapping[str, Verb] = {
    "crash": lambda engine, name, _: engine.nodes[name].crash(),
    "start": lambda engine, name, _: engine.start(name),
    "stop": lambda engine, name, _: engine.nodes[name].stop(),
    "add": _add,
    "pause": _lasting(
        lambda engine, name, _: engine.nodes[name].pause(),
        lambda engine, name, _: engine.nodes[name].resume(),
    ),
    "cut-off": _fault(_path, lambda engine, name, _: engine.log.mend(name), is_cut=""),
    "messages": _fault(_path, lost="lost", repeated="repeated", delay_ms="delay"),
    "stale": _fault(_impairment, stale_ms="by"),
    "gauge": _fault(_impairment, gauge_ms="keep"),
    "acks-lost": _fault(_path, are_acks_lost=""),
    "records-lost": _fault(_impairment, loses_records=""),
    "callbacks-fail": _fault(_impairment, failing="part"),
    "conflict": _fault(_job, is_refused=""),
    "ticks-lost": _fault(_job, are_ticks_away=""),
    "job-away": _fault(_job, lambda engine, *_: engine.job.restart(), is_away=""),
    "job-restart": lambda engine, *_: engine.job.restart(),
    "job-rebuild": lambda engine, *_: engine.job.rebuild(),
    "drain": lambda engine, name, _: engine.command("drain_broker", broker=name),
    "cancel-drain": lambda engine, name, _: engine.command("cancel_drain", broker=name),
    "set": _command,
    "command": _command,
}
"""Every verb but `restart`, for one broker; "" where the verb has none."""


def run_scenario(scenario: Scenario, config: Config) -> Run:
    """Run a scenario to its end; deterministic."""
    engine = Engine(scenario, config)
    schedule_events(engine)
    return engine.run()


def run_with_load_map(scenario: Scenario, config: Config) -> tuple[Run, LoadMap]:
    """Run a scenario as `run_scenario` does, and return its load map too."""
    engine = Engine(scenario, config)
    load_map = LoadMap(engine)
    schedule_events(engine)
    return engine.run(), load_map
