"""By which command Spark starts Python, and which pyspark its processes get."""

import os
import subprocess
from pathlib import Path

import pytest

from jobs.adapters.spark.stream import worker_python


@pytest.mark.parametrize("ours", ["", "/an/own path:/it's"])
def test_workers_have_our_path_and_not_sparks_own_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", ours)
    command = worker_python(tmp_path / "made for it")
    assert worker_python(tmp_path / "made for it") == command  # a standby makes it, too
    asked = "import sys, os, pyspark; print(sys.path, os.environ['PYTHONPATH'], pyspark.__file__)"
    answer = subprocess.run(
        [command, "-c", asked],
        env={**os.environ, "PYTHONPATH": "/spark/python/lib/pyspark.zip"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pyspark.zip" not in answer
    assert all(f"'{part}'" in answer or f'"{part}"' in answer for part in ours.split(":") if part)
    assert f"] {ours} " in answer
