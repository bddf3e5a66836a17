"""What the job does around Spark's batches; Spark, sink and tables are stood in for."""

import json
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.processes.clocks import ClockSteps
from jobs.adapters.processes.signals import Shutdown
from jobs.adapters.spark.batch_sink import (
    BatchSink,
    EachBatch,
    JobEndingError,
)
from jobs.adapters.spark.checkpoint import DamagedCheckpointError, Manifest, Resumption
from jobs.adapters.spark.fatal_errors import STARTS_MAX, WorkerStartupError, retry_late_workers
from jobs.balance_cluster import _Job, _let_batch_end, _Start
from jobs.console import CommandError, Exit
from tests.support.tables.small_batches import BUNDLE_A, batch, record
from tests.support.worlds.measured_world import Kafka, Tables


class Sink:
    """Keeps what it was called with."""

    def __init__(self) -> None:
        self.query_id = "q"
        self.writer = SimpleNamespace(version=lambda _table: 7)
        self.written: list[int] = []
        self.now_ms = 1_800_000_000_000
        self.lines: list[Mapping[str, Any]] = []

    def __call__(self, frame: object, batch_id: int) -> None:
        del frame
        self.written.append(batch_id)

    def end_with(self, batch_id: int) -> int:
        return batch_id

    def log(self, line: Mapping[str, Any]) -> None:
        self.lines.append(line)


class Query:
    """A query whose progress is told a look after its batch has ended."""

    isActive = True  # noqa: N815 Spark's name

    def __init__(self) -> None:
        self.asked = 0
        self.batch_id: int | None = None

    @property
    def lastProgress(self) -> Any:  # noqa: N802 Spark's name
        self.asked += 1
        if self.batch_id is None:
            return None
        said = {
            "batchId": self.batch_id,
            "numInputRows": 1,
            "durationMs": {"addBatch": 2_500, "latestOffset": 3},
            "stateOperators": [],
        }
        return SimpleNamespace(json=json.dumps(said))

    def stop(self) -> None:
        self.isActive = False


class Clock:
    """Stops the job after its looks; before each, something happens."""

    def __init__(self, *scenario_events: Any) -> None:
        self.scenario_events = list(scenario_events)

    def wait(self, _timeout_s: float) -> bool:
        if not self.scenario_events:
            return True
        self.scenario_events.pop(0)()
        return False


def each_batch(path: Path, upkeep: Any) -> tuple[EachBatch, Sink]:
    sink = Sink()
    resumption = Resumption(checkpoint=path, reason="")
    each = EachBatch(sink, resumption, upkeep, path)  # type: ignore[arg-type]
    return each, sink


def wait(query: Query, end: Shutdown, each: EachBatch, lines: list[Any] | None = None) -> int:
    """What the job's waiting comes to, with topics that stay and metrics that nobody reads."""
    start = _Start(
        job=SimpleNamespace(end=end),  # type: ignore[arg-type]
        place=SimpleNamespace(),  # type: ignore[arg-type]
        writer=SimpleNamespace(),  # type: ignore[arg-type]
        claimed=SimpleNamespace(),  # type: ignore[arg-type]
        log=[].append if lines is None else lines.append,
        metrics=SimpleNamespace(see_progress=lambda _: None, see_tasks=lambda _: None),  # type: ignore[arg-type]
        publisher=SimpleNamespace(),  # type: ignore[arg-type]
        watch=SimpleNamespace(loss=lambda: None, check=lambda: None),  # type: ignore[arg-type]
    )
    return start._wait(query, each, SimpleNamespace(poll=dict))  # type: ignore[arg-type]  # noqa: SLF001 (its only part without Spark)


def test_upkeep_has_its_turn_after_the_batch_and_is_logged_when_it_did_something(
    tmp_path: Path,
) -> None:
    seen: list[list[int]] = []

    def upkeep(now_ms: int) -> Mapping[str, Any] | None:
        assert now_ms == sink.now_ms
        seen.append(list(sink.written))
        return {"event": "upkeep"} if len(seen) == 2 else None

    each, sink = each_batch(tmp_path, upkeep)
    each(None, 7)
    each(None, 8)
    assert seen == [[7], [7, 8]]
    assert sink.lines == [{"event": "upkeep"}]
    assert each.ended == 8


def real_sink() -> BatchSink:
    return BatchSink(
        writer=Tables(),  # type: ignore[arg-type]
        publisher=Kafka(),
        claimed=Manifest(code_version="c", config_version="v", scorer_groups=1),
        query_id="q",
        heartbeat_ms=10_000,
        log=lambda _: None,
    )


def test_age_of_rows_is_told_by_the_time_of_the_batch_and_not_by_the_machines_clock(
    tmp_path: Path,
) -> None:
    sink = real_sink()
    seen: list[int] = []
    each = EachBatch(sink, Resumption(checkpoint=tmp_path, reason=""), seen.append, tmp_path)  # type: ignore[arg-type]
    each(batch(record(BUNDLE_A, 1), now_ms=20_000), 0)
    each(batch(record(BUNDLE_A, 2), now_ms=30_000), 1)
    assert seen == [20_000, 30_000]


def test_progress_is_asked_for_when_a_batch_has_ended_until_it_is_told(tmp_path: Path) -> None:
    query, lines = Query(), []
    each, _ = each_batch(tmp_path, lambda _: None)

    def nothing() -> None:
        """Time passes."""

    def batch() -> None:
        each(None, 4)

    def told() -> None:
        query.batch_id = 4

    stop = Clock(nothing, nothing, batch, nothing, told, nothing, nothing)
    end = Shutdown(limit_s=600, asked=stop)  # type: ignore[arg-type]
    assert wait(query, end, each, lines) == Exit.DONE
    assert [line.get("spark_batch") for line in lines] == [4, None]
    assert query.asked == 3


def test_clock_that_goes_back_ends_the_job_and_any_other_way_of_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"wall": 1e9, "steady": 0.0}
    steps = ClockSteps(lambda: times["wall"], lambda: times["steady"])
    monkeypatch.setattr("jobs.balance_cluster.ClockSteps", lambda: steps)

    def pass_s(wall: float, steady: float = 0.2) -> None:
        times.update(wall=times["wall"] + wall, steady=times["steady"] + steady)

    scenario_events = (0.2, 3_600, 0.2, -5, 0.2, 0.2)
    stop = Clock(*(lambda s=s: pass_s(s) for s in scenario_events), lambda: pass_s(-3_600))
    each, _ = each_batch(tmp_path, lambda _: None)
    with pytest.raises(CommandError, match="went back by 3600 s"):
        wait(Query(), Shutdown(limit_s=600, asked=stop), each)  # type: ignore[arg-type]
    assert not stop.scenario_events


LATE = "org.apache.spark.SparkException: Python worker failed to connect back."


class EndedQuery(Query):
    """A query that has ended with an error of Spark's."""

    isActive = False  # noqa: N815 Spark's name

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error

    def exception(self) -> str:
        return self.error


def waited(tmp_path: Path, error: str, *, ended: int = -1) -> int:
    """What waiting for a query that has ended comes to. ended: its last batch."""
    each, _ = each_batch(tmp_path, lambda _: None)
    each.ended = ended
    end = Shutdown(limit_s=600, asked=Clock(lambda: None))  # type: ignore[arg-type]
    return wait(EndedQuery(error), end, each)


def test_query_whose_worker_came_too_late_is_begun_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = [LATE, LATE, "another"]
    assert retry_late_workers(lambda: waited(tmp_path, errors.pop(0))) == Exit.FAILED
    said = capsys.readouterr().err
    assert "did not start within 10 s (2 of" in said
    assert "another" in said


def test_worker_that_is_lost_after_a_batch_ends_the_job(tmp_path: Path) -> None:
    assert waited(tmp_path, LATE, ended=3) == Exit.FAILED


def test_machine_that_is_always_too_busy_is_told_of_with_what_to_do(tmp_path: Path) -> None:
    attempts: list[int] = []

    def attempt() -> int:
        attempts.append(1)
        return waited(tmp_path, LATE)

    with pytest.raises(CommandError, match="could not begin") as raised:
        retry_late_workers(attempt)
    assert len(attempts) == STARTS_MAX
    assert "less busy" in raised.value.next_step
    with pytest.raises(WorkerStartupError):
        waited(tmp_path, LATE)


def begin(checkpoint: Path, *names: str) -> None:
    """What Spark leaves behind of batches: `offsets/N` begun, `commits/N` ended."""
    for name in names:
        (checkpoint / name).parent.mkdir(exist_ok=True)
        (checkpoint / name).touch()


def test_job_that_ends_waits_for_the_batch_it_is_at_and_not_for_those_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch longer than its trigger: the next one follows before anybody has looked."""
    begin(tmp_path, "offsets/5")
    looks = iter([(), ("commits/5", "offsets/6")])
    monkeypatch.setattr(
        "jobs.balance_cluster.time.sleep", lambda _seconds: begin(tmp_path, *next(looks))
    )
    sink = real_sink()
    _let_batch_end(Query(), tmp_path, sink)
    assert next(looks, None) is None
    sink(batch(record(BUNDLE_A, 1)), 5)
    with pytest.raises(JobEndingError, match="leaves 6 to the next one"):
        sink(batch(record(BUNDLE_A, 2)), 6)


def test_job_that_ends_before_its_first_batch_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.balance_cluster.time.sleep", lambda _seconds: pytest.fail("it waits"))
    sink = real_sink()
    _let_batch_end(Query(), tmp_path, sink)
    with pytest.raises(JobEndingError):
        sink(batch(record(BUNDLE_A, 1)), 0)


def test_job_whose_checkpoint_is_damaged_while_it_works_asks_kafka_again_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ends of its start, what it read since would be read a second time."""
    places = [SimpleNamespace(topics={}, number=number) for number in range(2)]
    asked = iter(places)
    checkpoint = tmp_path / "checkpoints" / "epoch-0"
    first = Resumption(checkpoint=checkpoint, reason="")
    stand_ins: dict[str, Any] = {
        "kafka_address": lambda *_: SimpleNamespace(
            topic_name=lambda topic: topic.value, client_options=lambda _: {}
        ),
        "find_kafka": lambda *_: next(asked),
        "TableWriter": lambda _: SimpleNamespace(
            epoch=0, claim=lambda _claim: 0, is_ours=lambda: True
        ),
        "present_manifest": lambda *_: Manifest(
            code_version="", config_version="", scorer_groups=1
        ),
        "choose_checkpoint": lambda *_: first,
        "claimed_tables": lambda _: None,
        "TopicWatch": lambda *_: nullcontext(SimpleNamespace(loss=lambda: None)),
        "OwnershipPublisher": lambda *_, **__: SimpleNamespace(close=lambda: None),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(f"jobs.balance_cluster.{name}", stand_in)
    begun: list[tuple[int, Resumption]] = []

    def work(start: Any, resumption: Resumption, *_: object) -> int:
        begun.append((start.place.number, resumption))
        if len(begun) == 1:
            raise DamagedCheckpointError(checkpoint, "a file is cut")
        return Exit.DONE

    monkeypatch.setattr(_Start, "work", work)
    monkeypatch.setattr(_Job, "warm_up", lambda _: None)
    with ExitStack() as cleanup:
        job = _Job(
            args=SimpleNamespace(bootstrap="", tables="", state_dir=tmp_path, log=None),  # type: ignore[arg-type]
            config=SimpleNamespace(telemetry=SimpleNamespace(bundle_metrics=False)),  # type: ignore[arg-type]
            end=SimpleNamespace(asked=Event(), with_work=nullcontext),  # type: ignore[arg-type]
            passed=lambda _: None,
            cleanup=cleanup,
            metrics_port=SimpleNamespace(show=lambda _: None),  # type: ignore[arg-type]
            partitions=1,
        )
        assert job.run() == Exit.DONE
    assert [number for number, _ in begun] == [0, 1]
    assert begun[1][1].is_rebuilt
