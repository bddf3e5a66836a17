"""Views and ready queries over the tables of a cluster in virtual time: what they say is true."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.adapters.delta.table_reader import TableReader
from jobs.cli import main
from jobs.console import MisuseError
from jobs.operating.overview import read_overview
from jobs.sql.engine import SqlEngine, plain_rows
from jobs.sql.queries import QUERIES
from jobs.sql.views import VIEWS, SqlView
from lbcore.sim.summary import Owned, moves, thrash
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.ruled_world import decided
from tests.support.worlds.world import CLUSTER, World

_TYPES = {
    "string": {pa.string(), pa.string_view()},
    "long": {pa.int64(), pa.uint64()},
    "double": {pa.float64()},
    "timestamp": {pa.timestamp("ns"), pa.timestamp("s")},
    "date": {pa.date32()},
}


@pytest.fixture(scope="module")
def world() -> World:
    """A cluster in which everything has happened that the queries ask about."""
    return eventful()


@pytest.fixture(scope="module")
def root(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tables."""
    found = tmp_path_factory.mktemp("sql")
    write_tables(world, found)
    return found


@pytest.fixture(scope="module")
def engine(root: Path) -> SqlEngine:
    """The engine in this process, over them."""
    return SqlEngine(root)


def ready(engine: SqlEngine, name: str) -> list[dict[str, Any]]:
    (query,) = [one for one in QUERIES if one.name == name]
    return plain_rows(engine.query(query.text))


def made(world: World) -> list[Any]:
    """The moves as the simulator counts them."""
    owned = [
        Owned(bundle=row["bundle"], broker=row["destination"], at_ms=row["at_ms"])
        for row in world.events
        if row["state"] == "Owned"
    ]
    return moves(owned)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_view_has_the_columns_that_are_documented(engine: SqlEngine, view: SqlView) -> None:
    found = engine.query(f"SELECT * FROM {view.name}")  # noqa: S608 (a declared name)
    assert found.column_names == [column.name for column in view.columns]
    for column in view.columns:
        assert found.schema.field(column.name).type in _TYPES[column.type], column.name
        if not column.is_nullable:
            assert found[column.name].null_count == 0, column.name
    assert found.num_rows


def test_moves_are_those_that_the_simulator_counts(engine: SqlEngine, world: World) -> None:
    rows = engine.query("SELECT bundle, from_broker, to_broker, opened_ms FROM moves").to_pylist()
    found = {tuple(row.values()) for row in rows}
    assert found == {(m.bundle, m.source, m.destination, m.at_ms) for m in made(world)}
    (row,) = ready(engine, "thrash-by-day")
    assert row["moves"] == len(made(world))
    assert row["returns"]
    assert row["thrash"] == pytest.approx(thrash(made(world)), abs=1e-4)
    assert sum(row["moves"] for row in ready(engine, "most-moved")) == row["moves"]
    assert sum(row["moves"] for row in ready(engine, "why-moved")) == row["moves"]


def test_crash_says_how_long_its_bundles_were_closed(engine: SqlEngine, world: World) -> None:
    found = [row for row in ready(engine, "crash-recovery") if row["broker"] == "broker-2:8080"]
    (decision,) = [row for row in decided(world, "failover") if row["source"] == "broker-2:8080"]
    lost = {r["bundle"] for r in world.events if r["decision_id"] == decision["decision_id"]}
    opened = [
        int(str(row["at_ms"]))
        for row in world.events
        if row["decision_id"] == decision["decision_id"] and row["state"] == "Owned"
    ]
    (row,) = found
    assert row["bundles"] == row["reopened"] == len(lost)
    assert row["took_ms"] == max(opened) - int(str(decision["at_ms"]))


def test_unhelpful_and_idle_cycles_are_counted(engine: SqlEngine, world: World) -> None:
    outcomes = [str(row["outcome"]) for row in world.other_rows["decision_effects"]]
    unhelpful = [one for one in outcomes if one != "helped"]
    assert unhelpful
    assert len(ready(engine, "no-help")) == len(unhelpful)
    skips = ready(engine, "skips")
    assert sum(row["cycles"] for row in skips) == len(decided(world, "skip"))
    considered = sum(int(str(r["count"])) for r in world.other_rows["decision_candidates"])
    assert sum(row["times"] for row in ready(engine, "why-not")) == considered


def test_load_is_that_of_the_newest_minute(engine: SqlEngine, world: World) -> None:
    newest = {row["broker"]: row for row in world.other_rows["load_history"]}
    found = {row["broker"]: row for row in ready(engine, "near-limits")}
    assert found.keys() == newest.keys()
    for broker, row in found.items():
        percent = newest[broker]["percent"]
        assert row["cpu_percent"] == pytest.approx(percent[0], abs=0.05)
        assert row["bundles"] == len(newest[broker]["bundles"])
    hot = ready(engine, "hot-bundles")[0]
    rates = {
        name: in_ + out
        for row in newest.values()
        for name, in_, out in zip(
            row["bundles"], row["msg_rate_in"], row["msg_rate_out"], strict=True
        )
    }
    assert hot["msg_per_s"] == pytest.approx(max(rates.values()), abs=0.05)
    last = ready(engine, "imbalance")[0]
    minute = max(row["minute_ms"] for row in newest.values())
    loads = [sum(r["traffic"][:2]) for r in newest.values() if r["minute_ms"] == minute]
    assert len(loads) == 3
    assert last["imbalance"] == pytest.approx(max(loads) * len(loads) / sum(loads), abs=1e-3)
    assert last["floor_adjusted"] <= last["imbalance"]


def test_writing_and_other_statements_are_refused(engine: SqlEngine, tmp_path: Path) -> None:
    there = tmp_path / "copy.csv"
    for text in (
        f"COPY (SELECT 1) TO '{there}'",
        "INSERT INTO pins SELECT * FROM pins",
        "-- SELECT\nDROP VIEW moves",
        "EXPLAIN ANALYZE INSERT INTO pins SELECT * FROM pins",
        "SELECT 1; DROP VIEW moves",
        "SELECT nothing FROM moves",
    ):
        with pytest.raises(MisuseError):
            engine.query(text)
    assert not there.exists()
    assert engine.query("/* all */ (SELECT count(*) AS n FROM moves)").num_rows == 1


def test_verb_answers_ready_queries_and_own_ones(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--tables", str(root)]
    assert main(["sql"]) == 0
    listed = capsys.readouterr().out
    for query in QUERIES:
        assert query.name in listed
        assert main(["sql", query.name, *where]) == 0
        assert capsys.readouterr().out
    assert main(["sql", "SELECT count(*) AS n FROM crashes", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] >= 1
    assert main(["sql", "no-such-query", *where]) == 2
    assert main(["sql", "skips", "--text"]) == 0
    assert "kind = 'skip'" in capsys.readouterr().out
    assert main(["sql", "skips", "--tables", str(root / "none")]) == 1


def test_tables_of_an_older_version_are_read_before_its_job_gives_them_the_new_columns(
    root: Path, engine: SqlEngine, tmp_path: Path, world: World
) -> None:
    older = tmp_path / "older"
    shutil.copytree(root, older)
    table = engine.query("SELECT * FROM load_history").drop_columns(["reported_ms", "usage"])
    shutil.rmtree(older / "load_history")
    write_deltalake(str(older / "load_history"), table)
    text = "SELECT broker, usage, minute_ms FROM broker_loads ORDER BY minute_ms, broker"
    of_old = plain_rows(SqlEngine(older).query(text))
    assert len(of_old) == len(table)
    assert [row["usage"] for row in of_old] == pytest.approx(
        [row["usage"] for row in plain_rows(engine.query(text))]
    )  # the fleet's usage is of the CPU: both definitions give the same
    config = world.config
    found = read_overview(TableReader(older, CLUSTER), config, world.now_ms).status
    now = read_overview(TableReader(root, CLUSTER), config, world.now_ms).status
    assert [row.usage for row in found.broker_rows] == pytest.approx(
        [row.usage for row in now.broker_rows]
    )
