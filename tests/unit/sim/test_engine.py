"""The simulator: the same run from the same text, true to what the faults say."""

from dataclasses import replace

import pytest

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.measures import judge, measure_named
from lbcore.sim.reports.report import judge_all, render
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


def test_namespace_without_owners_is_placed_by_the_balancer() -> None:
    head = "brokers 3\nnamespace t/n bundles=12 topics=2\nload t/n even 1pt each\n"
    run = run_of("run 30s\nexpect imbalance.end <= 1.01\nexpect unsettled == 0", head=head)
    assert failed(run) == []


def test_broker_that_stops_is_emptied_and_its_load_counted_no_more() -> None:
    run = run_of("at 20s stop b3\nrun 1m\nexpect bundles:b3 == 0\nexpect imbalance.end <= 1.01")
    assert failed(run) == []
    assert not run.nodes["b3"].is_there


def test_broker_that_is_added_is_there() -> None:
    run = run_of("at 20s add brokers=2 capacity=2\nrun 40s")
    assert [name for name, node in run.nodes.items() if node.is_there][-2:] == ["b4", "b5"]
    assert number(run, "load.end", "b5") == 0.0


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
    away = run_of("at 10s job-away for 20s\nat 12s job-away for 2s\nrun 40s")
    assert away.job.batches <= 21


def test_broker_that_is_added_takes_a_name_that_is_free() -> None:
    run = run_of("broker b5 absent\nat 10s add brokers=2\nrun 20s")
    assert [name for name, node in run.nodes.items() if node.is_there][-2:] == ["b4", "b6"]


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
