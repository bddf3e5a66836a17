"""A scenario from its start to its end.

Joins the engine with what happens.
"""

from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import schedule_events
from lbcore.sim.engine.load_map import LoadMap
from lbcore.sim.scenario.model import Scenario


def run_scenario(scenario: Scenario, config: Config) -> Run:
    """Run a scenario to its end; the same scenario always gives the same run."""
    engine = Engine(scenario, config)
    schedule_events(engine)
    return engine.run()


def run_with_load_map(scenario: Scenario, config: Config) -> tuple[Run, LoadMap]:
    """As `run_scenario`, with its load map; the run is the same."""
    engine = Engine(scenario, config)
    load_map = LoadMap(engine)
    load_map.begin()
    schedule_events(engine)
    return engine.run(), load_map
