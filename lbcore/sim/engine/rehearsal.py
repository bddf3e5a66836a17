"""A scenario from its start to its end.

Decides nothing; joins the engine with what happens. Source: ours.
"""

from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import plan_happenings
from lbcore.sim.engine.load_map import Film
from lbcore.sim.scenario.model import Scenario


def run_scenario(scenario: Scenario, config: Config) -> Run:
    """Run a scenario from its start to its end; the same scenario always gives the same run."""
    engine = Engine(scenario, config)
    plan_happenings(engine)
    return engine.run()


def film_scenario(scenario: Scenario, config: Config) -> tuple[Run, Film]:
    """As `run_scenario`, with a film of it; the run is the same."""
    engine = Engine(scenario, config)
    film = Film(engine)
    film.begin()
    plan_happenings(engine)
    return engine.run(), film
