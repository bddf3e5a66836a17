"""Liveness: silence is counted in Kafka's time, and only where ticks tell that time."""

import json

import numpy as np
import pytest

from lbcore.ownership.liveness import TICK, Liveness, Rows
from lbcore.packing import from_plain, to_plain

STEP_MAX_MS = 2_000
TIMEOUT_MS = 15_000


def rows(*written: tuple[int, int, int, str]) -> Rows:
    """Rows of (partition, offset, timestamp_ms, broker or "" for a tick)."""
    brokers = sorted({broker for *_, broker in written if broker})
    columns = [
        [partition, offset, timestamp_ms, brokers.index(broker) if broker else TICK]
        for partition, offset, timestamp_ms, broker in written
    ]
    partition, offset, timestamp_ms, broker = np.array(columns, dtype=np.int64).reshape(-1, 4).T
    return Rows(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        broker=broker,
        brokers=brokers,
    )


def ticks(partition: int, first_offset: int, from_ms: int, count: int) -> list[tuple]:
    """One tick a second."""
    return [(partition, first_offset + i, from_ms + 1_000 * i, "") for i in range(count)]


def test_silence_of_exactly_the_timeout_is_no_death() -> None:
    written = [(0, 0, 0, "a"), *ticks(0, 1, 1_000, 15), (0, 16, 15_000, "b")]
    liveness = Liveness().observe(rows(*written), STEP_MAX_MS)
    assert liveness.silence_ms("a") == TIMEOUT_MS
    assert liveness.judge(TIMEOUT_MS).dead == frozenset()


def test_clock_after_a_step_back_goes_on_at_once() -> None:
    written = [(0, 0, 3_600_000, "a"), *ticks(0, 1, 3_601_000, 2), *ticks(0, 3, 10_000, 16)]
    liveness = Liveness().observe(rows(*written), STEP_MAX_MS)
    assert liveness.silence_ms("a") == 2_000 + 15_000


def test_dead_broker_heard_of_again_lives() -> None:
    written = [(0, 0, 0, "a"), *ticks(0, 1, 1_000, 20), (0, 21, 20_500, "b")]
    dead = Liveness().observe(rows(*written), STEP_MAX_MS).judge(TIMEOUT_MS)
    back = dead.observe(rows((0, 22, 21_000, "a")), STEP_MAX_MS).judge(TIMEOUT_MS)
    assert back.dead == frozenset()


def test_expected_broker_that_never_reports_times_out_from_then_on() -> None:
    start = Liveness().observe(rows((0, 0, 0, "b"), *ticks(0, 1, 1_000, 30)), STEP_MAX_MS)
    expecting = start.expect(["a"])
    assert expecting.silence_ms("a") == 0
    written = [*ticks(0, 31, 31_000, 16), (0, 47, 46_100, "b")]
    later = expecting.observe(rows(*written), STEP_MAX_MS).judge(TIMEOUT_MS)
    assert later.silence_ms("a") == 16_000
    assert later.dead == {"a"}


def test_expected_broker_already_seen_keeps_its_last_arrival() -> None:
    seen = Liveness().observe(rows((0, 0, 0, "a"), *ticks(0, 1, 1_000, 5)), STEP_MAX_MS)
    assert seen.expect(["a"]) == seen


def test_forgotten_broker_is_not_judged() -> None:
    written = [(0, 0, 0, "a"), *ticks(0, 1, 1_000, 20), (0, 21, 20_500, "b")]
    liveness = Liveness().observe(rows(*written), STEP_MAX_MS).judge(TIMEOUT_MS).forget("a")
    assert liveness.dead == frozenset()
    assert "a" not in liveness.judge(TIMEOUT_MS).seen


def test_partition_without_ticks_is_named_and_its_brokers_live() -> None:
    beats = [(1, i, 3_000 * i, "b") for i in range(20)]
    written = [(0, 0, 0, "a"), *ticks(0, 1, 1_000, 57), *beats, (1, 20, 57_500, "c")]
    liveness = Liveness().observe(rows(*written), STEP_MAX_MS)
    later = liveness.observe(rows(*ticks(0, 58, 58_000, 11)), STEP_MAX_MS)
    assert later.missing_ticks(10_000) == [1]
    assert later.silence_ms("b") == 0
    caught_up = later.observe(rows((1, 21, 68_500, "")), STEP_MAX_MS)
    assert caught_up.missing_ticks(10_000) == []


@pytest.mark.parametrize("liveness", [Liveness(), Liveness().expect(["a", "b"])])
def test_plain_form_of_any_state_reads_back_equal(liveness: Liveness) -> None:
    written = [(3, 0, 0, "a"), *ticks(3, 1, 1_000, 20), (1, 21, 20_500, "b")]
    for state in (liveness, liveness.observe(rows(*written), STEP_MAX_MS).judge(TIMEOUT_MS)):
        plain = json.loads(json.dumps(to_plain(state)))
        assert from_plain(Liveness, plain) == state
