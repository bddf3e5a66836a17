"""Bundles that are assigned on demand: clients ask as load begins; nothing served is no balance."""

from dataclasses import replace

from lbcore.config.ownership import ON_DEMAND
from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.scenario.parse import parse_scenario

SCENARIO = """\
brokers 3
namespace t/n bundles=12 topics=1
load t/n even 40000msg/s{}
set pipeline.trigger_ms=2000
run 3m
"""


def config() -> Config:
    ours = Config()
    return replace(ours, ownership=replace(ours.ownership, assign=ON_DEMAND))


def test_bundles_are_served_once_clients_ask() -> None:
    run = run_scenario(parse_scenario(SCENARIO.format("")), config())
    assert run.coverage.unserved == 0
    assert measure_named(run, "imbalance.end") == 1.0


def test_nobody_asks_for_a_bundle_before_its_load_begins() -> None:
    run = run_scenario(parse_scenario(SCENARIO.format(" from 2m")), config())
    first = min(at for at, _, _ in run.recorder.commands if at > 30_000)
    assert first >= 120_000
    assert run.coverage.unserved == 0


def test_cluster_that_serves_nothing_is_not_balanced() -> None:
    scenario = parse_scenario(SCENARIO.format("").replace("brokers 3", "broker b1 absent"))
    run = run_scenario(scenario, Config())
    assert run.coverage.unserved == 12
    assert measure_named(run, "balanced", "1.2") is None
