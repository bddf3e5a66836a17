"""The job's metrics say what a cluster in virtual time does, through the production sink."""

from functools import cache
from itertools import pairwise

import pytest

from jobs.telemetry.declared import Type
from jobs.telemetry.job_metrics import JobMetrics
from jobs.telemetry.job_names import JOB_METRICS
from lbcore.balancer.commands.commands import HANDLERS
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config, changed
from tests.support.values.seeds import with_constants
from tests.support.worlds.measured_world import MeasuredWorld, total

HOT = "t/n/0x00000000_0x20000000"
DEAD = "broker-3:8080"


@cache
def story() -> MeasuredWorld:
    """A namespace, a hot bundle that is split, a crash, a forgotten broker, a refused message."""
    world = MeasuredWorld(Config(), 5, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.rates = {HOT: 40_000.0}
    world.run(300_000)
    world.kill(DEAD)
    world.run(60_000)
    world.command("word_of_somebody")
    world.command("forget_broker", broker=DEAD)
    world.run(30_000)
    return world


def test_counts_of_a_crash_and_a_split_are_those_of_the_tables() -> None:
    world = story()
    forced = [row for row in world.events if row["is_forced"]]
    failovers = [row for row in world.events if row["cause"] == "failover"]
    splits = [row for row in world.events if row["state"] == "Splitting"]
    assert forced
    assert failovers
    assert splits
    assert world.value("ballast_overrides_total") == len(forced)
    assert world.value("ballast_transitions_total") == len(world.events)
    assert world.value("ballast_transitions_total", cause="failover") == len(failovers)
    assert world.value("pulsar_lb_bundles_split_total") == len(splits)
    assert world.value("ballast_decisions_total") == len(world.decisions)
    cleanup = "pulsar_sunit_state_chn_inactive_broker_cleanup_ops_total"
    assert world.value(cleanup, result="Success") == len(failovers)
    assert world.value(cleanup, result="Schedule") == 1
    assert world.value("ballast_moves_total", cause="failover") == len(
        {row["bundle"] for row in failovers}
    )


def test_quiet_hours_are_shown_from_their_begin_to_their_end() -> None:
    quiet = parse_assignments(Config(), ["cluster.quiet_hours=22:14-22:15"])
    world = MeasuredWorld(quiet, 2, seed=6)  # it begins at 22:13:20
    for run_ms, is_quiet in ((30_000, 0), (20_000, 1), (40_000, 1), (20_000, 0)):
        world.run(run_ms)
        assert world.value("ballast_quiet") == is_quiet, world.now_ms


def test_gauges_show_the_brokers_and_bundles_of_the_last_batch() -> None:
    world = story()
    newest = world.newest()
    owned = [row for row in newest if row["state"] == "Owned"]
    assert world.value("ballast_bundles", state="Owned") == len(owned)
    assert world.value("pulsar_sunit_state_chn_owned_su_total") == len(owned)
    assert world.value("ballast_brokers", state="active") == 4
    assert world.value("ballast_broker_up") == 4
    rates = world.samples()["ballast_broker_messages_per_second"].values()
    assert world.value("ballast_imbalance") == pytest.approx(max(rates) * 4 / sum(rates))
    assert 1 <= world.value("ballast_floor_adjusted_imbalance") <= world.value("ballast_imbalance")
    assert world.value("ballast_hits_needed", level="low") == Config().ideal_load.low_hits


def test_hits_needed_are_those_of_the_strategy_in_force() -> None:
    config = changed(Config(), {"shedding.strategy": "ballast"})
    world = MeasuredWorld(config, 3)
    world.run(5_000)
    assert world.value("ballast_hits_needed", level="low") == config.ideal_load.low_hits
    assert world.value("ballast_hits_needed", level="high") == config.ideal_load.high_hits


@pytest.mark.parametrize(
    ("spelling", "settings"),
    [
        ("AvgShedder", ("shedding.avg_low_hits", "shedding.avg_high_hits")),
        (
            "org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
            ("shedding.avg_low_hits", "shedding.avg_high_hits"),
        ),
        ("threshold", ("shedding.multi_hit_low_hits", "shedding.multi_hit_high_hits")),
        ("ThresholdShedder", ("shedding.multi_hit_low_hits", "shedding.multi_hit_high_hits")),
    ],
)
def test_hits_needed_are_the_same_under_every_name_of_a_strategy(
    spelling: str, settings: tuple[str, str]
) -> None:
    config = with_constants(Config(), dict(zip(settings, (7, 3), strict=True)))
    multi = {"shedding.strategy": spelling, "shedding.multi_hit": True}
    world = MeasuredWorld(changed(config, multi), 3)
    world.run(5_000)
    assert world.value("ballast_hits_needed", level="low") == 7
    assert world.value("ballast_hits_needed", level="high") == 3


def test_series_of_a_forgotten_broker_are_gone() -> None:
    labelled = [dict(key).get("broker") for s in story().samples().values() for key in s]
    assert "broker-2:8080" in labelled
    assert DEAD not in labelled


def test_word_that_is_no_command_is_no_label() -> None:
    kinds = {dict(key)["kind"] for key in story().samples()["ballast_commands_total"]}
    assert kinds == {*HANDLERS, "unknown"}
    rejected = story().value("ballast_rejected_total")
    assert rejected + story().value("ballast_commands_total", kind="unknown") == 1


def test_bundles_are_no_labels_unless_they_are_switched_on() -> None:
    assert "bundle" not in {k for s in story().samples().values() for key in s for k in dict(key)}
    world = MeasuredWorld(Config(), 3, bundle_metrics=True)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(130_000)
    rates = world.samples()["pulsar_bundle_msg_rate_in"]
    assert {dict(key)["bundle"] for key in rates} == {row["bundle"] for row in world.newest()}
    assert list(rates.values()) == pytest.approx([100.0] * 8)


def test_counters_never_go_back_and_are_declared() -> None:
    world = MeasuredWorld(Config(), 4, seed=1)
    seen = []
    for _ in range(4):
        world.command("create_namespace", namespace=f"t/n{len(seen)}", bundles=4)
        world.run(20_000)
        seen.append(world.samples())
    counters = [one.name for one in JOB_METRICS if one.type is Type.COUNTER]
    for before, after in pairwise(seen):
        for name in counters:
            assert total(after, name) >= total(before, name), name


def test_latencies_of_moves_are_those_of_the_events() -> None:
    world = story()
    name = "brk_lb_assign_latency_ms"
    opened = [
        row
        for row in world.events
        if row["state"] == "Owned" and row["state_before"] == "Assigning"
    ]
    assert world.value(f"{name}_count") >= 4  # of the brokers that are still there
    assert world.value(f"{name}_count") <= len(opened)
    assert world.value(f"{name}_sum") / world.value(f"{name}_count") < 10_000


def test_counters_of_a_new_broker_and_of_usual_decisions_begin_at_zero() -> None:
    world = MeasuredWorld(Config(), 3)
    world.run(5_000)
    found = world.samples()
    assert set(found["pulsar_lb_unload_bundle_total"].values()) == {0}
    assert len(found["pulsar_lb_unload_bundle_total"]) == 3
    key = (("cluster", "local"), ("kind", "transfer"), ("reason", "Overloaded"))
    assert found["ballast_decisions_total"][key] == 0


def test_alarm_of_missing_ticks_is_shown_while_it_is_on() -> None:
    world = MeasuredWorld(with_constants(Config(), {"ownership.tick_alarm_ms": 2_000}), 3)
    world.run(5_000)
    assert world.value("ballast_alarm", alarm="ticks") == 0
    world.job.are_ticks_away = True
    world.run(20_000)
    assert world.value("ballast_alarm", alarm="ticks") == 1


def test_clock_that_is_wrong_is_named_and_the_others_are_right() -> None:
    world = MeasuredWorld(Config(), 3)
    world.run(5_000)
    assert world.value("ballast_clock_ahead_seconds", clock="driver") == 0
    world.driver_ahead_ms = 40_000
    world.run(5_000)
    assert world.value("ballast_clock_ahead_seconds", clock="driver") == 40
    assert world.value("ballast_clock_ahead_seconds", clock="kafka") == 0
    assert world.value("ballast_alarm", alarm="clock") == 1


def test_progress_of_spark_is_taken_as_it_says_it() -> None:
    metrics = JobMetrics()
    metrics.see_progress(
        {
            "durationMs": {"addBatch": 900, "triggerExecution": 1_000},
            "stateOperators": [
                {"memoryUsedBytes": 10, "numRowsTotal": 3},
                {"memoryUsedBytes": 20, "numRowsTotal": 4},
            ],
            "sources": [
                {"endOffset": {"acks": {"0": 5}}, "latestOffset": {"acks": {"0": 7, "1": 2}}},
                {"endOffset": None, "latestOffset": None},
            ],
        }
    )
    family = {f.name: f for f in metrics.store.collect()}
    assert [s.value for s in family["ballast_kafka_lag_messages"].samples] == [2]
    rows = {s.labels["operator"]: s.value for s in family["ballast_state_rows"].samples}
    assert rows == {"balancer": 3, "scorer": 4}


@pytest.mark.parametrize(("is_rebuilt", "phase"), [(True, "rebuilding"), (False, "resuming")])
def test_job_says_what_it_is_doing_until_its_first_batch_is_written(
    phase: str, *, is_rebuilt: bool
) -> None:
    world = MeasuredWorld(Config(), 1)
    world.metrics.see_start(is_rebuilt=is_rebuilt)
    shown = [phase, "at work"]
    assert [world.value("ballast_job_phase", phase=one) for one in shown] == [1, 0]
    world.run(2_000)
    assert [world.value("ballast_job_phase", phase=one) for one in shown] == [0, 1]
    assert world.value("ballast_job_phase") == 1
