"""The heat map's grid says what load_history has, and stays small however large the cluster."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.tables import arrow_schema, ensure_tables, table_path
from jobs.operating.heat import BUNDLES_MAX, MOMENTS_MAX, OF_BROKERS, HeatQuestion, read_heat
from lbcore.model.resources import COUNT
from lbcore.model.tables import LOAD_HISTORY
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def test_grid_has_each_reported_value_in_its_place(tmp_path: Path) -> None:
    world = eventful()
    write_tables(world, tmp_path)
    question = HeatQuestion(by="msg_rate", until_ms=world.now_ms, window_ms=_HOUR_MS)
    found = read_heat(TableReader(tmp_path, CLUSTER), question)
    rows = world.other_rows["load_history"]
    assert found["names"] == sorted({str(row["broker"]) for row in rows})
    assert sum(cell is not None for line in found["values"] for cell in line) == len(rows)
    for row in rows:
        line = found["values"][found["names"].index(row["broker"])]
        column = (row["minute_ms"] - found["from_ms"]) // found["step_ms"]
        wanted = row["traffic"][0] + row["traffic"][1]
        assert line[column] == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("by", OF_BROKERS)
def test_every_resource_can_be_asked_for(tmp_path: Path, by: str) -> None:
    _write(tmp_path, brokers=2, bundles=3)
    question = HeatQuestion(by=by, until_ms=_HOUR_MS, window_ms=_HOUR_MS)
    found = read_heat(TableReader(tmp_path, CLUSTER), question)
    assert found["names"] == ["broker-0", "broker-1"]
    assert found["values"][0].count(None) == found["moments"] - 1


def test_hottest_bundles_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    _write(tmp_path, brokers=1, bundles=BUNDLES_MAX + 5)
    asked = {"by": "msg_rate_in", "until_ms": _HOUR_MS, "window_ms": 7 * 24 * _HOUR_MS}
    found = read_heat(TableReader(tmp_path, CLUSTER), HeatQuestion(broker="broker-0", **asked))
    assert found["left_out"] == 5
    assert len(found["names"]) == BUNDLES_MAX
    assert "t/n/00004" not in found["names"]
    assert "t/n/00005" in found["names"]
    assert found["moments"] <= MOMENTS_MAX


def _write(root: Path, *, brokers: int, bundles: int) -> None:
    """One minute of load; bundle number N has N messages a second."""
    ensure_tables(root)
    rates = [float(at) for at in range(bundles)]
    filled = {"percent": [50.0] * COUNT, "traffic": [1.0] * 4, "usage": 0.5, "score": 0.5}
    filled |= {"broker_group": ""}
    rows = [
        {
            **{column.name: 0 for column in LOAD_HISTORY.columns},
            **filled,
            **dict.fromkeys(("topics", "sessions"), rates),
            **{f"msg_{what}": rates for what in ("rate_in", "rate_out")},
            **{f"msg_throughput_{way}": rates for way in ("in", "out")},
            "cluster": CLUSTER,
            "broker": f"broker-{at}",
            "bundles": [f"t/n/{number:05}" for number in range(bundles)],
            "minute_ms": _HOUR_MS - _MINUTE_MS,
        }
        for at in range(brokers)
    ]
    shown = pa.Table.from_pylist(rows, schema=arrow_schema(LOAD_HISTORY))
    write_deltalake(str(table_path(root, LOAD_HISTORY.name)), shown, mode="append")
