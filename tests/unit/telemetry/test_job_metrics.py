"""Metrics and log of the job: batches, moves, faults of the sinks."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

import pytest

from jobs.adapters.delta import tables as delta_tables
from jobs.adapters.spark import batch_sink
from jobs.adapters.spark.batch_sink import lines_of
from jobs.telemetry.job_metrics import (
    Event,
    FinishedMove,
    JobMetrics,
    Latency,
    MoveTracker,
    WrittenBatch,
)
from jobs.telemetry.job_names import JOB_METRICS
from jobs.telemetry.store import Type
from lbcore.balancer.commands import HANDLERS
from lbcore.balancer.effects import Effect, columns_of, pack_effect
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config, changed
from lbcore.model.times import HOUR_MS
from tests.support.values.clusters import with_constants
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


def test_counts_and_latencies_of_a_crash_and_a_split_are_those_of_the_tables() -> None:
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
    name = "brk_lb_assign_latency_ms"
    opened = [
        row
        for row in world.events
        if row["state"] == "Owned" and row["state_before"] == "Assigning"
    ]
    assert world.value(f"{name}_count") >= 4  # of the brokers that are still there
    assert world.value(f"{name}_count") <= len(opened)
    assert world.value(f"{name}_sum") / world.value(f"{name}_count") < 10_000
    kinds = {dict(key)["kind"] for key in world.samples()["ballast_commands_total"]}
    assert kinds == {*HANDLERS, "unknown"}  # a word that is no command is no label
    rejected = world.value("ballast_rejected_total")
    assert rejected + world.value("ballast_commands_total", kind="unknown") == 1


def test_quiet_hours_are_shown_from_their_begin_to_their_end() -> None:
    quiet = parse_assignments(Config(), ["cluster.quiet_hours=22:14-22:15"])
    world = MeasuredWorld(quiet, 2, seed=6)  # it begins at 22:13:20
    for run_ms, is_quiet in ((30_000, 0), (20_000, 1), (40_000, 1), (20_000, 0)):
        world.run(run_ms)
        assert world.value("ballast_quiet") == is_quiet, world.now_ms


def test_gauges_show_the_brokers_and_bundles_of_the_last_batch_and_no_forgotten_broker() -> None:
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
    labelled = [dict(key).get("broker") for s in world.samples().values() for key in s]
    assert "broker-2:8080" in labelled
    assert DEAD not in labelled


@pytest.mark.parametrize(
    ("spelling", "settings"),
    [
        ("org.apache.pulsar.broker.loadbalance.impl.AvgShedder", "shedding.avg_{}_hits"),
        ("ThresholdShedder", "shedding.multi_hit_{}_hits"),
    ],
)
def test_hits_needed_are_the_same_under_every_name_of_a_strategy(
    spelling: str, settings: str
) -> None:
    config = with_constants(Config(), {settings.format("low"): 7, settings.format("high"): 3})
    multi = {"shedding.strategy": spelling, "shedding.multi_hit": True}
    world = MeasuredWorld(changed(config, multi), 3)
    world.run(5_000)
    assert world.value("ballast_hits_needed", level="low") == 7
    assert world.value("ballast_hits_needed", level="high") == 3


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


@cache
def story_batch_log() -> MeasuredWorld:
    """A namespace is made; then debug mode is on for 20 s."""
    world = MeasuredWorld(Config(), 3, seed=2)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(30_000)
    world.command("set_config", values={"loadBalancerDebugModeEnabled": "true"})
    world.run(20_000)
    world.command("unload_bundle", bundle="t/n/0x00000000_0x20000000")
    world.run(20_000)
    world.command("set_config", values={"telemetry.debug": False})
    world.run(20_000)
    return world


def test_batch_has_one_line_and_those_of_plans_and_commands_lead_to_the_tables() -> None:
    world = story_batch_log()
    lines = world.lines_of("batch")
    assert [line["batch_id"] for line in lines] == list(range(len(lines)))
    assert not any({"gauges", "ends"} & line.keys() for line in lines)
    json.dumps(lines)
    ids = [one for line in world.lines_of("plan") for one in line["decision_ids"]]
    assert ids == [row["decision_id"] for row in world.decisions]
    commands = world.lines_of("command")
    assert {line["command_id"] for line in commands} == {f"command-{i}" for i in range(1, 5)}
    assert {line["kind"] for line in commands} >= {"create_namespace", "unload_bundle"}


def test_debug_mode_is_switched_while_running_and_shows_each_transition() -> None:
    world = story_batch_log()
    modes = [line["is_debugging"] for line in world.lines_of("batch")]
    first, last = modes.index(True), len(modes) - modes[::-1].index(True)
    assert first > 10
    assert all(modes[first:last])
    assert not any([*modes[:first], *modes[last:]])
    assert last < len(modes)
    moved = [line["bundle"] for line in world.lines_of("transition")]
    assert set(moved) == {"t/n/0x00000000_0x20000000"}
    assert len(world.lines_of("decision")) > 0
    versions = {line["config_version"] for line in world.lines_of("plan")}
    assert len(versions) <= 2  # Pulsar's key also changes a setting of transfer


def test_brokers_of_a_large_cluster_are_told_by_each_tenth_batch() -> None:

    def told(count: int, batch_id: int) -> bool:
        brokers = {f"b{number}": {} for number in range(count)}
        report = {"cluster": "local", "brokers": brokers, "is_debugging": False}
        seen = WrittenBatch(
            batch_id=batch_id, reports=[report], tables={}, versions={}, parts_ms={}
        )
        (line,) = lines_of(seen, {})
        return "brokers" in line

    assert [told(201, batch_id) for batch_id in (0, 1, 9, 10)] == [True, False, False, True]
    assert told(200, 1)


def event(
    state: str, before: str, source: str, destination: str, at_ms: int, **more: object
) -> Event:
    named = {"destination_before": "", "cause": "shed", "is_forced": False, **more}
    return Event(
        cluster="c",
        bundle="t/n/1",
        state=state,
        state_before=before,
        source=source,
        destination=destination,
        at_ms=at_ms,
        **named,  # type: ignore[arg-type]
    )


def moved(
    moves: MoveTracker, source: str, destination: str, at_ms: int
) -> list[Latency | FinishedMove]:
    """A transfer: released after 100 ms, opened after 30 more."""
    steps = [
        event("Releasing", "Owned", source, destination, at_ms),
        event("Assigning", "Releasing", source, destination, at_ms + 100, cause="ack"),
        event("Owned", "Assigning", source, destination, at_ms + 130, cause="ack"),
    ]
    return [found for step in steps for found in moves.take(step)]


def test_transfer_has_three_latencies_and_lands_once() -> None:
    assert moved(MoveTracker(), "a", "b", 1_000) == [
        Latency(part="release", broker="a", ms=100),
        Latency(part="assign", broker="b", ms=30),
        Latency(part="unload", broker="a", ms=130),
        FinishedMove(cause="shed", is_return=False),
    ]


def test_move_back_within_an_hour_is_a_return() -> None:
    moves = MoveTracker()
    moved(moves, "a", "b", 0)
    assert moved(moves, "b", "a", 60_000)[-1] == FinishedMove(cause="shed", is_return=True)
    assert moved(moves, "a", "c", 90_000)[-1] == FinishedMove(cause="shed", is_return=False)
    assert moved(moves, "c", "b", HOUR_MS + 60_130)[-1] == FinishedMove(
        cause="shed", is_return=False
    )
    moves.forget(3 * HOUR_MS)
    assert moved(moves, "b", "c", HOUR_MS + 60_140)[-1] == FinishedMove(
        cause="shed", is_return=False
    )


def test_failover_lands_with_its_own_cause() -> None:
    moves = MoveTracker()
    steps = [
        event("Assigning", "Owned", "", "b", 500, destination_before="a", cause="failover"),
        event("Owned", "Assigning", "", "b", 900, cause="ack"),
    ]
    found = [one for step in steps for one in moves.take(step)]
    assert found == [
        Latency(part="assign", broker="b", ms=400),
        Latency(part="unload", broker="a", ms=400),
        FinishedMove(cause="failover", is_return=False),
    ]


def test_first_owner_and_cancelled_unload_are_no_moves() -> None:
    moves = MoveTracker()
    first = [
        event("Assigning", "Free", "", "a", 0, cause="assign"),
        event("Owned", "Assigning", "", "a", 40, cause="ack"),
        event("Releasing", "Owned", "a", "b", 100),
        event("Owned", "Releasing", "", "a", 900, cause="repair", is_forced=True),
    ]
    found = [one for step in first for one in moves.take(step)]
    assert found == [Latency(part="assign", broker="a", ms=40)]


class PlantedError(Exception):
    """A bug of ours, planted."""


def raising(*_: object) -> NoReturn:
    raise PlantedError


def running() -> MeasuredWorld:
    world = MeasuredWorld(Config(), 3)
    world.run(3_000)
    return world


def faults(world: MeasuredWorld) -> list[dict[str, Any]]:
    return [line for line in world.lines if line["event"] == "fault"]


def test_lines_that_cannot_be_made_are_left_out_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    monkeypatch.setattr(batch_sink, "lines_of", raising)
    world.run(3_000)
    assert {fault["phase"] for fault in faults(world)} == {"sink_log"}
    assert world.value("ballast_faults_total", phase="sink_log") == len(faults(world)) > 0


def test_metrics_that_raise_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running()
    monkeypatch.setattr(world.metrics, "see_batch", raising)
    world.run(3_000)
    assert {fault["phase"] for fault in faults(world)} == {"sink_metrics"}
    assert "PlantedError" in faults(world)[0]["trace"]


def test_a_record_that_cannot_be_written_for_kafka_is_left_out_and_the_others_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    sent: list[Any] = []
    format_record = batch_sink.format_record  # type: ignore[attr-defined]

    def broken(record: Any) -> Any:
        if record.bundle.endswith("0x00000000_0x40000000"):
            raise PlantedError
        sent.append(record.bundle)
        return format_record(record)

    monkeypatch.setattr(batch_sink, "format_record", broken)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(3_000)
    assert len(set(sent)) == 3
    assert {(one["phase"], one["item"]) for one in faults(world)} == {
        ("sink_record", "t/n/0x00000000_0x40000000")
    }
    counted = sum(fault["count"] for fault in faults(world))
    assert world.value("ballast_faults_total", phase="sink_record") == counted


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_machine_that_is_short_of_something_ends_the_job(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def starved(*_: object) -> NoReturn:
        raise error

    world = running()
    monkeypatch.setattr(world.metrics, "see_batch", starved)
    with pytest.raises(error):
        world.run(1_000)


def refusing(table: str, column: str, value: object) -> Callable[..., dict[str, Any]]:
    """`unpack_columns` that gives the first row of one table a value that no writer writes."""
    unpack = delta_tables.unpack_columns  # type: ignore[attr-defined]

    def spoilt(kind: str, blob: bytes) -> dict[str, Any]:
        columns = unpack(kind, blob)
        if kind == table:
            columns[column] = [value, *list(columns[column])[1:]]
        return columns

    return spoilt


UNFIT = {
    "lone surrogate": ("audit", "reason", "\ud800"),
    "over 64 bits": ("audit", "at_ms", 1 << 70),
    "another type": ("audit", "principal", ["x"]),
    "null": ("audit", "reason", None),
    "another type in a list": ("load_history", "msg_rate_in", ["fast"]),
    "surrogate in a list": ("load_history", "bundles", ["\ud800"]),
    "null for a list": ("load_history", "percent", None),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_row_that_no_table_can_hold_is_put_aside_and_its_neighbours_are_written(
    unfit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, column, value = UNFIT[unfit]
    rows = [
        {c.name: _plain(c.type) for c in columns_of(table)} | {"cluster": f"c{n}"} for n in range(3)
    ]
    blob = pack_effect(Effect(kind=table, rows=rows))
    stamp = {"batch_id": 1, "writer_epoch": 2}
    whole = delta_tables.arrow_rows(table, blob, stamp).table
    monkeypatch.setattr(delta_tables, "unpack_columns", refusing(table, column, value))
    found = delta_tables.arrow_rows(table, blob, stamp)
    assert found.table == whole.slice(1)
    (fault,) = found.faults
    assert f"{table}.{column} must be " in fault.error
    (again,) = delta_tables.arrow_rows(table, blob, stamp).faults
    assert fault == replace(again, trace=fault.trace)


def _plain(kind: str) -> Any:
    return {"string": "x", "boolean": True, "double": 1.0, "binary": b"x"}.get(
        kind, [] if "list" in kind else 1
    )


def test_an_event_that_no_table_can_hold_is_told_to_nobody_and_the_batch_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    sent: list[Any] = []
    monkeypatch.setattr(batch_sink, "format_record", lambda record: sent.append(record.bundle))
    spoilt = refusing("ownership_events", "decision_id", "\ud800")
    monkeypatch.setattr(delta_tables, "unpack_columns", spoilt)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(1_000)
    lost = "t/n/0x00000000_0x40000000"
    written = [row for seen in world.seen for row in seen.rows("ownership_events", "bundle")]
    assert len(set(written)) == 3
    assert (lost,) not in written
    for seen in world.seen:
        assert (lost,) not in seen.rows("bundle_ownership", "bundle")
    assert lost not in sent
    assert len(set(sent)) == 3
    fault = faults(world)[0]
    assert (fault["phase"], fault["count"]) == ("sink_row", 1)
    assert lost in fault["item"]
    assert "ownership_events.decision_id" in fault["error"]
    assert world.value("ballast_faults_total", phase="sink_row") == len(faults(world))
    assert world.value("ballast_alarm", alarm="faults") == 1
