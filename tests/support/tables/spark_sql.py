"""Delta SQL in a Spark process of its own: one statement a line in, one line of JSON out.

Started by tests that let delta-spark write what delta-rs reads, and the other way round.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.adapters.processes.jars import ensure_jars, jars_folder

_JARS = Path(__file__).with_name("delta-jars.lock")
_SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    # a short life: compiling code well, or at all, costs more than it saves
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkSql:
    """The test's end of the process."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "spark.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tables.spark_sql", str(folder)],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, statement: str) -> list[dict[str, Any]]:
        """The rows of one statement; raises RuntimeError with Spark's words when it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(statement.split()) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Spark ended: see {self._log.name}"
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def main() -> int:
    """Carry out statements until standard input ends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"  # instants come to Python in its own zone
    time.tzset()
    jars = ensure_jars(jars_folder(), _JARS)
    builder = SparkSession.builder.config("spark.jars", ",".join(map(str, jars)))
    folders = {"spark.local.dir": sys.argv[1], "spark.sql.warehouse.dir": f"{sys.argv[1]}/hive"}
    for name, value in {**_SETTINGS, **folders}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for line in sys.stdin:
        try:
            rows = [row.asDict(recursive=True) for row in session.sql(line).collect()]
            answer: dict[str, Any] = {"rows": rows}
        except (PySparkException, Py4JJavaError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer, default=str), flush=True)  # noqa: T201 (what the test reads)
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
