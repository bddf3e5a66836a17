"""What can't be told of a batch that is written, or sent of it, ends no job."""

from typing import Any, NoReturn

import pytest

from jobs.adapters import batch_sink
from lbcore.config.tree import Config
from tests.measured_world import MeasuredWorld


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
    format_record = batch_sink.format_record

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
    assert world.value("ballast_faults_total", phase="sink_record") == len(faults(world))


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
