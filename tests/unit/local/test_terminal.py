"""The live view: what a person reads in it."""

import re
from dataclasses import replace

from jobs.local.fleet_watch import FleetBroker
from jobs.local.job_log import JobLog, ShownMove
from jobs.local.prober import ProbeCounts
from jobs.local.status import BrokerRow, RunStatus, broker_order, broker_rows, bundles_served
from jobs.local.terminal import run_lines
from lbcore.sim.summary import LoadSample

_MOVE = ShownMove(
    at_ms=1, bundle="t/n/0x00000000_0x40000000", source="broker-1", destination="", cause="shed"
)


def _status() -> RunStatus:
    return RunStatus(
        elapsed_ms=65_000,
        phase="running",
        job="at work: wrote 1 s ago, cycle 3 s ago, ticks heard",
        brokers=(
            BrokerRow(name="broker-1", state="active", msg_rate=2_000.0, bundles=7, score=0.52),
            BrokerRow(name="broker-2", state="killed", msg_rate=0.0, bundles=0, score=None),
        ),
        imbalance=1.25,
        bundles_open=7,
        bundles=8,
        in_flight=1,
        batches=60,
        cycle_p50_ms=812.0,
        cycle_p95_ms=None,
        moves=3,
        recent_moves=(_MOVE,),
        lookups=ProbeCounts(sent=100, right=95, wrong=0, unavailable=4, failed=1, pending=0),
        restarts={"balance_cluster": 1, "kafka": 0},
        events=("01:00 balance_cluster died (code 137)",),
    )


def _drawn(status: RunStatus) -> list[str]:
    return list(run_lines(status))


def test_view_shows_each_broker_with_state_load_and_bundles() -> None:
    lines = [line.split() for line in _drawn(_status()) if line.startswith("broker-")]
    assert lines[0][:3] == ["broker-1", "active", "2,000"]
    assert lines[0][-2:] == ["7", "52%"]
    assert lines[1] == ["broker-2", "killed", "0", "0"]


def test_view_says_imbalance_moves_with_cause_and_lookups() -> None:
    text = "\n".join(_drawn(_status()))
    assert "01:05  running" in text
    assert "bundles open 7/8" in text
    assert "imbalance 1.25" in text
    assert "broker-1 → (nobody)" in text
    assert "shed" in text
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


def test_headless_line_has_everything_but_older_moves() -> None:
    line = _status().to_json()
    assert line["last_move"]["cause"] == "shed"
    assert "recent_moves" not in line
    assert line["brokers"][0]["name"] == "broker-1"
    assert line["lookups"]["right"] == 95


def test_broker_order_is_by_number_not_by_letter() -> None:
    names = ["broker-10", "broker-2", "other", "broker-1"]
    assert sorted(names, key=broker_order) == ["broker-1", "broker-2", "broker-10", "other"]


def test_bundles_of_brokers_beside_the_run_are_counted_and_shown() -> None:
    fleet = (FleetBroker(name="broker-1", life="alive", load=5.0, bundles=60),)
    sample = LoadSample(at_ms=1, broker_loads={"broker-1": 5.0}, bundles_open=60)
    told = {"state": "active", "score": 0.1, "msg_rate": None}
    job = JobLog(brokers={"store-1": {**told, "bundles": 4}, "broker-1": {**told, "bundles": 59}})
    assert bundles_served(sample, fleet, job) == 64
    assert [(row.name, row.bundles) for row in broker_rows(fleet, job)] == [
        ("broker-1", 60), ("store-1", 4)
    ]  # fmt: skip
