"""The live view: what a person reads in it."""

import re
import time
from dataclasses import replace
from pathlib import Path

from jobs.local.job_log import JobLog
from jobs.local.prober import ProbeCounts
from jobs.local.status import RunStatus, broker_order, broker_rows, bundles_served
from jobs.local.terminal import run_lines
from jobs.operating.status import StatusView
from lbcore.config.tree import Config
from lbcore.sim.summary import LoadSample
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables

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


def _drawn(status: RunStatus) -> list[str]:
    return list(run_lines(status))


def test_view_says_time_bundles_and_lookups() -> None:
    text = "\n".join(_drawn(_status()))
    assert "01:05  running" in text
    assert "bundles open 7/8" in text
    assert "95 right, 0 wrong, 4 told to wait, 1 failed" in text


def test_view_counts_every_lookup_that_was_asked() -> None:
    counts = ProbeCounts(sent=84_047, right=84_030, wrong=1, unavailable=5, failed=3, pending=8)
    text = "\n".join(_drawn(replace(_status(), lookups=counts)))
    line = next(line for line in text.splitlines() if "lookups" in line)
    asked, *classes = map(int, re.findall(r"\d+", line))
    assert asked == sum(classes)
    assert "8 under way" in line


def test_view_says_what_was_restarted() -> None:
    text = "\n".join(_drawn(_status()))
    assert "restarted: balance_cluster × 1" in text
    assert "kafka × 0" not in text
    assert "died (code 137)" in text


def test_headless_line_has_everything() -> None:
    line = _status().to_json()
    assert line["last_move"]["cause"] == "shed"
    assert line["brokers"][0]["name"] == "broker-1"
    assert line["lookups"]["right"] == 95


def test_broker_order_is_by_number_not_by_letter() -> None:
    names = ["broker-10", "broker-2", "other", "broker-1"]
    assert sorted(names, key=broker_order) == ["broker-1", "broker-2", "broker-10", "other"]


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
