"""The simulator: repeatable runs, clients, saturation, on-demand assignment, the service."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.agent.reporting import LoadRead
from lbcore.agent.state import ReadLoad
from lbcore.config.load import parse_assignments
from lbcore.config.ownership import ON_DEMAND
from lbcore.config.tree import Config
from lbcore.model.bundles import HashFunction
from lbcore.model.names import format_bundle
from lbcore.ownership.holding import Call, Callback
from lbcore.sim.engine.coverage import Coverage, Outage
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.log import Clock
from lbcore.sim.engine.node import Node, ServedBundles
from lbcore.sim.engine.saturation import BACKLOG_S, Saturation
from lbcore.sim.engine.scenario_run import run_scenario, schedule_events
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.judge.measures import judge, measure_named, reconnections
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad
from lbcore.sim.reports.report import judge_all, render
from lbcore.sim.scenario.model import BrokerSpec, Client, Scenario
from lbcore.sim.scenario.parse import parse_scenario

CLUSTER = """
brokers 3
namespace t/n bundles=12 topics=2
own t/n all all
load t/n even 1pt each
"""


def run_of(lines: str, *, seed: int = 1, head: str = CLUSTER) -> Run:
    scenario = replace(parse_scenario(head + lines), seed=seed)
    return run_scenario(scenario, parse_assignments(Config(), scenario.settings))


def number(run: Run, metric: str, argument: str = "") -> float | None:
    return measure_named(run, metric, argument)


def failed(run: Run) -> list[str]:
    return [one.expectation.text for one in judge_all(run) if not one.is_met]


def test_run_of_the_same_scenario_is_the_same_and_of_another_seed_is_not() -> None:
    lines = "at 20s messages all lost=20% repeated=20% delay=5s for 30s\nat 30s crash b2\nrun 70s"
    once, again, other = run_of(lines), run_of(lines), run_of(lines, seed=2)
    assert render(once, judge_all(once)) == render(again, judge_all(again))
    assert once.recorder.hash() == again.recorder.hash()
    assert other.recorder.hash() != once.recorder.hash()


def test_crash_is_an_outage_of_its_topics_until_others_serve_them() -> None:
    run = run_of(
        "at 30s crash b1\nrun 70s\n"
        "expect outage.max >= 12s\nexpect outage.max <= 22s\nexpect unsettled == 0\n"
        "expect moves:failover == 4\nexpect doubles == 0\nexpect publish.max >= 12s\n"
    )
    assert failed(run) == []
    assert sum(one.topics for one in run.coverage.outages) == 8


def test_graceful_restart_leaves_nobody_long_without_service() -> None:
    run = run_of(
        "at 20s restart all down=3s\nrun 3m\n"
        "expect outage.max <= 4s\nexpect moves:drain >= 12\nexpect unsettled == 0\n"
    )
    assert failed(run) == []
    assert [node.starts for node in run.nodes.values()] == [2, 2, 2]


def test_cycles_are_counted_within_their_window() -> None:
    run = run_of("run 60s\nexpect cycles == 3 from 30s")
    assert failed(run) == []


def test_broker_that_stops_is_emptied_and_its_load_counted_no_more() -> None:
    run = run_of("at 20s stop b3\nrun 1m\nexpect bundles:b3 == 0\nexpect imbalance.end <= 1.01")
    assert failed(run) == []
    assert not run.nodes["b3"].is_there


def test_broker_that_is_added_is_there_and_takes_a_name_that_is_free() -> None:
    run = run_of("broker b5 absent\nat 20s add brokers=2 capacity=2\nrun 40s")
    assert [name for name, node in run.nodes.items() if node.is_there][-2:] == ["b4", "b6"]
    assert number(run, "load.end", "b6") == 0.0


def test_conflict_has_the_batch_repeated_with_the_same_effects() -> None:
    lines = (
        "at 20s command unload_bundle bundle=t/n/0x00000000_0x15555555 destination=b3\n{}run 40s"
    )
    smooth, rough = run_of(lines.format("")), run_of(lines.format("at 20s conflict for 6s\n"))
    assert number(smooth, "moves") == number(rough, "moves") == 1.0
    assert rough.job.batches < smooth.job.batches


def test_job_that_is_rebuilt_in_a_conflict_reads_again_what_it_never_committed() -> None:
    bundle = "t/n/0x00000000_0x15555555"
    run = run_of(
        f"at 20s conflict for 9s\nat 21s command unload_bundle bundle={bundle} destination=b3\n"
        "at 24s job-rebuild\nrun 50s\nexpect unsettled == 0"
    )
    assert failed(run) == []
    assert [command for _, command, _ in run.recorder.commands] == ["command-1"]


@pytest.mark.parametrize("back", ["job-restart", "job-away for 10s", "job-rebuild"])
def test_job_that_comes_back_goes_on(back: str) -> None:
    run = run_of(f"at 20s {back}\nat 32s crash b1\nrun 80s\nexpect unsettled == 0")
    assert failed(run) == []
    assert number(run, "moves", "failover") == 4.0


def test_broker_that_is_cut_off_serves_on_until_it_learns_better() -> None:
    run = run_of("at 20s cut-off b1 for 40s\nrun 90s\nexpect unsettled == 0\nexpect doubles == 4")
    assert failed(run) == []


def test_paused_broker_serves_nothing_meanwhile() -> None:
    run = run_of("at 20s pause b1 for 5s\nrun 40s\nexpect outage.max == 5s\nexpect moves == 0")
    assert failed(run) == []


def test_fault_that_begins_again_lasts_until_the_later_end() -> None:
    run = run_of("at 20s pause b1 for 9s\nat 22s pause b1 for 2s\nrun 40s\nexpect outage.max == 9s")
    assert failed(run) == []
    for lines in (
        "at 10s job-away for 20s\nat 12s job-away for 2s\nrun 40s",
        "at 10s job-away for 4s\nat 12s job-away for 18s\nrun 40s",
    ):
        assert run_of(lines).job.batches <= 21


def test_acks_that_are_lost_have_the_bundle_opened_elsewhere() -> None:
    bundle = "t/n/0x00000000_0x15555555"
    run = run_of(
        "at 20s acks-lost b3 for 40s\n"
        f"at 21s command unload_bundle bundle={bundle} destination=b3\n"
        "run 80s\nexpect unsettled == 0\n"
    )
    assert failed(run) == []
    assert run.recorder.owner[bundle] != "b3"


@pytest.mark.parametrize(
    ("fault", "believed"), [("", 9.0), ("at 19s stale all by=30s for 2m", 4.0)]
)
def test_stale_reports_hide_what_has_changed(fault: str, believed: float) -> None:
    run = run_of(f"load t/n even 5pt each from 20s bundles=0-0\n{fault}\nrun 49s")
    assert number(run, "load.end", "b1") == pytest.approx(9.0, abs=0.1)
    assert run.job.state is not None
    assert run.job.state.brokers["b1"].percent[0] == pytest.approx(believed, abs=0.6)


def test_expectation_that_does_not_hold_is_not_met_and_says_what_came() -> None:
    run = run_of("broker b9 absent\nrun 20s\nexpect moves >= 1\nexpect load:b9 <= 5")
    first, second = (judge(run, one) for one in run.scenario.expectations)
    assert (first.is_met, first.value) == (False, 0.0)
    assert (second.is_met, second.value) == (False, None)
    assert "FAILED moves >= 1: 0" in render(run, [first, second])


CRASH = """
brokers 3
namespace t/n bundles=6 topics=5
own t/n all all
load t/n even 1pt each
at 30s crash b1
run 90s
"""


def waits(client: Client, *outages: tuple[int, int, int]) -> list[tuple[int, float]]:
    """(from the end of service until connected, clients) of (began, ended, topics), one broker."""
    made = [Outage(began, ended, topics, 1.0, 0) for began, ended, topics in outages]
    return [(one.away_ms + one.wait_ms, one.clients) for one in reconnections(made, client)]


def test_broker_accepts_clients_one_after_another() -> None:
    found = waits(Client(accept=100, publishers=3, consumers=2), (0, 0, 40))
    assert sum(clients for _, clients in found) == 200
    assert found[-1][0] == 2_030
    assert found[0][0] == 130


def test_those_that_come_later_wait_behind_those_before() -> None:
    found = waits(Client(accept=10, consumers=0), (0, 0, 10), (0, 500, 10))
    assert max(wait for wait, _ in found) == 2_030


@pytest.mark.parametrize(
    ("client", "longest_ms"), [("", 30), ("client connect=1s", 1_010), ("client accept=2", 5_030)]
)
def test_costs_are_seen_in_what_publishing_takes(client: str, longest_ms: int) -> None:
    run = run_scenario(parse_scenario(CRASH + client), Config())
    outage = measure_named(run, "outage.max")
    publish = measure_named(run, "publish.max")
    assert outage is not None
    assert publish is not None
    assert publish == pytest.approx(outage + longest_ms + 5, abs=2_600 if "accept" in client else 1)
    assert measure_named(run, "publish.p50") == 5.0
    assert measure_named(run, "reconnects") == 20.0
    assert measure_named(run, "topic_unserved.max") == outage
    assert measure_named(run, "topic_unserved.p50") == 0.0
    total = measure_named(run, "topic_unserved.mean")
    assert total is not None
    assert total * 30 == pytest.approx(sum(
        (one.ended_ms - one.began_ms) * one.topics for one in run.coverage.outages
    ))  # fmt: skip


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
    engine.schedule_first()
    engine.clock.run_until(engine.clock.now_ms + end_ms)
    return engine


def read_of(node: Node) -> LoadRead:
    (read,) = node.do(ReadLoad(), 0)
    assert isinstance(read, LoadRead)
    return read


CLUSTER_OF_SATURATION = """
brokers 2
namespace t/n bundles=4 topics=2
own t/n all b1
set shedding.is_shedding=false
run 5m
"""


def test_full_broker_reports_usage_near_full_and_what_it_served() -> None:
    engine = run_until(CLUSTER_OF_SATURATION + "load t/n even 300pt", 60_000)
    read = read_of(engine.nodes["b1"])
    assert 99.0 <= read.usage[0] <= 100.0
    assert read.traffic[:2].sum() == pytest.approx(FULL, rel=1e-3)
    assert read.stats[:, :2].sum() == pytest.approx(FULL, rel=1e-3)
    assert engine.recorder.samples[-1].loads.tolist() == [300.0, 0.0]


def test_neighbour_of_a_full_broker_reports_to_the_bit_what_it_would_alone() -> None:
    lines = CLUSTER_OF_SATURATION.replace("all b1", "0-1 b1\nown t/n 2-3 b2")
    own = "\nload t/n zipf 30pt bundles=2-3"
    alone, beside = (
        read_of(run_until(lines + text, 60_000).nodes["b2"])
        for text in (own, own + "\nload t/n even 300pt bundles=0-1")
    )
    assert np.array_equal(alone.stats, beside.stats)
    assert np.array_equal(alone.usage, beside.usage)


def test_other_processes_take_room() -> None:
    lines = CLUSTER_OF_SATURATION.replace("brokers 2", "brokers 2\nbroker b1 foreign=60pt")
    read = read_of(run_until(lines + "load t/n even 50pt", 60_000).nodes["b1"])
    assert read.traffic[:2].sum() == pytest.approx(0.4 * FULL, rel=1e-3)
    assert read.usage[0] >= 99.0


def test_broker_that_is_added_has_its_own_room() -> None:
    scenario = parse_scenario(CLUSTER_OF_SATURATION + "load t/n even 300pt")
    engine = Engine(scenario, Config())
    spec = replace(scenario.brokers[0], name="b3", capacity=2.0)
    assert isinstance(spec, BrokerSpec)
    assert engine.add_node(spec).number == 2
    for bundle in BUNDLES:
        engine.coverage.open(bundle, 2)
    engine.saturation.advance(30_000)
    assert engine.saturation.field_at(30_000).rates.sum() == pytest.approx(2 * FULL, rel=1e-3)


def test_brokers_report_the_offered_load_where_the_scenario_says_so() -> None:
    lines = CLUSTER_OF_SATURATION + "load t/n even 300pt"
    told, silent = (
        read_of(run_until(text, 60_000).nodes["b1"])
        for text in ("full 40000msg/s offered\n" + lines, lines)
    )
    assert told.offered_msg_rate == pytest.approx(3 * FULL)
    assert silent.offered_msg_rate is None


MODEL = LoadModel(
    [
        NamespaceLoad(name=name, hash_function=HashFunction.CRC32, bundles=8)
        for name in ("t/a", "t/b")
    ],
    LoadProfile(shape=LoadShape.ZIPF, brokers=2),
)
FIELD = MODEL.at(0)
LOW = "t/a/0x00000000_0x80000000"


def test_topics_of_a_bundle_carry_what_the_bundle_does() -> None:
    topics, traffic = MODEL.topics_of(LOW, 0)
    row = FIELD.bundles("t/a", np.array([0]), np.array([1 << 31]))[0]
    assert len(topics) == row[4]
    assert np.array_equal(traffic.sum(axis=0), row[:4])
    topics, traffic = MODEL.topics_of("t/unknown/0x00000000_0xffffffff", 0)
    assert (topics, traffic.shape) == ((), (0, 4))


LAST = "t/a/0xffffffff_0xffffffff"
GRID = [0, 1, 2, 5, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]
ranges = st.lists(st.sampled_from(GRID), min_size=2, max_size=2, unique=True).map(sorted)
names = st.one_of(st.just(LAST), ranges.map(lambda ends: format_bundle("t/a", *ends)))


def hashes(bundle: str) -> set[int]:
    """Those hashes of the bundle that tell ranges over the grid apart."""
    low, high = (int(part, 16) for part in bundle[-21:].split("_"))
    return {h for h in GRID if low <= h < high or h == high == (1 << 32) - 1}


@given(calls=st.lists(st.tuples(st.sampled_from([Callback.OPEN, Callback.CLOSE]), names)))
def test_any_order_of_calls_serves_what_a_map_of_hashes_would(
    calls: list[tuple[Callback, str]],
) -> None:
    service, served = ServedBundles(), dict[int, str]()
    for callback, bundle in calls:
        service.carry_out(Call(callback=callback, bundle=bundle, version_id=1))
        gone = {served[h] for h in hashes(bundle) if h in served}
        served = {h: name for h, name in served.items() if name not in gone}
        if callback is Callback.OPEN:
            served.update(dict.fromkeys(hashes(bundle), bundle))
    assert set(service.tokens) == set(served.values())
