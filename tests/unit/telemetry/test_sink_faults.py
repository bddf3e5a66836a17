"""What can't be told of a batch that is written, or sent of it, ends no job."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from jobs.adapters.delta import arrow_rows
from jobs.adapters.spark import batch_sink
from lbcore.balancer.state.effects import Effect, columns_of, pack_effect
from lbcore.config.tree import Config
from tests.support.worlds.measured_world import MeasuredWorld


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
    format_record = batch_sink.format_record  # type: ignore[attr-defined]

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
    counted = sum(fault["count"] for fault in faults(world))
    assert world.value("ballast_faults_total", phase="sink_record") == counted


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


def refusing(table: str, column: str, value: object) -> Callable[..., dict[str, Any]]:
    """`unpack_columns` that gives the first row of one table a value that no writer writes."""
    unpack = arrow_rows.unpack_columns  # type: ignore[attr-defined]

    def spoilt(kind: str, blob: bytes) -> dict[str, Any]:
        columns = unpack(kind, blob)
        if kind == table:
            columns[column] = [value, *list(columns[column])[1:]]
        return columns

    return spoilt


UNFIT = {
    "lone surrogate": ("audit", "reason", "\ud800"),
    "over 64 bits": ("audit", "at_ms", 1 << 70),
    "another type": ("audit", "principal", ["x"]),
    "null": ("audit", "reason", None),
    "another type in a list": ("load_history", "msg_rate_in", ["fast"]),
    "surrogate in a list": ("load_history", "bundles", ["\ud800"]),
    "null for a list": ("load_history", "percent", None),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_row_that_no_table_can_hold_is_put_aside_and_its_neighbours_are_written(
    unfit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, column, value = UNFIT[unfit]
    rows = [
        {c.name: _plain(c.type) for c in columns_of(table)} | {"cluster": f"c{n}"} for n in range(3)
    ]
    blob = pack_effect(Effect(kind=table, rows=rows))
    stamp = {"batch_id": 1, "writer_epoch": 2}
    whole = arrow_rows.arrow_rows(table, blob, stamp).table
    monkeypatch.setattr(arrow_rows, "unpack_columns", refusing(table, column, value))
    found = arrow_rows.arrow_rows(table, blob, stamp)
    assert found.table == whole.slice(1)
    (fault,) = found.faults
    assert f"{table}.{column} must be " in fault.error
    assert fault == replace(arrow_rows.arrow_rows(table, blob, stamp).faults[0], trace=fault.trace)


def _plain(kind: str) -> Any:
    return {"string": "x", "boolean": True, "double": 1.0, "binary": b"x"}.get(
        kind, [] if "list" in kind else 1
    )


def test_an_event_that_no_table_can_hold_is_told_to_nobody_and_the_batch_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    sent: list[Any] = []
    monkeypatch.setattr(batch_sink, "format_record", lambda record: sent.append(record.bundle))
    spoilt = refusing("ownership_events", "decision_id", "\ud800")
    monkeypatch.setattr(arrow_rows, "unpack_columns", spoilt)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(1_000)
    lost = "t/n/0x00000000_0x40000000"
    written = [row for seen in world.seen for row in seen.rows("ownership_events", "bundle")]
    assert len(set(written)) == 3
    assert (lost,) not in written
    for seen in world.seen:
        assert (lost,) not in seen.rows("bundle_ownership", "bundle")
    assert lost not in sent
    assert len(set(sent)) == 3
    fault = faults(world)[0]
    assert (fault["phase"], fault["count"]) == ("sink_row", 1)
    assert lost in fault["item"]
    assert "ownership_events.decision_id" in fault["error"]
    assert world.value("ballast_faults_total", phase="sink_row") == len(faults(world))
    assert world.value("ballast_alarm", alarm="faults") == 1
