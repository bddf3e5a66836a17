"""Benches: calibration, replays, figures of the pipeline and the performance tests."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.processes.settings import load_settings
from lbcore.config.tree import Config
from lbcore.model.bundles import even_boundaries
from lbcore.wire.messages import Topic
from tests.bench import bench_performance_tests as bench
from tests.bench.bench_performance_tests import (
    Outage,
    outages_of,
    publish_percentile,
    write_section,
)
from tests.bench.calibration import ROUNDS, Calibration, _least_ms, calibrate
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
from tests.replay import NoBeginningError, replay


def test_calibration_on_this_machine_measures_each_loop() -> None:
    found = calibrate()
    assert found.numpy_ms > 0
    assert found.python_ms > 0
    assert found.jvm_ms is not None
    assert found.jvm_ms > 0


def test_least_ms_of_a_loop_runs_every_round() -> None:
    rounds: list[int] = []
    _least_ms(lambda: rounds.append(1))
    assert len(rounds) == ROUNDS


def test_line_without_a_java_says_so() -> None:
    found = Calibration(numpy_ms=12.34, python_ms=5.0, jvm_ms=None, load_average=2.0)
    assert found.line() == (
        "calibration, CPU ms: numpy loop 12.3, Python loop 5.0, JVM loop no Java (load 2.0)"
    )


def event(what: str, bundle: str, at_ms: int) -> dict[str, object]:
    return {"event": what, "bundle": bundle, "at_ms": at_ms}


def test_outage_lasts_from_closing_to_the_next_opening() -> None:
    events = [
        event("opened", "a", 5),
        event("closed", "b", 8),
        event("closed", "a", 10),
        event("opened", "b", 11),
        event("opened", "a", 30),
        event("closed", "a", 40),
    ]
    assert outages_of(events, 9) == [Outage(bundle="a", began_ms=10, lasted_ms=20)]


def test_messages_wait_for_the_rest_of_the_outage_that_they_fall_into() -> None:
    closed = [Outage(bundle="a", began_ms=0, lasted_ms=100)]
    assert publish_percentile(closed, 2, 1_000, 90) == 5.0
    assert publish_percentile(closed, 2, 1_000, 99) == pytest.approx(85, abs=1)
    assert publish_percentile([], 2, 1_000, 99.99) == 5.0


def test_section_replaces_the_one_that_was_there_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nrows\n\n## On the real pipeline\n\nold\n", encoding="utf-8")
    machine = {"measured_at": "2026-01-01", "cores": 1, "cpu": "X", "memory_gib": 1, "python": "3"}
    for figure in (1, 2):
        write_section(page, {"machine": machine, "tests": {"scaling": {"moves": figure}}})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Page\n\nrows\n\n## On the real pipeline\n")
    assert text.count("On the real pipeline") == 1
    assert "| moves | 2 |" in text
    assert "**split**: One bundle of 10,000 topics" in text
    assert text.count("Not measured on that day") == 2
    assert "old" not in text


class FakeStack:
    """Ten brokers that share all load, as soon as one stops or starts."""

    def __init__(self, folder: Path, bundles: int) -> None:
        self.folder = folder
        self.life = {f"broker-{at}": "alive" for at in range(1, 11)}
        edges = even_boundaries(bundles)
        self.names = [f"bench/n/0x{a:08x}_0x{b:08x}" for a, b in pairwise(edges)]
        self.log = folder / "fleet" / "fleet-events.jsonl"
        self.log.parent.mkdir()
        self.log.touch()

    def fleet(self, path: str, method: str = "GET") -> dict[str, object]:
        if method == "GET":
            return {"brokers": [self.row(name) for name in self.life]}
        _, action, name = path.split("/")
        self.life[name] = {"drain": "stopped", "start": "alive"}[action]
        return {}

    def row(self, name: str) -> dict[str, object]:
        return {"broker": name, "life": self.life[name], "load": 100.0}

    def served(self) -> dict[str, list[str]]:
        return {name: [f"broker-{at % 10 + 1}"] for at, name in enumerate(self.names)}

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        assert condition(), what

    def wait_settled(self) -> None:
        with self.log.open("a") as file:
            for what, at_ms in (("closed", 10**14), ("opened", 10**14 + 250)):
                file.write(json.dumps(event(what, self.names[0], at_ms)) + "\n")


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, ...]]:
    """The clusters that were asked for: bundles → settings; none is real."""
    asked: dict[int, tuple[str, ...]] = {}

    @contextmanager
    def cluster_of(
        bundles: int, *settings: str, fleet: Sequence[str] = (), report_ms: int = 10_000
    ) -> Iterator[FakeStack]:
        assert report_ms >= load_settings((), settings).agent.heartbeat_interval_ms
        asked[bundles] = (*settings, *fleet)
        yield FakeStack(tmp_path, 128 if bundles == 1 else bundles)

    monkeypatch.setattr(bench, "cluster_of", cluster_of)
    for name in ("_KEPT_S", "_LOOK_S", "_BACK_AFTER_S"):
        monkeypatch.setattr(bench, name, 0.0)
    return asked


def test_rolling_restart_tells_of_the_outages_in_it(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.rolling_restart()
    assert (found["moves"], found["longest, ms"]) == (1, 250.0)
    assert list(clusters) == [1_000]


def test_scaling_is_balanced_when_load_is_shared(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.scaling()
    assert all(isinstance(value, float) for value in found.values())
    assert clusters == {100: ("--utilisation", "0.3")}


def test_split_counts_the_topics_of_each_broker(clusters: dict[int, tuple[str, ...]]) -> None:
    found = bench.split()
    assert 0 < found["most - fewest topics"] < 500
    assert "splitting.max_topics=100" in clusters[1]


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


NOWHERE = "127.0.0.1:1"
"""No Kafka is asked before the checkpoint is known to be whole."""


def checkpoint(folder: Path, batches: list[int], *, first_offset: int = 0) -> Path:
    """What Spark leaves of a run with these ended batches."""
    for name in ("commits", "offsets", "sources/0"):
        (folder / name).mkdir(parents=True)
    for number in batches:
        (folder / "commits" / str(number)).write_text("v1\n{}")
    began = json.dumps({"broker-load": {"0": first_offset, "1": 0}})
    (folder / "sources" / "0" / "0").write_bytes(b"\0v1\n" + began.encode())
    return folder


def refused(folder: Path) -> NoBeginningError:
    with pytest.raises(NoBeginningError) as caught:
        list(replay(NOWHERE, folder, Config()))
    return caught.value


@pytest.mark.parametrize(
    ("batches", "first", "lost"), [([91, 92, 93], 91, 0), ([0, 1, 3], 0, 2), ([10, 9], 9, 0)]
)
def test_run_without_all_its_batches_is_refused_with_how_to_keep_them(
    tmp_path: Path, batches: list[int], first: int, lost: int
) -> None:
    error = refused(checkpoint(tmp_path, batches))
    assert f"begins with batch {first}, and batch {lost} is gone" in error.why
    assert "minBatchesToRetain" in error.next_step


def test_run_that_began_with_a_state_of_the_tables_is_refused(tmp_path: Path) -> None:
    error = refused(checkpoint(tmp_path, [0, 1], first_offset=7))
    assert "a state that was rebuilt from them" in error.why


def test_run_without_an_ended_batch_is_refused(tmp_path: Path) -> None:
    assert "has ended no batch" in refused(checkpoint(tmp_path, [])).why
