"""The summary of a run, from facts made by hand."""

import json

from jobs.local.job_log import JobLog
from jobs.local.status import RunFacts, imbalance_of, summarise
from lbcore.sim.summary import BundleOpened, Crash, LoadSample, Owned

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
            Owned(bundle=_WHOLE, broker="a", at_ms=1_000),
            Owned(bundle=_WHOLE, broker="b", at_ms=60_000),
        ],
        crashes=[Crash(broker="a", killed_at_ms=41_000, last_report_ms=40_000, bundles=(_WHOLE,))],
        probe={
            "lookups": {"sent": 10, "right": 9, "unavailable": 1},
            "decision_to_lookup_ms": {"p99": 900.0},
        },
        restarts={"kafka": 0},
    )


def test_summary_has_balance_of_first_and_last_half_minute() -> None:
    found = summarise(_facts())["imbalance"]
    assert found["all_open_after_ms"] == 1_000
    assert found["first_30_s"]["max_over_mean"] == 1.5
    assert found["last_30_s"]["max_over_mean"] == 1.0
    assert found["last_30_s"]["samples"] == 30


def test_imbalance_of_a_run_is_that_of_its_worst_isolation_group() -> None:
    """Two even groups, one of them busy: nothing is uneven; without groups it is 1.9."""
    loads = {"a": 38.0, "b": 38.0, "c": 2.0, "d": 2.0}
    sample = LoadSample(at_ms=0, broker_loads=loads)
    log = JobLog(brokers={name: {"group": "a" if name < "c" else "c"} for name in loads})
    assert imbalance_of(sample, JobLog(brokers={name: {} for name in loads}).groups()) == 1.9
    assert imbalance_of(sample, log.groups()) == 1.0
    assert imbalance_of(LoadSample(at_ms=0, broker_loads=dict.fromkeys(loads, 0.0)), {}) is None
    assert imbalance_of(None, {}) is None


def test_summary_times_a_crash_from_the_last_report() -> None:
    (crash,) = summarise(_facts())["crashes"]
    assert (crash["broker"], crash["bundles"], crash["unserved"]) == ("a", 1, [])
    assert crash["all_served_again_ms"] == 20_000


def test_summary_counts_batches_decisions_moves_reports_lookups() -> None:
    found = summarise(_facts())
    assert (found["batches"], found["batch_ms"]["p50"], found["cycle_ms"]["p95"]) == (3, 200, 300)
    assert found["decisions"] == {"skip:HitCount": 4}
    assert found["moves"]["count"] == 1
    assert found["reports"] == {"accepted": 70, "late": 0, "duplicate": 0, "rejected": 0}
    assert (found["lookups"]["right"], found["lookups"]["unavailable"]) == (9, 1)
    assert found["decision_to_lookup_ms"]["p99"] == 900.0


def test_summary_of_any_run_is_json() -> None:
    assert json.loads(json.dumps(summarise(_facts())))["machine"]["cores"] >= 1
