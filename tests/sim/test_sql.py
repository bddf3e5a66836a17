"""Views, ready queries and verbs over the tables of a cluster in virtual time."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.tables import table_path
from jobs.cli import main
from jobs.console import MisuseError
from jobs.operating.status import read_overview
from jobs.sql.engine import SqlEngine, plain_rows
from jobs.sql.queries import QUERIES, VIEWS, SqlView
from lbcore.model.tables import TABLES, Table
from lbcore.sim.summary import BundleOpened, moves, thrash
from tests.support.worlds.checked_world import decided
from tests.support.worlds.explained_world import eventful, write_tables
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
        BundleOpened(bundle=row["bundle"], broker=row["destination"], at_ms=row["at_ms"])
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
    named = [row["bundle"] for row in ready(engine, "hot-bundles")]
    assert len(named) == len(set(named)), "a dead broker's last load is not that of now"
    last = ready(engine, "imbalance")[0]
    minute = max(row["minute_ms"] for row in newest.values())
    loads = [sum(r["traffic"][:2]) for r in newest.values() if r["minute_ms"] == minute]
    assert len(loads) == 3
    assert last["imbalance"] == pytest.approx(max(loads) * len(loads) / sum(loads), abs=1e-3)
    assert last["floor_adjusted"] <= last["imbalance"]


WRITING = (
    "COPY (SELECT 1) TO '{there}'",
    "/* /* */ SELECT */ COPY (SELECT 1) TO '{there}' STORED AS CSV",
    "/* /* nested */ SELECT 1 -- */ COPY pins TO '{there}'\n*/ COPY (SELECT 1) TO '{there}'",
    "SELECT 1; COPY (SELECT 1) TO '{there}'",
    "ANALYZE COPY (SELECT 1) TO '{there}'",
    "FORMAT INDENT COPY (SELECT 1) TO '{there}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{there}'",
    "PREPARE later AS COPY (SELECT 1) TO '{there}'",
    "CREATE EXTERNAL TABLE there (a INT) STORED AS CSV LOCATION '{there}'",
    "SELECT 1 AS a INTO copied",
    "SELECT * FROM (SELECT 1 AS a INTO copied)",
    "WITH one AS (SELECT 1 AS a INTO copied) SELECT * FROM one",
    "SELECT (SELECT 1 AS a INTO copied)",
    "INSERT INTO pins SELECT * FROM pins",
    "WITH one AS (SELECT * FROM pins) INSERT INTO pins SELECT * FROM one",
    "WITH one AS (INSERT INTO pins SELECT * FROM pins) SELECT * FROM one",
    "EXPLAIN ANALYZE INSERT INTO pins SELECT * FROM pins",
    "UPDATE pins SET cluster = 'x'",
    "DELETE FROM pins",
    "TRUNCATE TABLE pins",
    "MERGE INTO pins USING pins s ON pins.cluster = s.cluster WHEN MATCHED THEN DELETE",
    "-- SELECT\nDROP VIEW moves",
    "SELECT 1; DROP VIEW moves",
    "CREATE VIEW moves AS SELECT 1",
    "CREATE OR REPLACE TABLE pins AS SELECT 1",
    "CREATE FUNCTION f(INT) RETURNS INT RETURN $1",
    "SET datafusion.execution.batch_size = 1",
)


@pytest.mark.parametrize("text", WRITING)
def test_statement_that_would_do_more_than_read_is_refused(
    engine: SqlEngine, tmp_path: Path, text: str
) -> None:
    there = tmp_path / "copy.csv"
    before = engine.query("SELECT count(*) AS n FROM pins").to_pylist()
    with pytest.raises(MisuseError):
        engine.query(text.format(there=there))
    assert not list(tmp_path.iterdir())
    for gone in ("copied", "there"):
        with pytest.raises(MisuseError, match=r"."):
            engine.query(f"SELECT * FROM {gone}")  # noqa: S608 (names of this test)
    assert engine.query("SELECT count(*) AS n FROM pins").to_pylist() == before


def test_files_of_the_machine_are_no_tables(engine: SqlEngine, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    for source in (f"'{file}'", f'"{file}"', f"read_csv('{file}')", f"'file://{file}'"):
        with pytest.raises(MisuseError):
            engine.query(f"SELECT * FROM {source}")  # noqa: S608 (names of this test)


@pytest.mark.parametrize(
    "text",
    [
        "/* all */ (SELECT count(*) AS n FROM moves)",
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 1) TABLE_ALL",
        "SELECT count(*) AS n FROM moves;",
        "VALUES (1)",
        "SELECT 'INSERT INTO pins', '\n Dml: \n CopyTo: ' AS \"COPY\nDml\"",
        "SELECT count(*) AS n FROM brokers b JOIN pins p ON p.cluster = b.cluster",
        "SELECT count(*) FROM brokers WHERE broker IN (SELECT to_broker FROM moves)",
        "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY broker) AS n FROM brokers)",
    ],
)
def test_statement_that_reads_is_answered(engine: SqlEngine, text: str) -> None:
    assert engine.query(text.replace("TABLE_ALL", "SELECT * FROM n")).num_rows == 1


def test_wrong_statement_is_told_with_what_is_wrong(engine: SqlEngine) -> None:
    for text, why in (
        ("SELECT nothing FROM moves", "nothing"),
        ("SELECT 1 / 0", "Divide by zero"),
        ("SELECT CAST('x' AS INT)", "Cannot cast"),
        ("SELECT", "Expected"),
        ("", "Expected"),
        ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "RecursionLimitExceeded"),
    ):
        with pytest.raises(MisuseError) as caught:
            engine.query(text)
        assert why in caught.value.why


VALUES = (
    ("CAST(1.20 AS DECIMAL(10, 2))", "1.20"),
    ("CAST(12345678901234567890 AS DECIMAL(60, 3))", "12345678901234567890.000"),
    ("named_struct('a', 1, 'b', make_array(CAST(0.5 AS DECIMAL(3, 1))))", {"a": 1, "b": ["0.5"]}),
    ("named_struct('a', 1, 'a', 2)", {"a": 1, "a_2": 2}),
    ("map(['a', 'b'], [1, NULL])", {"a": 1, "b": None}),
    ("map([1], [INTERVAL '1' DAY])", {"1": "P1D"}),
    ("make_array(1, NULL)", [1, None]),
    ("arrow_cast([1], 'LargeList(Int64)')", [1]),
    ("arrow_cast([1], 'FixedSizeList(1, Int64)')", [1]),
    ("arrow_cast([1], 'ListView(Int64)')", [1]),
    ("INTERVAL '1' YEAR", "P12M"),
    ("INTERVAL '2 days -1.5 seconds'", "P2DT-1.5S"),
    ("INTERVAL '0' DAY", "PT0S"),
    ("arrow_cast(1, 'Duration(Nanosecond)')", "PT0.000000001S"),
    ("arrow_cast(-1500, 'Duration(Millisecond)')", "PT-1.5S"),
    ("arrow_cast(1, 'Timestamp(Second, None)')", "1970-01-01T00:00:01"),
    ("arrow_cast(1, 'Timestamp(Nanosecond, None)')", "1970-01-01T00:00:00.000000001"),
    ("arrow_cast(0, 'Timestamp(Second, Some(\"Europe/Berlin\"))')", "1970-01-01T00:00:00+00:00"),
    ("arrow_cast(0, 'Timestamp(Second, Some(\"Nowhere/X\"))')", "1970-01-01T00:00:00+00:00"),
    ("arrow_cast(9223372036854775, 'Timestamp(Second, None)')", "9223372036854775 s since 1970"),
    ("make_array(arrow_cast(1, 'Timestamp(Second, None)'))", ["1970-01-01T00:00:01"]),
    ("CAST('2026-01-02' AS DATE)", "2026-01-02"),
    ("arrow_cast(86400000, 'Date64')", "1970-01-02"),
    ("arrow_cast(99999999, 'Date32')", "99999999 days since 1970"),
    ("arrow_cast(3723000000001, 'Time64(Nanosecond)')", "01:02:03.000000001"),
    ("arrow_cast('a', 'Dictionary(Int32, Utf8)')", "a"),
    ("arrow_cast('x', 'RunEndEncoded(\"run_ends\": non-null Int32, \"values\": Utf8)')", "x"),
    ("arrow_cast(1.5, 'Float16')", 1.5),
    ("CAST('NaN' AS DOUBLE)", None),
    ("18446744073709551615", 18_446_744_073_709_551_615),
    ("X'00ff'", "0x00ff"),
    ("arrow_cast('a', 'LargeBinary')", "a"),
    ("true", True),
    ("NULL", None),
)


def test_value_of_any_type_is_printed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ", ".join(f"{text} AS v{at}" for at, (text, _) in enumerate(VALUES))
    statement = ["sql", f"SELECT {columns}", "--tables", str(root)]
    assert main([*statement, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {f"v{at}": value for at, (_, value) in enumerate(VALUES)}
    assert main(statement) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_columns_of_one_name_are_told_apart(engine: SqlEngine) -> None:
    found = engine.query("SELECT a.broker, b.broker FROM brokers a JOIN brokers b USING (cluster)")
    assert found.column_names == ["broker", "broker_2"]
    assert len(plain_rows(found)[0]) == 2


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
    table = engine.query("SELECT * FROM load_history").drop_columns(
        ["reported_ms", "usage", "broker_group"]
    )
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


HOSTILE = "\x1b[2J\x9b1m\nerror: forged\u202e\x07"
FREE = {
    *("address", "admin_roles", "broker", "destination", "destination_before", "detail", "owner"),
    *("failure_domain", "load_manager_class", "principal", "pulsar_service_url", "reason"),
    *("source", "source_before", "version", "web_service_url", "strategy", "subject", "verdict"),
}
"""Columns whose text somebody else writes; names of brokers are the same one everywhere."""
BROKER = f"broker-0:8080{HOSTILE}"
QUESTIONS = (
    ["status"],
    ["explain", "cluster"],
    ["explain", "broker", BROKER],
    ["explain", "broker", f"nobody{HOSTILE}"],
    ["explain", "bundle", f"nothing{HOSTILE}"],
    ["explain", "decision", f"nothing{HOSTILE}"],
    ["ownership"],
    ["bundle", "list"],
    ["plan", "list"],
    ["plan", "show", f"nothing{HOSTILE}"],
    ["plan", "--dry-run"],
    ["plan", "--dry-run", "--strategy", f"nothing{HOSTILE}"],
    ["policy", "list"],
    ["doctor", "--no-kafka"],
    ["config", "show", "--changed"],
    ["broker", "drain", BROKER, "--dry-run"],
    ["bundle", "unload", f"nothing{HOSTILE}", "--dry-run"],
    ["lookup", f"persistent://t/n/x{HOSTILE}"],
    ["sql", "commands"],
    ["sql", "rejected"],
    ["sql", "who-has-what"],
    ["sql", "near-limits"],
    ["sql", "SELECT * FROM commands"],
    ["sql", "SELECT * FROM brokers"],
    ["sql", f"SELECT '{HOSTILE}' AS \"{HOSTILE}\""],
    ["sql", f"SELECT {HOSTILE}"],
    ["sql", HOSTILE],
    ["status", "--tables", f"/nowhere/{HOSTILE}"],
    ["status", "--set", f"{HOSTILE}={HOSTILE}"],
    ["status", "--conf", HOSTILE],
    [f"status{HOSTILE}"],
    ["status", HOSTILE],
    ["status", f"--no{HOSTILE}"],
)


def _hostile(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    texts = {column.name for column in table.columns if column.type == "string"}
    return {
        name: f"{value}{HOSTILE}" if name in FREE & texts and value else value
        for name, value in row.items()
    }


@pytest.fixture(scope="module")
def root_hostile_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of an eventful cluster, with hostile text wherever others write it."""
    world: World = eventful()
    found = tmp_path_factory.mktemp("hostile")
    for table in TABLES:
        rows = world.other_rows[table.name]
        world.other_rows[table.name] = [_hostile(table, row) for row in rows]
    world.events[:] = [_hostile(_table("ownership_events"), row) for row in world.events]
    world.decisions[:] = [_hostile(_table("decisions"), row) for row in world.decisions]
    write_tables(world, found)
    assert (table_path(found, "commands") / "_delta_log").is_dir()
    return found


def _table(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words)[:40])
def test_nothing_that_a_terminal_obeys_is_written(
    root_hostile_text: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--tables" in words or "config" in words else ["--tables", str(root_hostile_text)]
    assert main([*words, *where]) in (0, 1, 2)
    for text in capfd.readouterr():
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith("error: forged") for line in text.split("\n"))
    assert main([*words, *where, "--json"]) in (0, 1, 2)
    written = capfd.readouterr()
    for text in written:
        assert all(line.isprintable() for line in text.split("\n"))
    for line in written.out.split("\n")[:-1]:
        json.loads(line)
