"""The wheel outside the checkout: what is in it is enough, in a folder that has nothing."""

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest

from jobs.adapters.processes.jars import LOCK_PATH, parse_lock
from jobs.package import make_wheel
from tests.support.processes.frozen import Elsewhere, installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def unpacked(wheel: Path, tmp_path: Path) -> Elsewhere:
    """The wheel's files before those of the checkout, with the packages of the tests."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    (tmp_path / "empty").mkdir()
    more = {"PYTHONPATH": str(tmp_path / "wheel"), "BALLAST_JARS": str(tmp_path / "jars")}
    found = Elsewhere(python=Path(sys.executable), folder=tmp_path / "empty", more=more)
    where = found.run("-c", "import jobs, lbcore, ballast; print(jobs.__file__, lbcore.__file__)")
    assert where.stdout.count(str(tmp_path / "wheel")) == 2, where.stderr
    return found


def test_wheel_asks_for_no_spark_that_leaks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        asked = re.findall(r"^Requires-Dist: (.+)$", archive.read(name).decode(), re.MULTILINE)
    sparks = [one for one in asked if one.startswith("pyspark")]
    assert [one.endswith('extra == "job"') and "!=4.2.0" in one for one in sparks] == [True]
    assert [one for one in asked if one.startswith("delta-spark")] == []


@pytest.mark.long
def test_scenarios_and_settings_come_with_the_wheel(unpacked: Elsewhere) -> None:
    said = unpacked.ballast("simulate", "conf/scenarios/g03-new-empty-broker.scenario")
    assert "the output is not what is recorded" not in said
    assert "ballast" in unpacked.ballast("config", "show", "--conf", "pulsar")
    made = set(unpacked.folder.iterdir())
    assert made == set()


def test_doctor_says_that_jars_come_at_first_need(unpacked: Elsewhere) -> None:
    done = unpacked.run("-m", "jobs.cli", "doctor", "--no-kafka", "--json")
    found = {one["subject"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["jars"]["verdict"] == "warn"
    assert "first need" in found["jars"]["what"]
    assert found["packages"]["verdict"] == "ok"
    assert "Traceback" not in done.stderr


def test_jars_that_can_not_be_fetched_are_an_error_that_says_what_to_do(
    unpacked: Elsewhere, tmp_path: Path
) -> None:
    (tmp_path / "jars").touch()  # where a folder should be made
    done = unpacked.run("-m", "jobs.cli", "run-local", "--state-dir", "state", "--headless")
    assert done.returncode == 1
    assert "the jars of Kafka can't be fetched" in done.stderr
    assert "BALLAST_JARS" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_installed_wheel_fetches_its_jars_and_runs_a_cluster(wheel: Path, tmp_path: Path) -> None:
    there = installed(wheel, tmp_path)
    said = there.ballast(
        "run-local", "--state-dir", "state", "--headless", "--for", "40", timeout_s=900
    )
    jars = parse_lock(LOCK_PATH.read_text())
    assert f"fetching {len(jars)} jars" in said
    assert "imbalance" in said
    again = there.ballast(
        "run-local", "--state-dir", "state", "--headless", "--for", "5", timeout_s=600
    )
    assert "jars, once" not in again
    assert json.loads(there.ballast("status", "--state-dir", "state", "--json"))["brokers"]
