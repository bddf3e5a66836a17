"""What a local run reads of its job and fleet, shows while it runs, and sums up at its end."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.console import CommandError
from jobs.fleet.control import FleetClient
from jobs.local.fleet_watch import FleetWatch, crash_broker
from jobs.local.job_log import JobLog, LineTail
from jobs.local.layout import Layout
from jobs.local.prober import ProbeCounts
from jobs.local.status import (
    RunFacts,
    RunStatus,
    broker_rows,
    bundles_served,
    imbalance_of,
    summarise,
)
from jobs.local.terminal import run_lines
from jobs.operating.status import StatusView
from lbcore.config.tree import Config
from lbcore.sim.summary import BundleOpened, Crash, LoadSample
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables


def _line(batch_id: int, **changed: Any) -> dict[str, Any]:
    return {
        "event": "batch",
        "batch_id": batch_id,
        "duration_ms": 100 * batch_id,
        "now_ms": 1_000 * batch_id,
        "cycle": 1,
        "counts": {},
        "brokers": {},
        "bundles": {},
        "in_flight": 0,
        "moves": [],
        **changed,
    }


def test_job_log_counts_batches_of_all_clusters_once_decisions_and_reports() -> None:
    log = JobLog()
    bundles = {"Owned": 61, "Assigning": 1, "Deleted": 1}
    lines = [_line(1, counts={"accepted": 2}), _line(1, counts={"accepted": 3}), _line(2)]
    log.fold([{"event": "start"}, *lines, {"event": "other"}, _line(3, cycle=2, bundles=bundles)])
    assert (log.batches, log.durations_ms) == (3, [100, 200, 300])
    assert (log.now_ms, log.cycle_durations_ms) == (3_000, [100, 300])
    assert (log.reports["accepted"], log.live_bundles()) == (5, 62)
    log = JobLog()
    counts = {"accepted": 7, "late": 1, "decision:skip:HitCount": 2, "joined": 3}
    log.fold([_line(1, counts=counts), _line(2, counts={"decision:skip:HitCount": 1})])
    assert dict(log.decisions) == {"skip:HitCount": 3}
    assert log.reports == {"accepted": 7, "late": 1}


def test_job_log_keeps_the_newest_brokers_and_moves() -> None:
    log = JobLog()
    move = {"bundle": "t/n/0x00000000_0xffffffff", "from": "a", "to": "b", "cause": "shed"}
    log.fold([_line(1, brokers={"a": {"score": 0.5}}), _line(2, moves=[move] * 60, in_flight=4)])
    assert log.brokers == {}
    assert (log.moves, log.in_flight) == (60, 4)
    assert log.last_move is not None
    assert (log.last_move["source"], log.last_move["cause"]) == ("a", "shed")


def test_job_log_tells_who_is_suspected_and_found_dead_and_who_got_the_bundles() -> None:
    log = JobLog()
    inputs = '{"broker_timeout_ms":15000,"silent_ms":6000}'
    row = {"decision_id": "1-1", "kind": "silence", "source": "a", "inputs": inputs}
    log.fold([_line(1, silence=[{**row, "reason": "Suspected"}])])
    assert log.silent_now(3_000).suspected == ("a suspected: silent for 8 s, failover at 15 s",)
    move = {"bundle": "t/n/0x00000000_0xffffffff", "from": "a", "to": "b", "cause": "failover"}
    log.fold([_line(2, silence=[{**row, "reason": "Dead"}], moves=[move] * 3)])
    assert log.silent_now(3_000).suspected == ()
    assert log.new_messages == [
        "a suspected: silent for 6 s, failover at 15 s",
        "a found dead at 00:00:02 UTC after 6 s of silence",
        "a is dead: 3 bundles moved to b (3)",
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_line_tail_takes_a_line_only_when_it_is_whole_and_starts_over_in_a_new_file(
    path: Path,
) -> None:
    tail = LineTail(path)
    assert tail.read() == []  # there is no file yet
    _append(path, '{"a": 1}\n{"b"')
    assert tail.read() == [{"a": 1}]
    _append(path, ": 2}\n")
    late = LineTail(path, from_end=True)
    assert (tail.read(), late.read()) == ([{"b": 2}], [])
    path.write_text('{"c": 1}\n')
    assert tail.read() == [{"c": 1}]


def test_line_tail_cut_off_and_foreign_lines_are_skipped_not_raised(path: Path) -> None:
    tail = LineTail(path)
    _append(path, '{"a": \n[1]\n\n{"b": 2}\n')
    assert tail.read() == [{"b": 2}]


def test_opening_that_a_sample_counts_is_known_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(root=tmp_path)
    layout.fleet.mkdir()
    layout.fleet_port.write_text("1")
    watch = FleetWatch(layout)
    opened = {"event": "opened", "bundle": "a/b/0", "broker": "broker-1", "at_ms": 5}
    row = {"broker": "broker-1", "life": "up", "load": 1.0, "bundle_count": 1}

    def brokers(_: FleetClient) -> dict[str, object]:
        with layout.fleet_events.open("a") as log:
            log.write(json.dumps(opened) + "\n")
        return {"at_ms": 6, "brokers": [row], "loads": {}, "bundles_open": 1}

    monkeypatch.setattr(FleetClient, "brokers", brokers)
    monkeypatch.setattr("jobs.local.fleet_watch.sample_of", lambda body: body)
    watch.sample()
    assert [one.bundle for one in watch.opened] == ["a/b/0"]


@pytest.mark.parametrize(
    ("broker", "why", "step"),
    [
        ("broker-33", "the fleet has broker-1, broker-3", "did you mean broker-3?"),
        ("broker-3", "it has been dead since 2023-11-14 22:13:20 UTC", "--start"),
    ],
)
def test_broker_that_is_unknown_or_dead_is_not_said_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: str, why: str, step: str
) -> None:
    layout = Layout(root=tmp_path)
    layout.fleet.mkdir()
    layout.fleet_port.write_text("1")
    crash = {"broker": "broker-3", "killed_at_ms": 1_700_000_000_000, "bundles": []}
    layout.crashes.write_text(json.dumps({**crash, "last_report_ms": 1}) + "\n")
    lives = {"broker-1": "alive", "broker-3": "killed"}
    body = {"brokers": [{"broker": name, "life": life} for name, life in lives.items()]}
    monkeypatch.setattr(FleetClient, "brokers", lambda _: body)
    with pytest.raises(CommandError) as raised:
        crash_broker(layout, broker)
    assert raised.value.why == why
    assert step in raised.value.next_step


_MOVE = {"at_ms": 1, "bundle": "t/n/0x00000000_0x40000000", "cause": "shed"}


def _status() -> RunStatus:
    return RunStatus(
        elapsed_ms=65_000,
        phase="running",
        job="at work: wrote 1 s ago, cycle 3 s ago, ticks heard",
        brokers=(
            {
                "name": "broker-1",
                "state": "active",
                "msg_rate": 2_000.0,
                "bundles": 7,
                "score": 0.52,
            },
            {"name": "broker-2", "state": "killed", "msg_rate": 0.0, "bundles": 0, "score": None},
        ),
        imbalance=1.25,
        bundles_open=7,
        bundles=8,
        in_flight=1,
        batches=60,
        cycle_p50_ms=812.0,
        cycle_p95_ms=None,
        moves=3,
        last_move=_MOVE,
        lookups=ProbeCounts(sent=100, right=95, wrong=0, unavailable=4, failed=1, pending=0),
        restarts={"balance_cluster": 1, "kafka": 0},
        events=("01:00 balance_cluster died (code 137)",),
    )


def test_view_counts_every_lookup_that_was_asked() -> None:
    counts = ProbeCounts(sent=84_047, right=84_030, wrong=1, unavailable=5, failed=3, pending=8)
    text = "\n".join(run_lines(replace(_status(), lookups=counts)))
    line = next(line for line in text.splitlines() if "lookups" in line)
    asked, *classes = map(int, re.findall(r"\d+", line))
    assert asked == sum(classes)
    assert "8 under way" in line
    for said in ("01:05  running", "bundles open 7/8", "restarted: balance_cluster × 1", "137)"):
        assert said in text
    assert "kafka × 0" not in text


def test_bundles_of_brokers_beside_the_run_are_counted_and_shown() -> None:
    fleet = ({"broker": "broker-1", "life": "alive", "load": 5.0, "bundle_count": 60},)
    sample = LoadSample(at_ms=1, broker_loads={"broker-1": 5.0}, bundles_open=60)
    told = {"state": "active", "score": 0.1, "msg_rate": None}
    job = JobLog(brokers={"store-1": {**told, "bundles": 4}, "broker-1": {**told, "bundles": 59}})
    assert bundles_served(sample, fleet, job) == 64
    assert [(row["name"], row["bundles"]) for row in broker_rows(fleet, job)] == [
        ("broker-1", 60), ("store-1", 4)
    ]  # fmt: skip


def test_view_has_the_clusters_status_once_there_are_tables(tmp_path: Path) -> None:
    (line,) = StatusView(tmp_path, "local", Config()).lines()
    assert "there are no tables" in line
    write_tables(running(3, 12), tmp_path, time.time_ns() // 1_000_000)
    text = "\n".join(StatusView(tmp_path, "local", Config()).lines())
    assert "brokers 3 active" in text
    assert "broker-1:8080" in text


_WHOLE = "t/n/0x00000000_0xffffffff"


def _facts() -> RunFacts:
    loads = [{"a": 3.0, "b": 1.0}] * 40 + [{"a": 2.0, "b": 2.0}] * 40
    samples = [
        LoadSample(at_ms=1_000 * i, broker_loads=load, hottest_bundle=0.5, bundles_open=i)
        for i, load in enumerate(loads)
    ]
    log = JobLog(batches=3, durations_ms=[100, 200, 300], cycle_durations_ms=[300])
    log.decisions["skip:HitCount"] = 4
    log.reports["accepted"] = 70
    return RunFacts(
        arguments={"brokers": 2},
        started_ms=0,
        ended_ms=80_000,
        bundles=1,
        job=log,
        samples=samples,
        opened=[BundleOpened(bundle=_WHOLE, broker="b", at_ms=60_000)],
        owned=[
            BundleOpened(bundle=_WHOLE, broker="a", at_ms=1_000),
            BundleOpened(bundle=_WHOLE, broker="b", at_ms=60_000),
        ],
        crashes=[Crash(broker="a", killed_at_ms=41_000, last_report_ms=40_000, bundles=(_WHOLE,))],
        probe={
            "lookups": {"sent": 10, "right": 9, "unavailable": 1},
            "decision_to_lookup_ms": {"p99": 900.0},
        },
        restarts={"kafka": 0},
    )


def test_imbalance_of_a_run_is_that_of_its_worst_isolation_group() -> None:
    """Two even groups, one of them busy: nothing is uneven; without groups it is 1.9."""
    loads = {"a": 38.0, "b": 38.0, "c": 2.0, "d": 2.0}
    sample = LoadSample(at_ms=0, broker_loads=loads)
    log = JobLog(brokers={name: {"group": "a" if name < "c" else "c"} for name in loads})
    assert imbalance_of(sample, JobLog(brokers={name: {} for name in loads}).groups()) == 1.9
    assert imbalance_of(sample, log.groups()) == 1.0
    assert imbalance_of(LoadSample(at_ms=0, broker_loads=dict.fromkeys(loads, 0.0)), {}) is None
    assert imbalance_of(None, {}) is None


def test_summary_times_a_crash_and_tells_the_first_half_minute_from_the_last() -> None:
    found = json.loads(json.dumps(summarise(_facts())))
    assert (found["batches"], found["batch_ms"]["p50"], found["cycle_ms"]["p95"]) == (3, 200, 300)
    assert found["reports"] == {"accepted": 70, "late": 0, "duplicate": 0, "rejected": 0}
    balance = found["imbalance"]
    assert (balance["all_open_after_ms"], balance["last_30_s"]["samples"]) == (1_000, 30)
    assert [balance[part]["max_over_mean"] for part in ("first_30_s", "last_30_s")] == [1.5, 1.0]
    (crash,) = found["crashes"]
    assert (crash["broker"], crash["bundles"], crash["unserved"]) == ("a", 1, [])
    assert crash["all_served_again_ms"] == 20_000
