"""The archive job on real Delta tables: beside a job that commits, killed, started again."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.adapters.delta.tables import table_path
from jobs.verbs.reading import spark_statements
from lbcore.model.tables import ARCHIVES, OWNERSHIP_EVENTS
from lbcore.model.times import DAY_MS
from tests.support.tables.small_batches import AgedHistory, day
from tests.support.tables.spark_sql import SparkSql

DAYS = 10
STEPS = ("made", "rows_copied", "months_ordered", "vacuumed")
_RUN_S = 300
_KILLABLE = """
import os, signal, sys
from jobs.archive_history import main
def passed(step):
    if step == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[2:], passed=passed))
"""


@pytest.fixture(autouse=True)
def few_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.adapters.delta.table_upkeep.REMEMBERED_COMMANDS", 5)


@pytest.fixture
def history(tmp_path: Path) -> AgedHistory:
    """Forty days, a batch each; two bundles went in between."""
    made = AgedHistory(tmp_path / "tables", days=DAYS)
    for age in range(40, 0, -1):
        made.batch(day(age, now_ms=now_ms()), gone=age <= 15)
    return made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def start(history: AgedHistory, kill_at: str = "") -> subprocess.Popen[bytes]:
    words = ["--tables", str(history.root), "--set", f"pipeline.history_days={DAYS}"]
    return subprocess.Popen(
        [sys.executable, "-c", _KILLABLE, kill_at, *words], stdout=subprocess.PIPE
    )


def run(history: AgedHistory, kill_at: str = "") -> int:
    process = start(history, kill_at)
    try:
        said, _ = process.communicate(timeout=_RUN_S)
    finally:
        process.kill()
    told = [json.loads(line)["table"] for line in said.splitlines()]  # and nothing else
    assert told == list(ARCHIVES)[: len(told)]
    assert process.returncode or len(told) == len(ARCHIVES)
    return process.returncode


@contextmanager
def job_at_work(history: AgedHistory) -> Iterator[None]:
    """Batches and turns of upkeep, one after another, all the time."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(1.0):
            history.batch(now_ms(), gone=True)
            history.look_after(now_ms())

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            stop.set()
        working.result()


def files(history: AgedHistory, name: str) -> int:
    return len(DeltaTable(str(table_path(history.root, name))).file_uris())


@pytest.mark.long
def test_history_moves_while_the_job_commits_and_is_read_as_before(history: AgedHistory) -> None:
    with job_at_work(history):
        assert run(history) == 0
    history.check()
    history.look_after(now_ms())
    history.check()
    live = DeltaTable(str(table_path(history.root, OWNERSHIP_EVENTS.name))).count()
    limit_ms = (now_ms() // DAY_MS - DAYS) * DAY_MS
    late = [row for row in history.events if row["at_ms"] >= limit_ms]
    assert live <= len(late) + 6  # of each bundle the newest before
    old = [row for row in history.events if row["at_ms"] < now_ms() - DAYS * DAY_MS]
    months = {time.strftime("%Y-%m", time.gmtime(row["at_ms"] / 1_000)) for row in old}
    for archive in ARCHIVES.values():
        assert files(history, archive.name) == len(months)  # joined, a folder a month
        moved = DeltaTable(str(table_path(history.root, archive.name)))
        assert moved.protocol().reader_features is None
        assert moved.protocol().writer_features is None


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ARCHIVES)
def test_run_that_is_killed_and_started_again_loses_and_doubles_nothing(
    history: AgedHistory, name: str, step: str
) -> None:
    with job_at_work(history):
        assert run(history, f"{name} {step}") == -signal.SIGKILL
        threading.Event().wait(2)  # upkeep meets the archive as the crash left it
        assert run(history) == 0
    history.check()
    history.look_after(now_ms())
    history.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_run_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    history: AgedHistory, seed: int
) -> None:
    chance = random.Random(seed)
    with job_at_work(history):
        for _ in range(3):
            process = start(history)
            threading.Event().wait(chance.uniform(0.5, 4))
            process.kill()
            process.wait()
        assert run(history) == 0
    history.check()
    history.look_after(now_ms())
    history.check()


@pytest.mark.long
def test_spark_sql_reads_both_as_one(history: AgedHistory, tmp_path: Path) -> None:
    assert run(history) == 0
    spark = SparkSql(tmp_path)
    try:
        for moved in (False, True):
            if moved:
                assert history.look_after(now_ms()) > 0
            for statement in spark_statements(history.root):
                if any(f" VIEW {name} " in statement for name in ARCHIVES):
                    spark.run(statement)
            events = spark.run("SELECT * FROM ownership_events")
            wanted = sorted(sorted(row.items()) for row in history.events)
            assert sorted(sorted(row.items()) for row in events) == wanted
            asked = "SELECT command_id, status FROM commands ORDER BY command_id"
            commands = [(row["command_id"], row["status"]) for row in spark.run(asked)]
            kept = history.commands.items()
            assert commands == sorted((name, row["status"]) for name, row in kept)
    finally:
        spark.close()


@pytest.mark.long
def test_two_runs_at_once_copy_each_row_once(history: AgedHistory) -> None:
    both = [start(history), start(history)]
    codes = [process.wait(_RUN_S) for process in both]
    assert 0 in codes
    history.check()
    history.look_after(now_ms())
    history.check()
