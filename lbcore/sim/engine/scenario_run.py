"""A scenario from its start to its end.

Joins the engine with what happens, and tells how far it is.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import schedule_events
from lbcore.sim.engine.load_map import LoadMap
from lbcore.sim.scenario.model import Scenario

OnProgress: TypeAlias = Callable[[float], bool]
"""Told with each sample which share of the run is over; False: it ends there."""


def ignore_progress(_share: float) -> bool:
    """Go on to the end."""
    return True


def run_scenario(
    scenario: Scenario, config: Config, on_progress: OnProgress = ignore_progress
) -> Run:
    """Run a scenario from its start to its end; the same scenario always gives the same run.

    Where `tell` ends it, the run is that of a scenario which is so long, and expects nothing.
    """
    engine = Engine(scenario, config)
    schedule_events(engine)
    return _run(engine, on_progress)


def run_with_load_map(
    scenario: Scenario, config: Config, on_progress: OnProgress = ignore_progress
) -> tuple[Run, LoadMap]:
    """As `run_scenario`, with its load map; the run is the same."""
    engine = Engine(scenario, config)
    load_map = LoadMap(engine)
    load_map.begin()
    schedule_events(engine)
    return _run(engine, on_progress), load_map


def _run(engine: Engine, on_progress: OnProgress) -> Run:
    """Let it happen."""
    seen, length_ms = engine.when_sampled, max(1, engine.scenario.run_ms)

    def look() -> None:
        if seen is not None:
            seen()
        if not on_progress(engine.clock.scenario_ms / length_ms):
            engine.clock.stop()

    engine.when_sampled = look
    run = engine.run()
    if engine.clock.scenario_ms >= engine.scenario.run_ms:
        return run
    short = replace(engine.scenario, run_ms=engine.clock.scenario_ms, expectations=())
    return replace(run, scenario=short, is_cut=True)
