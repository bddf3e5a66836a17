"""Backtests on tables that the job's own sink has written: a run that nobody balanced, again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.spark.batch_sink import BatchSink, CommitIdentity
from jobs.cli import main
from jobs.console import CommandError
from jobs.operating.backtesting import Past, make_past, read_recorded
from lbcore.balancer.state.effects import REPORT, Effect
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.events import plan_happenings
from lbcore.sim.scenario.parse import parse_scenario
from tests.support.tables.effects_frame import EffectsFrame

SCENARIO = """
brokers 4
broker b4 absent
namespace t/n bundles=24 topics=2
own t/n 0-15 b1
own t/n 16-23 b2-b3
load t/n even 4pt each
load t/n even 1pt each bundles=0-3 from 4m
set shedding.is_shedding=false
at 3m start b4
run 9m
"""
KEPT = ("load_history", "brokers", "ownership_events", REPORT)
PER_BUNDLE = 4 * 400.0


class Nobody:
    """A publisher that sends nothing."""

    def publish(self, messages: object) -> None:
        """Keep quiet."""


def recorded_run(tables: Path) -> Run:
    """A run in virtual time whose history the sink writes: batches with load_history, whole."""
    scenario = parse_scenario(SCENARIO)
    engine = Engine(scenario, parse_assignments(Config(), scenario.settings))
    plan_happenings(engine)
    writer = TableWriter(tables)
    writer.claim()
    sink = BatchSink(
        writer=writer,
        publisher=Nobody(),
        identity=CommitIdentity(query_id="", code_version="c", config_version="f"),
        heartbeat_ms=1 << 40,
        log=lambda _: None,
    )
    sink.use_query("q")

    def write(effects: Sequence[Effect]) -> None:
        if any(effect.kind == "load_history" for effect in effects):
            kept = [effect for effect in effects if effect.kind in KEPT]
            sink(EffectsFrame(kept, "local"), engine.job.batches)

    engine.when_committed = write
    return engine.run()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    recorded_run(folder)
    return folder


@pytest.fixture(scope="module")
def past(tables: Path) -> Past:
    return make_past(read_recorded(TableReader(tables, "local")), 0, 1)


def test_history_says_what_the_run_was(past: Past) -> None:
    assert past.history.fit.full_rate == pytest.approx(40_000, rel=0.03)
    assert [spec.name for spec in past.scenario.brokers if not spec.is_absent] == ["b1", "b2", "b3"]
    assert [(one.verb, one.brokers) for one in past.scenario.happenings] == [("start", ("b4",))]
    assert past.scenario.namespaces[0].bundles == 24
    assert past.history.moves() == []


def test_recorded_load_is_that_of_the_bundles(past: Past) -> None:
    space = past.recording.namespaces["t/n"]
    rates = space.rates[:, :, :2].sum(axis=2)
    assert rates[1, 0] == pytest.approx(PER_BUNDLE, rel=0.01)
    assert PER_BUNDLE * 1.1 < rates[-1, 0] <= PER_BUNDLE * 1.25  # an average of ten reports
    assert rates[-1, 10] == pytest.approx(PER_BUNDLE, rel=0.01)


def answered(capsys: pytest.CaptureFixture[str], tables: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["backtest", "--tables", str(tables), *words, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_strategy_that_sheds_would_have_been_more_even(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, idle, avg = answered(capsys, tables, "--strategy", "none,avg")
    assert recorded["strategy"] == "recorded"
    assert recorded["moves"] == idle["moves"] == 0
    assert idle["floor_adjusted.p50"] == pytest.approx(recorded["floor_adjusted.p50"], rel=0.05)
    assert avg["moves"] > 0
    assert avg["floor_adjusted.p50"] < idle["floor_adjusted.p50"] - 0.3


def test_end_of_a_history_can_be_tested_alone(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", "--tables", str(tables), "--last", "3m", "--strategy", "none"]) == 0
    out = capsys.readouterr().out
    assert "4 brokers, 24 bundles, 3 min from" in out
    assert "open loop" in out


def test_tables_without_history_are_told(tmp_path: Path) -> None:
    TableWriter(tmp_path)
    recorded = read_recorded(TableReader(tmp_path, "local"))
    with pytest.raises(CommandError, match="recorded nothing"):
        make_past(recorded, 0, 1)
