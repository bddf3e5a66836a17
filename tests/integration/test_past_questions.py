"""Questions about the past, backtests, and ready queries in both engines."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_upkeep import HistoryUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import open_table
from jobs.adapters.spark.batch_sink import ORDER
from jobs.cli import main
from jobs.console import CommandError, format_instant
from jobs.operating.backtesting import Replay, acting, make_replay, read_recorded, try_strategy
from jobs.operating.status import KINDS, ExplainQuestion, explain, read_rows
from jobs.sql.engine import SqlEngine, plain_rows
from jobs.sql.queries import QUERIES, VIEWS, Query
from jobs.verbs.reading import spark_statements
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows
from lbcore.model.tables import BROKERS, PINS, POLICIES, TABLES, Table
from lbcore.model.times import DAY_MS
from tests.support.tables.crashed_batches import ASIDE_SUFFIX, SENT, Place, squashed
from tests.support.tables.spark_sql import SparkSql
from tests.support.worlds.command_cases import BROKERS as NAMES
from tests.support.worlds.command_cases import BUNDLES, CASES, NS, RecordedWorld, prepared
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER

HOUR_MS = 3_600_000


class PastRun:
    """The tables, the moments of their batches, and what was ever written."""

    def __init__(self, world: RecordedWorld, begun: int, place: Place) -> None:
        self.world, self.place = world, place
        self.moments = [batch.now_ms for batch in world.batches[begun - 1 :]]
        self.reader = TableReader(place.root, CLUSTER)

    def truth(self, table: Table, at_ms: int) -> Mapping[tuple[str, ...], Mapping[str, Any]]:
        rows = [row for row in self.world.other_rows[table.name] if int(str(row["at_ms"])) <= at_ms]
        return {tuple(str(row[key]) for key in table.key): row for row in rows}

    def cut_logs(self) -> None:
        """Leave of each log what half an hour without a commit leaves: the newest checkpoint."""
        for table in TABLES:
            handle = open_table(self.place.root, table.name)
            handle.create_checkpoint()
            old_s = time.time() - 2 * 3_600
            for file in (self.place.root / table.name / "_delta_log").iterdir():
                os.utime(file, (old_s, old_s))
            handle.cleanup_metadata()

    def asked(self, at_ms: int, kind: str = "cluster", name: str = "") -> ExplainRows:
        question = ExplainQuestion(kind=kind, name=name, now_ms=self.world.now_ms, at_ms=at_ms)
        return read_rows(self.reader, self.world.config, question)


@pytest.fixture
def past(tmp_path: Path) -> PastRun:
    world = prepared(CASES["pause"])
    place, begun = Place(tmp_path / "tables"), len(world.batches)
    place.write(squashed([batch.effects for batch in world.batches]), 0)
    changes: Sequence[tuple[str, dict[str, Any]]] = (
        ("pause", {"namespace": NS, "reason": "first"}),
        ("pin_bundle", {"bundle": BUNDLES[0], "broker": NAMES[1], "reason": "first"}),
        ("drain_broker", {"broker": NAMES[3], "max_in_flight": 1}),
        ("pause", {"namespace": NS, "reason": "second"}),
        ("unpin_bundle", {"bundle": BUNDLES[0]}),
        ("exclude_namespace", {"namespace": NS}),
    )
    for kind, arguments in changes:
        world.command(kind, **arguments)
        world.run(2_000)
    for number, batch in enumerate(world.batches[begun:], start=1):
        place.write(batch.effects, number, steps=[*ORDER, ASIDE_SUFFIX, SENT])
    return PastRun(world, begun, place)


def check(past: PastRun) -> int:
    """Each moment's rows against the truth; how many keys are said to be unknown."""
    unknown = 0
    for at_ms in past.moments:
        rows = past.asked(at_ms)
        found = {BROKERS: rows.brokers, POLICIES: rows.policies, PINS: rows.pins}
        gaps = {gap.table: gap for gap in rows.gaps if gap.names}
        for table, kept in found.items():
            truth = past.truth(table, at_ms)
            there = {tuple(row[key] for key in table.key): row for row in kept}
            for key, row in there.items():
                assert {name: row[name] for name in truth[key]} == truth[key]
            missing = {" ".join(filter(None, key)) for key in truth.keys() - there.keys()}
            assert missing <= set(gaps[table.name].names if table.name in gaps else ())
            unknown += len(missing)
    return unknown


def test_rules_are_those_of_then_while_the_log_reaches_back(past: PastRun) -> None:
    assert check(past) == 0


@pytest.mark.long
def test_rules_are_those_of_then_or_said_to_be_unknown_when_the_log_is_cut(
    past: PastRun,
) -> None:
    past.cut_logs()
    assert check(past) > 0
    assert check(past) == check(past)


def test_no_row_of_any_table_is_newer_than_the_question(past: PastRun) -> None:
    past.cut_logs()
    decided = str(past.world.decisions[-1]["decision_id"])
    names = {"bundle": BUNDLES[0], "broker": NAMES[3], "decision": decided, "cluster": ""}
    assert names.keys() == set(KINDS)
    lists = ("records", "events", "decisions", "candidates", "effects", "brokers", "policies")
    for kind, name in names.items():
        for at_ms in (past.moments[0], past.moments[4], past.moments[-1]):
            rows = past.asked(at_ms, kind, name)
            for field in (*lists, "pins", "load"):
                assert all(row["at_ms"] <= at_ms for row in getattr(rows, field)), (kind, field)


def test_explanation_says_what_it_does_not_know_and_how_far_it_reaches(
    past: PastRun, capsys: pytest.CaptureFixture[str]
) -> None:
    past.cut_logs()
    at_ms = past.moments[4]
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    at = ["--at", format_instant(at_ms), "--json"]
    assert main(["explain", "cluster", *at, *where]) == 0
    said = json.loads(capsys.readouterr().out)["unknown"]
    (about,) = [one for one in said if one.startswith("what policies had of ")]
    assert f"paused {NS}" in about
    assert "what was before is kept from" in about
    assert main(["explain", "broker", NAMES[3], *at, *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"].startswith(f"How broker {NAMES[3]} was at ")
    assert found["headline"].endswith(" is not known.")
    assert main(["explain", "broker", "never:8080", *at, *where]) == 1
    capsys.readouterr()


def test_question_from_before_the_first_event_is_answered_with_that(
    past: PastRun, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    before = format_instant(past.moments[0] - HOUR_MS)
    question = ExplainQuestion(
        kind="bundle", name=BUNDLES[0], now_ms=past.world.now_ms, at_ms=past.moments[0] - HOUR_MS
    )
    found = explain(past.reader, past.world.config, question)
    assert found is not None
    assert any("ownership_events reaches back to" in one for one in found.unknown)
    assert main(["ownership", "--as-of", before, *where]) == 0
    assert "nothing is known of" in capsys.readouterr().out
    assert main(["ownership", "--diff", before, "0s", *where]) == 0
    assert "nothing is known of" in capsys.readouterr().out


def test_version_whose_log_was_cut_is_refused_with_how_far_it_reaches(
    past: PastRun, capsys: pytest.CaptureFixture[str]
) -> None:
    past.cut_logs()
    where = ["--tables", str(past.place.root), "--cluster", CLUSTER]
    assert main(["ownership", "--as-of", "2", *where]) == 1
    said = capsys.readouterr().err
    assert "version 2 of ownership_events can't be read any more" in said
    assert f"back to version {past.reader.newest().version}" in said
    as_of = past.reader.at_time(past.moments[3])
    assert as_of.version == -1
    assert len(as_of.rows) == 16
    assert main(["ownership", "--as-of", format_instant(past.moments[3]), *where]) == 0
    assert "version" not in capsys.readouterr().out.splitlines()[0]


def test_events_that_were_dropped_leave_a_past_that_is_said_to_be_unknown(
    past: PastRun,
) -> None:
    """What stays is the newest event of each bundle: enough from then on, and misleading before."""
    events, now_ms = open_table(past.place.root, "ownership_events"), past.world.now_ms
    opened_ms = max(int(str(row["at_ms"])) for row in past.world.newest())
    assert past.reader.at_time(opened_ms - 1).known_from_ms < opened_ms
    assert HistoryUpkeep(kind="drop", days=1)(events, "ownership_events", now_ms + 3 * DAY_MS) > 0
    assert past.reader.at_time(opened_ms - 1).known_from_ms >= opened_ms
    assert past.reader.at_time(now_ms).known_from_ms <= now_ms
    assert len(past.reader.at_time(now_ms).rows) == 16


PER_BUNDLE = 4 * 400.0


@pytest.fixture(scope="module")
def past_backtest(recorded_tables: Path) -> Replay:
    recorded, brokers = read_recorded(TableReader(recorded_tables, "local"))
    return make_replay(recorded_tables, recorded, brokers=brokers)


def test_history_says_what_the_run_was(past_backtest: Replay) -> None:
    assert past_backtest.history.fit.full_rate == pytest.approx(40_000, rel=0.03)
    assert [spec.name for spec in past_backtest.scenario.brokers if not spec.is_absent] == [
        "b1",
        "b2",
        "b3",
    ]
    assert [(one.verb, one.brokers) for one in past_backtest.scenario.scenario_events] == [
        ("start", ("b4",))
    ]
    assert past_backtest.scenario.namespaces[0].bundles == 24
    assert past_backtest.history.moves() == []


def test_recorded_load_is_that_of_the_bundles(past_backtest: Replay) -> None:
    space = past_backtest.recording.namespaces["t/n"]
    rates = space.rates[:, :, :2].sum(axis=2)
    assert rates[1, 0] == pytest.approx(PER_BUNDLE, rel=0.01)
    assert PER_BUNDLE * 1.1 < rates[-1, 0] <= PER_BUNDLE * 1.25  # an average of ten reports
    assert rates[-1, 10] == pytest.approx(PER_BUNDLE, rel=0.01)


def answered(capsys: pytest.CaptureFixture[str], tables: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["backtest", "--tables", str(tables), *words, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_strategy_that_sheds_would_have_been_more_even(
    recorded_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, idle, avg = answered(capsys, recorded_tables, "--strategy", "none,avg")
    assert recorded["strategy"] == "recorded"
    assert recorded["moves"] == idle["moves"] == 0
    assert idle["floor_adjusted.p50"] == pytest.approx(recorded["floor_adjusted.p50"], rel=0.05)
    assert avg["moves"] > 0
    assert avg["floor_adjusted.p50"] < idle["floor_adjusted.p50"] - 0.3


def test_cluster_that_only_observes_is_tested_as_if_it_acted(past_backtest: Replay) -> None:
    held = ["cluster.observe_only=true", "cluster.approval=ask", "cluster.quiet_hours=00:00-24:00"]
    base = acting(parse_assignments(Config(), held))
    found = try_strategy(past_backtest, ((), base), "avg")
    assert found["moves"] > 0
    assert found == try_strategy(past_backtest, ((), Config()), "avg")


def test_end_of_a_history_can_be_tested_alone(
    recorded_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["backtest", "--tables", str(recorded_tables), "--last", "3m", "--strategy", "none"])
        == 0
    )
    out = capsys.readouterr().out
    assert "4 brokers, 24 bundles, 3 min from" in out
    assert "open loop" in out


def test_tables_without_history_are_told(tmp_path: Path) -> None:
    TableWriter(tmp_path)
    recorded, brokers = read_recorded(TableReader(tmp_path, "local"))
    with pytest.raises(CommandError, match="recorded nothing"):
        make_replay(tmp_path, recorded, brokers=brokers)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("sql")
    write_tables(eventful(), found)
    return found


@pytest.fixture(scope="module")
def spark(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    """Spark with the views, made as `ballast sql --spark` says."""
    running = SparkSql(tmp_path_factory.mktemp("spark"))
    for statement in spark_statements(root):
        running.run(statement)
    yield running
    running.close()


@pytest.fixture(scope="module")
def engine(root: Path) -> SqlEngine:
    return SqlEngine(root)


def comparable(value: Any) -> Any:
    """As both engines' JSON writes it; a sum in another order may differ in its last bits."""
    if isinstance(value, float):
        return None if math.isnan(value) else pytest.approx(value, rel=1e-6)
    return value.replace("T", " ") if isinstance(value, str) and value[10:11] == "T" else value


@pytest.mark.long
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_ready_query_is_answered_alike(spark: SparkSql, engine: SqlEngine, query: Query) -> None:
    wanted = [
        {name: comparable(value) for name, value in row.items()}
        for row in plain_rows(engine.query(query.text))
    ]
    assert spark.run(query.text) == wanted


def test_view_of_every_name_is_behind_a_ready_query() -> None:
    below = {name for view in VIEWS for name in view.reads}
    texts = " ".join(query.text for query in QUERIES)
    assert [v.name for v in VIEWS if v.name not in below and f" {v.name} " not in texts] == []
