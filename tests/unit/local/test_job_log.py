"""The job's line a batch, folded into counts."""

from typing import Any

from jobs.local.job_log import JobLog


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


def test_job_log_counts_batches_and_their_durations() -> None:
    log = JobLog()
    log.fold([_line(1), _line(2), _line(3, cycle=2)])
    assert (log.batches, log.durations_ms, log.now_ms) == (3, [100, 200, 300], 3_000)
    assert log.cycle_durations_ms == [100, 300]


def test_job_log_batch_of_two_clusters_is_one_batch() -> None:
    log = JobLog()
    log.fold([_line(1, counts={"accepted": 2}), _line(1, counts={"accepted": 3})])
    assert (log.batches, log.durations_ms) == (1, [100])
    assert log.reports["accepted"] == 5


def test_job_log_sorts_counts_into_decisions_and_reports() -> None:
    log = JobLog()
    counts = {"accepted": 7, "late": 1, "decision:skip:HitCount": 2, "joined": 3}
    log.fold([_line(1, counts=counts), _line(2, counts={"decision:skip:HitCount": 1})])
    assert dict(log.decisions) == {"skip:HitCount": 3}
    assert log.reports_by_verdict() == {"accepted": 7, "late": 1, "duplicate": 0, "rejected": 0}


def test_job_log_keeps_the_newest_brokers_and_moves() -> None:
    log = JobLog()
    move = {"bundle": "t/n/0x00000000_0xffffffff", "from": "a", "to": "b", "cause": "shed"}
    log.fold([_line(1, brokers={"a": {"score": 0.5}}), _line(2, moves=[move] * 60, in_flight=4)])
    assert log.brokers == {}
    assert (log.moves, log.in_flight) == (60, 4)
    assert log.last_move is not None
    assert (log.last_move["source"], log.last_move["cause"]) == ("a", "shed")


def test_job_log_does_not_count_what_is_kept_of_deleted_bundles() -> None:
    log = JobLog()
    log.fold([_line(1, bundles={"Owned": 61, "Assigning": 1, "Deleted": 1})])
    assert log.live_bundles() == 62


def test_job_log_notices_starts_of_the_job() -> None:
    log = JobLog()
    log.fold([{"event": "start"}, _line(1), {"event": "start"}, {"event": "other"}])
    assert (log.starts, log.batches) == (2, 1)


def test_job_log_tells_who_is_suspected_and_found_dead_and_who_got_the_bundles() -> None:
    log = JobLog()
    inputs = '{"broker_timeout_ms":15000,"silent_ms":6000}'
    row = {"decision_id": "1-1", "kind": "silence", "source": "a", "inputs": inputs}
    log.fold([_line(1, silence=[{**row, "reason": "Suspected"}])])
    assert log.silent_now(3_000).suspected == ("a suspected: silent for 8 s, failover at 15 s",)
    move = {"bundle": "t/n/0x00000000_0xffffffff", "from": "a", "to": "b", "cause": "failover"}
    log.fold([_line(2, silence=[{**row, "reason": "Dead"}], moves=[move] * 3)])
    assert log.silent_now(3_000).suspected == ()
    assert log.news == [
        "a suspected: silent for 6 s, failover at 15 s",
        "a found dead at 00:00:02 UTC after 6 s of silence",
        "a is dead: 3 bundles moved to b (3)",
    ]
