"""Backtests that are kept: beside a job that writes, beside each other, cut to the newest few."""

import json
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ballast import Config, Proposal, Snapshot

from jobs.adapters.delta.appending import append_rows, make_ready
from jobs.adapters.delta.history_upkeep import DAY_MS
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import table_path
from jobs.cli import main
from jobs.console import CommandError, Exit
from jobs.operating.league_reading import read_league
from lbcore.explain.kept_backtests import FIGURES
from lbcore.model.backtest_tables import BACKTESTS, RUNS_KEPT
from tests.support.values.kept_runs import kept_rows, kept_run

WRITERS, RUNS = 3, 2
"""Fewer commits than a claim has attempts, whatever crosses what."""
STRATEGIES = 4
PRESSED: list[bool] = []


@pytest.fixture
def tables(recorded_tables: Path, tmp_path: Path) -> Path:
    made = tmp_path / "tables"
    shutil.copytree(recorded_tables, made)
    return made


def kept(root: Path) -> list[str]:
    """The runs of each row that the table has."""
    return sorted(row["run_id"] for row in TableReader(root, "local").rows(BACKTESTS.name))


def test_what_the_verb_answers_is_what_is_kept(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["backtest", "--tables", str(tables), "--last", "3m", "--strategy", "none,avg"]
    assert main([*words, "--seed", "3", "--workers", "1", "--json", "--keep"]) == 0
    out, err = capsys.readouterr()
    answered = {row["strategy"]: row for row in json.loads(out)}
    told = read_league(TableReader(tables, "local"))
    assert f"kept as {told['run']['run_id']}: the console's League shows it" in err
    assert (told["run"]["brokers"], told["run"]["bundles"], told["run"]["seed"]) == (4, 24, 3)
    assert told["run"]["until_ms"] - told["run"]["from_ms"] == 180_000
    assert {one["strategy"] for one in told["strategies"]} == {"recorded", "none", "avg"}
    for one in told["strategies"]:
        row = answered[one["strategy"]]
        assert {name: one[name] for name in FIGURES} == {
            column: row[name] for column, name in FIGURES.items()
        }
    shedding = {one["strategy"]: one["shedding"] for one in told["strategies"]}
    assert shedding == {"recorded": "", "none": "none", "avg": "avg"}


def test_nothing_is_kept_unless_it_is_asked_for(tables: Path) -> None:
    words = ["backtest", "--tables", str(tables), "--last", "3m", "--strategy", "none"]
    assert main(words) == 0
    assert kept(tables) == []


def interrupted(
    _snapshot: Snapshot, _state: dict[str, Any], _config: Config, _now_ms: int
) -> tuple[Proposal, dict[str, Any]]:
    """A strategy under which somebody presses Ctrl-C, once."""
    if not PRESSED:
        PRESSED.append(True)
        os.kill(os.getpid(), signal.SIGINT)
    return Proposal(), {}


def test_run_that_is_ended_early_says_what_is_known_and_is_not_kept(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PRESSED.clear()
    words = ["backtest", "--tables", str(tables), "--last", "3m", "--workers", "1", "--json"]
    own = f"{__name__}:interrupted"
    assert main([*words, "--strategy", f"none,{own},avg", "--keep"]) == Exit.CUT
    out, err = capsys.readouterr()
    assert PRESSED
    assert [row["strategy"] for row in json.loads(out)] == ["recorded", "none"]
    assert "not kept: it was ended before all had run" in err
    assert kept(tables) == []


def test_several_at_once_and_a_job_that_takes_over_lose_nothing(tmp_path: Path) -> None:
    """The table is made by whoever comes first; each claim is a commit between the others."""
    began = threading.Barrier(WRITERS + 1)

    def add(number: int) -> None:
        began.wait()
        for at in range(RUNS):
            run = kept_run(10 * number + at)
            append_rows(tmp_path, BACKTESTS, kept_rows("local", run))

    def take_over() -> int:
        began.wait()
        writer = TableWriter(tmp_path)
        return max(writer.claim() for _ in range(3))

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        added = [pool.submit(add, number) for number in range(1, WRITERS + 1)]
        claimed = pool.submit(take_over)
        for one in added:
            one.result()
    assert claimed.result() == 2
    wanted = [f"run-{10 * number + at}" for number in range(1, WRITERS + 1) for at in range(RUNS)]
    assert kept(tmp_path) == sorted(wanted * STRATEGIES)


def test_jobs_writer_goes_on_beside_an_append(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path)
    writer.claim()
    append_rows(tmp_path, BACKTESTS, kept_rows("local", kept_run()))
    assert writer.is_ours()
    done = TableUpkeep(writer, interval_ms=1, files_max=1).look_after(BACKTESTS.name, DAY_MS)
    assert "given_up" not in done
    assert len(kept(tmp_path)) == STRATEGIES


def test_upkeep_leaves_each_cluster_its_newest_runs(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path)
    writer.claim()
    for number in range(1, RUNS_KEPT + 3):
        append_rows(tmp_path, BACKTESTS, kept_rows("local", kept_run(number)))
    append_rows(tmp_path, BACKTESTS, kept_rows("quo'te", kept_run(1)))
    upkeep = TableUpkeep(writer, interval_ms=1, files_max=1_000)
    assert upkeep.look_after(BACKTESTS.name, DAY_MS)["rows_expired"] == 2 * STRATEGIES
    assert sorted(set(kept(tmp_path))) == [f"run-{at:02d}" for at in range(3, RUNS_KEPT + 3)]
    version = writer.refreshed(BACKTESTS.name).version()
    assert upkeep.look_after(BACKTESTS.name, DAY_MS)["rows_expired"] == 0
    assert writer.refreshed(BACKTESTS.name).version() == version
    assert len(TableReader(tmp_path, "quo'te").rows(BACKTESTS.name)) == STRATEGIES


def test_file_in_the_place_of_a_table_is_told_before_anything_runs(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = table_path(tables, BACKTESTS.name)
    assert isinstance(place, Path)
    shutil.rmtree(place, ignore_errors=True)
    place.write_text("no folder")
    assert main(["backtest", "--tables", str(tables), "--strategy", "none", "--keep"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: the table backtests is damaged" in err
    assert f"\n  why: {place}" in err
    assert "\n next: " in err
    with pytest.raises(CommandError, match="can't be written"):
        make_ready(tables, BACKTESTS)


def test_recording_of_anywhere_is_not_kept(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["backtest", "--tables", str(tables), "--recording", str(tmp_path / "x.parquet")]
    assert main([*words, "--keep"]) == 2
    assert "--keep and --recording can't be used together" in capsys.readouterr().err
