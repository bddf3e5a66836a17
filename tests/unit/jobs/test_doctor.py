"""`ballast doctor` tells what is wrong, and what to do next; and `ballast bundle list`."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable, Field, Schema

from jobs.cli import main
from jobs.operating import doctor
from lbcore.model.tables import TABLES, Column
from tests.support import Capsys
from tests.support.values.tokens import Authority
from tests.support.worlds.checked_world import running, skewed
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import World


@pytest.fixture(scope="module")
def world() -> World:
    made = running(3, 12)
    skewed(made)
    made.run(70_000)
    return made


@pytest.fixture
def tables(world: World, tmp_path: Path) -> Path:
    write_tables(world, tmp_path / "tables", time.time_ns() // 1_000_000)
    return tmp_path / "tables"


@pytest.fixture(autouse=True)
def _complete_machine() -> Iterator[None]:
    """Java and jars are the set-up's business, and have tests of their own."""
    java = mock.Mock(command="java", major=17)
    with (
        mock.patch.object(doctor, "find_java", return_value=java),
        mock.patch.object(doctor, "absent_jars", return_value=()),
    ):
        yield


def examine(capsys: Capsys, tables: Path, *words: str) -> tuple[int, Any]:
    code = main(["doctor", "--tables", str(tables), "--json", *(words or ("--no-kafka",))])
    found = json.loads(capsys.readouterr().out)["findings"]
    return code, {one["subject"]: one for one in found}


def test_versions_that_doctor_wants_are_those_that_setup_installs() -> None:
    text = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
    text = text.partition("[dependency-groups]")[0]
    needed = dict(re.findall(r'"([\w-]+)(>=[^";]+)"', text))
    assert len(doctor.PACKAGES) > 5
    for name, (first, until) in doctor.PACKAGES.items():
        excluded = f",!={doctor.EXCLUDED[name]}" if name in doctor.EXCLUDED else ""
        assert needed[name] == f">={first}{excluded}" + (f",<{until}" if until else ""), name


def test_version_that_setup_excludes_fails(tables: Path, capsys: Capsys) -> None:
    with mock.patch.object(doctor, "version", return_value="4.2.0"):
        _, found = examine(capsys, tables)
    assert found["pyspark"]["verdict"] == "fail"
    assert found["pyspark"]["next_step"].startswith(
        "install pyspark 4.0.2 or newer, below 4.4, not"
    )


def test_sound_cluster_has_nothing_that_fails(tables: Path, capsys: Capsys) -> None:
    code, found = examine(capsys, tables)
    assert code == 0
    assert {"python", "packages", "tables", "rights", "clock", "job", "load"} <= found.keys()
    assert {one["verdict"] for one in found.values()} == {"ok"}


def test_brokers_of_several_versions_at_once_are_told(tables: Path, capsys: Capsys) -> None:
    brokers = DeltaTable(tables / "brokers")
    brokers.update(updates={"version": "'4.0.8'"})
    assert examine(capsys, tables)[1]["versions"]["what"] == "all active brokers run 4.0.8 (3)"
    brokers.update(updates={"version": "'4.2.4'"}, predicate="broker = 'broker-0:8080'")
    found = examine(capsys, tables)[1]["versions"]
    assert found["verdict"] == "warn"
    assert found["what"].endswith("4.0.8 (2), 4.2.4 (1)")
    assert main(["status", "--tables", str(tables)]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if "warning" in one]
    assert "4.0.8 (2), 4.2.4 (1)" in line
    assert main(["status", "--json", "--tables", str(tables)]) == 0
    assert json.loads(capsys.readouterr().out)["versions"] == {"4.0.8": 2, "4.2.4": 1}


@pytest.mark.parametrize(("days", "subject"), [(20, "certificate"), (5, "alarm")])
def test_certificate_of_the_service_that_ends_soon_is_told(
    days: int, subject: str, tables: Path, capsys: Capsys
) -> None:
    cert, _ = Authority().issue(tables.parent, "service", timedelta(days=days))
    conf = tables.parent / "mine.toml"
    conf.write_text(f'[lookup]\ncertificate_file = "{cert}"\n')
    words = ("--no-kafka", "--conf", str(conf))
    told = examine(capsys, tables, *words)[1][subject]
    assert told["verdict"] == "warn"
    assert str(cert) in told["what"]
    assert "successor" in told["next_step"] or "successor" in told["what"]
    capsys.readouterr()
    assert main(["status", "--tables", str(tables), "--conf", str(conf)]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if str(cert) in one]
    assert line.split()[0] == {20: "warning", 5: "ALARM"}[days]


def test_absent_tables_fail_and_say_what_to_start(tmp_path: Path, capsys: Capsys) -> None:
    code, found = examine(capsys, tmp_path / "none")
    assert code == 1
    assert found["tables"]["verdict"] == "fail"
    assert "ballast run-local" in found["tables"]["next_step"]
    assert main(["doctor", "--tables", str(tmp_path / "none"), "--no-kafka"]) == 1
    assert "next: start it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "case",
    [
        (60, "clock", "fail", "ahead"),
        (-600, "job", "fail", ""),
        (-600, "load", "warn", "the job's last commit is 10 min"),
    ],
)
def test_clock_that_is_ahead_and_job_that_is_away_are_told(
    world: World, tmp_path: Path, capsys: Capsys, case: tuple[int, str, str, str]
) -> None:
    written_s, subject, verdict, said = case
    write_tables(world, tmp_path, time.time_ns() // 1_000_000 + written_s * 1_000)
    code, found = examine(capsys, tmp_path)
    assert (code, found[subject]["verdict"]) == (1, verdict)
    assert said in found[subject]["what"]


def test_table_of_another_version_names_the_column(tables: Path, capsys: Capsys) -> None:
    DeltaTable(str(tables / "pins")).alter.add_columns([Field("mood", "string")])
    strange = DeltaTable(str(tables / "records"))
    strange = DeltaTable.create(
        strange.table_uri,
        Schema([*strange.schema().fields, Field("taste", "string", nullable=False)]),
        mode="overwrite",
    )
    code, found = examine(capsys, tables)
    assert code == 1
    assert "taste string not null is not known here" in found["records"]["what"]
    assert found["pins"]["verdict"] == "warn"
    assert "mood was added by a newer version" in found["pins"]["what"]


def test_table_of_an_older_version_names_what_the_job_will_add(
    tables: Path, capsys: Capsys
) -> None:
    mood = Column(name="mood", type="string", doc="", is_nullable=True)
    newer = [replace(one, columns=(*one.columns, mood)) for one in TABLES]
    with mock.patch.object(doctor, "TABLES", newer):
        code, found = examine(capsys, tables)
    assert code == 0
    assert found["pins"] == {**found["pins"], "verdict": "warn", "what": "lacks mood"}


def test_kafka_that_is_away_fails_without_hiding_the_rest(tables: Path, capsys: Capsys) -> None:
    with mock.patch.object(doctor, "_KAFKA_TIMEOUT_MS", 300):
        code, found = examine(capsys, tables, "--bootstrap", "127.0.0.1:9")
    assert code == 1
    assert found["kafka"]["verdict"] == "fail"
    assert "127.0.0.1:9" in found["kafka"]["what"]
    assert found["tables"]["verdict"] == "ok"


def test_full_disk_and_old_package_are_told(tables: Path, capsys: Capsys) -> None:
    with (
        mock.patch.object(doctor.shutil, "disk_usage", return_value=mock.Mock(free=10**8)),  # type: ignore[attr-defined]
        mock.patch.object(doctor, "version", return_value="3.0.1"),
    ):
        _, found = examine(capsys, tables)
    assert found["disk"]["verdict"] == "fail"
    assert found["pandas"]["verdict"] == "fail"
    assert "below 3" in found["pandas"]["next_step"]


def test_bundles_are_listed_by_what_is_asked(world: World, tables: Path, capsys: Capsys) -> None:
    newest = {row["broker"]: row for row in world.other_rows["load_history"]}
    rates = {
        name: inwards + outwards
        for row in newest.values()
        for name, inwards, outwards in zip(
            row["bundles"], row["msg_rate_in"], row["msg_rate_out"], strict=True
        )
    }
    where = ["--tables", str(tables), "--json"]
    assert main(["bundle", "list", "--limit", "3", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["msg_rate"] for row in found] == sorted(rates.values(), reverse=True)[:3]
    owners = {row["bundle"]: row["destination"] for row in world.newest()}
    assert all(row["broker"] == owners[row["bundle"]] for row in found)
    for order in ("topics", "sessions", "bandwidth"):
        assert main(["bundle", "list", "--by", order, "--broker", "broker-1:8080", *where]) == 0
        mine = json.loads(capsys.readouterr().out)
        assert {row["broker"] for row in mine} == {"broker-1:8080"}
        assert len(mine) == sum(owner == "broker-1:8080" for owner in owners.values())
    assert main(["bundle", "list", "--tables", str(tables)]) == 0
    assert "of its broker" in capsys.readouterr().out
    assert main(["bundle", "list", "--broker", "nobody", *where]) == 1
    assert main(["bundle", "list", "--limit", "0", *where]) == 2
