"""`ballast tune` as tasks of the real Spark: the same answer, told failures, an orderly end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from jobs.console import CommandError
from jobs.operating.spark_runs import ROOT, spark_runs
from jobs.package import make_package
from tests.integration.spark_cluster import running_spark
from tests.support.tables.tune_on_spark import tell


@pytest.fixture(scope="module")
def told(recorded_tables: Path) -> dict[str, Any]:
    """What one session of Spark, with two tasks at once, came to."""
    return told_by(f"tell(Path({str(recorded_tables)!r}))")


def told_by(words: str) -> dict[str, Any]:
    command = [sys.executable, "-c", f"from {tell.__module__} import *; {words}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_answer_is_that_of_one_process(told: dict[str, Any]) -> None:
    assert told["there"] == told["here"]
    assert len(told["here"]["trials"]) == 7
    assert all(one["bound.mean"] >= 1.0 for one in told["here"]["trials"])


@pytest.mark.long
def test_run_that_fails_is_told_with_its_candidate_and_why(told: dict[str, Any]) -> None:
    what, why, next_step = told["broken"]
    assert what == "the run of as-set on stretch 2, seed 1 failed"
    assert why.startswith("KeyError: ")
    assert next_step.startswith("`ballast backtest --strategy as-set` ")


@pytest.mark.long
def test_task_whose_process_dies_is_told_with_its_item(told: dict[str, Any]) -> None:
    what, why, next_step = told["died"]
    assert what == "Spark could not carry out the run of 1"
    assert "Python worker exited unexpectedly" in why
    assert "memory" in next_step


@pytest.mark.long
def test_ctrl_c_keeps_what_is_known_and_nothing_needs_nothing(told: dict[str, Any]) -> None:
    assert told["cut"] == [[0], True]
    assert told["none"] == []


def test_settings_of_spark_without_spark_are_refused(
    recorded_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "--tables", str(recorded_tables), "--spark", "spark.executor.memory=2g"]
    assert main(words) == 2
    assert "without --master" in capsys.readouterr().err


def test_code_that_executors_would_not_have_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandError, match=r"lbcore/__init__\.py") as raised,
        spark_runs("spark://127.0.0.1:1", {}, tmp_path),
    ):
        pass
    assert raised.value.next_step.startswith("make package")


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_executors_of_a_cluster_answer_as_this_machine(
    recorded_tables: Path, tmp_path: Path
) -> None:
    make_package(tmp_path / "package")
    with running_spark(tmp_path / "spark", workers=2) as spark:
        places = (
            f"Path({str(recorded_tables)!r}), {spark.url!r}, Path({str(tmp_path / 'package')!r})"
        )
        told = told_by(f"tell_of_cluster({places})")
    assert told["there"] == told["here"]
