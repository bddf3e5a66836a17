"""The figures of the pipeline's bench, from lines as the job writes them."""

from pathlib import Path
from typing import Any

from lbcore.wire.messages import Topic
from tests.bench.load_generator import Bursts, Fleet, Load, Rhythm
from tests.bench.pipeline_figures import (
    bars,
    cycles,
    cycles_read,
    parts,
    percentiles,
    reassigned,
    since_read,
    visible,
)


def batch(number: int, now_ms: int, cycle: int, **parts_ms: int) -> dict[str, Any]:
    """A batch's line, of which all parts end at once."""
    took = {"operators_ms": 100, "delta_ms": 20, "kafka_ms": 5, **parts_ms}
    logged = now_ms + sum(took.values())
    return {
        "batch_id": number, "now_ms": now_ms, "cycle": cycle, "parts": took, "logged_at_ms": logged,
        "tables_ms": {"decisions": 7}, "counts": {"accepted": 10 * number},
    }  # fmt: skip


def test_cycle_is_measured_from_the_timestamp_to_the_last_commit_without_kafka() -> None:
    """Only batches in which a new cycle began count."""
    lines = [batch(1, 1_000, 4), batch(2, 2_000, 4), batch(3, 3_000, 5, kafka_ms=900)]
    assert cycles(lines) == [120]


def test_cycle_since_it_was_read_is_measured_from_the_first_scorer() -> None:
    """A batch of which no step is known is left out."""
    lines = [batch(1, 1_000, 4), batch(2, 2_000, 5), batch(3, 3_000, 6)]
    steps = [
        {"operator": name, "now_ms": 2_000, "began_ms": began_ms}
        for name, began_ms in (("scorer", 2_050), ("scorer", 2_030), ("balancer", 2_010))
    ]
    assert cycles_read(lines, steps) == [90]
    assert since_read(lines[1], steps) == 90
    assert cycles_read(lines, steps, at_least=20) == [90]
    assert cycles_read(lines, steps, at_least=21) == []


def test_bundles_of_the_dead_are_those_given_new_owners() -> None:
    """Others that are repaired in the same batch don't count."""
    counts = {"repair:owner_dead": 7, "repair:destination_dead": 2, "repair:never_opened": 5}
    assert reassigned({"counts": counts}) == 9
    assert reassigned({"counts": {}}) == 0


def test_percentiles_are_nearest_rank_and_none_of_nothing() -> None:
    """The 95th of 100 values is the 96th: never too good."""
    assert percentiles("x {}", range(1, 101)) == {"x p50": 51, "x p95": 96, "x p99": 100}
    assert percentiles("x {}", []) == {}


def test_visible_counts_from_the_decision_and_from_the_oldest_report() -> None:
    """A decision counts from when the sink has it; a report waits for its batch."""
    lines = [batch(1, 1_000, 4), batch(2, 2_000, 4)]
    found = visible(lines, {2: 2_350, 99: 5_000})
    assert found["decision → lookup visible p50 (ms)"] == 250
    assert found["report → score visible p99 (ms)"] == 1_125


def test_parts_of_several_tasks_are_summed_a_batch() -> None:
    """Two groups of one batch are two lines of the same timestamp."""
    step = {"operator": "scorer", "now_ms": 1_000, "parts": {"step": [3.0, 2.0]}}
    found = parts([batch(1, 1_000, 1)], [], [step, step], 0.0)
    assert found["scorer: step"] == {"ms": 6.0, "cpu_ms": 4.0, "most_ms": 6.0}
    assert found["Delta: decisions, when written"] == {"ms": 7, "most_ms": 7}


def test_bars_draw_every_part_that_takes_time(tmp_path: Path) -> None:
    """Names are escaped; what takes nothing is left out."""
    bars(tmp_path / "x.svg", {"a <b>": {"ms": 10.0, "cpu_ms": 4.0}, "idle": {"ms": 0.1}})
    text = (tmp_path / "x.svg").read_text()
    assert "a &lt;b&gt;" in text
    assert "10 (CPU 4)" in text
    assert "idle" not in text


def test_rhythm_gives_everybody_one_turn_an_interval() -> None:
    """A tenth in a tenth of the time; of a long stall one turn is made up for."""
    spread = Rhythm(100, 10.0)
    assert spread.due(1.0) == list(range(10))
    assert spread.due(10.0) == list(range(10, 100))
    assert sorted(spread.due(100.0)) == list(range(100))


def test_burst_is_made_before_its_time_and_sent_at_once() -> None:
    """An order moves it; a broker's own load goes first; who has died meanwhile is silent."""
    sent: list[tuple[Topic, str]] = []

    class Sender:
        def send(self, topic: Topic, key: str, value: bytes) -> None:
            del value
            sent.append((topic, key))

    fleet = Fleet(Sender(), Load(1, 2), "east", 2)  # type: ignore[arg-type]
    bursts = Bursts([(fleet, broker) for broker in fleet.brokers], 10.0)
    seen = []
    for now_s in (6.0, 8.0, 9.9, 10.0, 10.1, 19.0):
        bursts.turn(now_s)
        seen.append((bursts.is_waiting, len(sent)))
    assert seen == [(False, 0), (True, 0), (True, 0), (False, 4), (False, 4), (True, 4)]
    assert [topic for topic, _ in sent] == [Topic.BROKER_LOAD, Topic.BUNDLE_LOAD] * 2
    bursts.next_s = 25.0
    bursts.turn(20.0)
    assert len(sent) == 4
    fleet.brokers[0].is_up = False
    bursts.turn(25.0)
    assert [key for _, key in sent[4:]] == ["east/broker-00001"] * 2
