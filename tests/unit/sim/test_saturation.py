"""A full broker serves its capacity; what it can't serve waits, moves along, and is rejected."""

from dataclasses import replace

import numpy as np
import pytest

from lbcore.agent.reporting import LoadRead
from lbcore.agent.state import ReadLoad
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.clock import Clock
from lbcore.sim.engine.coverage import Coverage
from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.events import schedule_events
from lbcore.sim.engine.node import Node
from lbcore.sim.engine.saturation import BACKLOG_S, MOVE_SHARE, Saturation
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.scenario.model import BrokerSpec, Scenario
from lbcore.sim.scenario.parse import parse_scenario

BUNDLES = tuple(f"t/n/0x{at:08x}_0x{at + (1 << 30):08x}" for at in range(0, 3 << 30, 1 << 30))
BUNDLES += ("t/n/0xc0000000_0xffffffff",)
FULL = 40_000.0


class World:
    """The parts of an engine that saturation reads."""

    def __init__(self, scenario: Scenario) -> None:
        self.traffic = Traffic(scenario)
        self.coverage = Coverage(self.traffic.layout, self.traffic.topics, Clock())
        self.saturation = Saturation(self.traffic, self.coverage)


def world_of(*loads: str) -> World:
    """Four bundles of two topics on broker 0 of two, which are of capacity 1."""
    lines = "\n".join(f"load t/n {load}" for load in loads)
    scenario = parse_scenario(f"brokers 2\nnamespace t/n bundles=4 topics=2\n{lines}\nrun 1h\n")
    world = World(scenario)
    for _ in range(2):
        world.saturation.add_broker(FULL)
    for bundle in BUNDLES:
        world.coverage.open(bundle, 0)
    return world


def served(world: World, at_s: float) -> float:
    """Messages a second that are served in all."""
    now_ms = int(at_s * 1_000)
    world.saturation.advance(now_ms)
    return float(world.saturation.field_at(now_ms).rates.sum())


def test_broker_with_room_serves_the_field_itself() -> None:
    world = world_of("even 100pt")
    world.saturation.advance(60_000)
    assert world.saturation.field_at(60_000) is world.traffic.at(60_000)
    assert not world.saturation.backlog.any()


def test_full_broker_serves_its_capacity_and_each_topic_its_part() -> None:
    world = world_of("even 300pt")
    assert served(world, 60) == pytest.approx(FULL, rel=1e-3)
    rates = world.saturation.field_at(60_000).rates
    assert rates == pytest.approx(np.full(8, FULL / 8), rel=1e-3)


def test_backlog_has_a_limit_and_what_is_beyond_is_rejected() -> None:
    world = world_of("even 300pt")
    served(world, 60)
    assert world.saturation.backlog == pytest.approx(world.traffic.rates_at(0) * BACKLOG_S)
    assert world.saturation.rejected == pytest.approx(60 * 2 * FULL - 3 * FULL * BACKLOG_S)


def test_backlog_is_served_when_load_falls_and_then_nothing_is_left() -> None:
    world = world_of("even 50pt", "even 100pt from 1m for 1m")
    assert served(world, 119) == pytest.approx(FULL, rel=1e-3)
    assert served(world, 130) > 0.5 * FULL
    assert served(world, 3_000) == 0.5 * FULL
    assert world.saturation.moment == 0


def test_backlog_of_clients_that_have_left_is_served() -> None:
    world = world_of("even 150pt for 1m")
    served(world, 59)
    waiting = float(world.saturation.backlog.sum())
    assert 0.0 < served(world, 61) <= waiting / 50


def test_backlog_goes_with_its_bundle() -> None:
    world = world_of("even 150pt")
    served(world, 60)
    world.coverage.close(BUNDLES[0], 0)
    world.coverage.open(BUNDLES[0], 1)
    served(world, 61)
    rates = world.saturation.field_at(61_000).rates
    assert rates[:2].sum() > world.traffic.rates_at(61_000)[:2].sum()
    assert served(world, 3_000) == pytest.approx(FULL + 0.375 * FULL, rel=1e-3)


def test_topics_without_service_have_no_backlog() -> None:
    world = world_of("even 150pt")
    world.coverage.close_all(BUNDLES, 0)
    assert served(world, 60) == 60_000.0
    assert not world.saturation.backlog.any()


def test_move_takes_a_part_of_the_capacity_where_the_broker_is_full_with_it() -> None:
    world = world_of("even 95pt")
    for bundle in BUNDLES:
        world.saturation.charge(0, bundle)
    assert served(world, 1) == pytest.approx((1.0 - MOVE_SHARE) * FULL, rel=1e-3)
    assert served(world, 3_000) == 0.95 * FULL


def test_broker_without_room_serves_nothing() -> None:
    world = world_of("even 10pt")
    world.saturation.add_broker(-5.0)
    world.coverage.close_all(BUNDLES, 0)
    for bundle in BUNDLES:
        world.coverage.open(bundle, 2)
    assert served(world, 10) == 0.0


def run_until(lines: str, end_ms: int) -> Engine:
    scenario = parse_scenario(lines)
    engine = Engine(scenario, parse_assignments(Config(), scenario.settings))
    schedule_events(engine)
    engine.set_going()
    engine.clock.run_until(engine.clock.now_ms + end_ms)
    return engine


def read_of(node: Node) -> LoadRead:
    (read,) = node.do(ReadLoad(), 0)
    assert isinstance(read, LoadRead)
    return read


CLUSTER = """
brokers 2
namespace t/n bundles=4 topics=2
own t/n all b1
set shedding.is_shedding=false
run 5m
"""


def test_full_broker_reports_usage_near_full_and_what_it_served() -> None:
    engine = run_until(CLUSTER + "load t/n even 300pt", 60_000)
    read = read_of(engine.nodes["b1"])
    assert 99.0 <= read.usage[0] <= 100.0
    assert read.traffic[:2].sum() == pytest.approx(FULL, rel=1e-3)
    assert read.stats[:, :2].sum() == pytest.approx(FULL, rel=1e-3)
    assert engine.recorder.samples[-1].loads.tolist() == [300.0, 0.0]


def test_neighbour_of_a_full_broker_reports_to_the_bit_what_it_would_alone() -> None:
    lines = CLUSTER.replace("all b1", "0-1 b1\nown t/n 2-3 b2")
    own = "\nload t/n zipf 30pt bundles=2-3"
    alone, beside = (
        read_of(run_until(lines + text, 60_000).nodes["b2"])
        for text in (own, own + "\nload t/n even 300pt bundles=0-1")
    )
    assert np.array_equal(alone.stats, beside.stats)
    assert np.array_equal(alone.usage, beside.usage)


def test_other_processes_take_room() -> None:
    lines = CLUSTER.replace("brokers 2", "brokers 2\nbroker b1 foreign=60pt")
    read = read_of(run_until(lines + "load t/n even 50pt", 60_000).nodes["b1"])
    assert read.traffic[:2].sum() == pytest.approx(0.4 * FULL, rel=1e-3)
    assert read.usage[0] >= 99.0


def test_broker_that_is_added_has_its_own_room() -> None:
    scenario = parse_scenario(CLUSTER + "load t/n even 300pt")
    engine = Engine(scenario, Config())
    spec = replace(scenario.brokers[0], name="b3", capacity=2.0)
    assert isinstance(spec, BrokerSpec)
    assert engine.add_node(spec).number == 2
    for bundle in BUNDLES:
        engine.coverage.open(bundle, 2)
    engine.saturation.advance(30_000)
    assert engine.saturation.field_at(30_000).rates.sum() == pytest.approx(2 * FULL, rel=1e-3)


def test_brokers_report_the_offered_load_where_the_scenario_says_so() -> None:
    lines = CLUSTER + "load t/n even 300pt"
    told, silent = (
        read_of(run_until(text, 60_000).nodes["b1"])
        for text in ("full 40000msg/s offered\n" + lines, lines)
    )
    assert told.offered_msg_rate == pytest.approx(3 * FULL)
    assert silent.offered_msg_rate is None


def test_full_group_of_brokers_is_told_beside_an_idle_one() -> None:
    lines = """
brokers 4
namespace t/busy bundles=20 topics=1
namespace t/idle bundles=4 topics=1
own t/busy all b1-b2
own t/idle all b3-b4
load t/busy even 10pt each
load t/idle even 1pt each
at 1s command set_isolation_policy policy=busy namespaces=t/busy, primary=b1,b2
run 3m
"""
    engine = run_until(lines, 120_000)
    reports = [report for at, report in engine.recorder.reports if at > 60_000]
    assert reports
    assert all("full" in report["alarms"] for report in reports)
    assert next(one.reason for one in engine.recorder.decisions if one.kind == "full") == "Full"
