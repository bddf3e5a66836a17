"""The streaming job on each Spark that it supports: it decides, is killed, and keeps its state."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.integration.stack import ROOT, Cluster, Stack, running_stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_000)]

VERSIONS = ("4.0.2", "4.1.4", "4.2.1", "4.3.0")
CLUSTER = Cluster(brokers=3, namespaces={"demo/one": ("crc32", 12)})


def pyspark(spark_version: str) -> Path | None:
    """Return the folder with this PySpark, fetched once; None for the one that set-up installs."""
    if version("pyspark") == spark_version:
        return None
    folder = ROOT / "build" / "sparks" / spark_version
    stamp = folder / "complete"
    if not stamp.exists():
        install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
        target = ("--upgrade", "--target", str(folder), f"pyspark=={spark_version}")
        subprocess.run([sys.executable, *install, *target], check=True)
        stamp.touch()
    return folder


def stack_on(spark: Path | None) -> type[Stack]:
    class StackOnSpark(Stack):
        def environment(self, role: str) -> dict[str, str]:
            if spark is None or role != "job":
                return {}
            return {"PYTHONPATH": os.pathsep.join((str(spark), str(ROOT)))}

    return StackOnSpark


@pytest.mark.parametrize("spark_version", VERSIONS)
def test_job_decides_and_goes_on_from_its_state(tmp_path: Path, spark_version: str) -> None:
    kind = stack_on(pyspark(spark_version))
    with running_stack(tmp_path, CLUSTER, kind=kind) as stack:
        asked = "import pyspark; print(pyspark.__version__)"
        environment = {**os.environ, **stack.environment("job")}
        used = subprocess.check_output([sys.executable, "-c", asked], env=environment, text=True)
        assert used.strip() == spark_version
        stack.wait_for_batches(3)
        stack.kill("job")
        stack.start_job()
        stack.wait_for_batches(3)
        assert [line["rebuilt_because"] for line in stack.lines("job", "start")][1:] == [""]
        stack.fleet("/kill/broker-1", "POST")
        stack.wait("the dead broker's bundles to be served", lambda: not_of(stack, "broker-1"))
        assert stack.stop("job") == 0


def not_of(stack: Stack, broker: str) -> bool:
    """Whether every bundle is served by its owner, and none belongs to this broker."""
    return stack.is_settled() and broker not in stack.owners().values()
