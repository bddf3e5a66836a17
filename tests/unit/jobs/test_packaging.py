"""What is shipped: packages, extras, bill of materials, public names, tools."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ballast
import pytest

from jobs import VERSION
from jobs.adapters.processes.jars import LOCK_PATH, parse_lock
from jobs.adapters.spark.stream import worker_python
from jobs.console import CommandError
from jobs.package import (
    SPARKS_OWN,
    bill_of_materials,
    lock_beside_spark,
    make_package,
    submit_script,
)
from jobs.prepare import LOCKS, ROOT
from tests.tidy.source_files import ROOT as PUBLIC_INTERFACE_ROOT

_LOCK = """\
numpy==2.2.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
pyspark==4.2.0 \\
    --hash=sha256:cc
mmh3==5.3.1 \\
    --hash=sha256:dd
"""


def test_every_package_but_sparks_own_is_taken_with_its_hashes() -> None:
    assert lock_beside_spark(_LOCK) == _LOCK.replace(
        "pyspark==4.2.0 \\\n    --hash=sha256:cc\n", ""
    )
    text = (ROOT / LOCKS["run"]).read_text()
    assert all(f"\n{name}==" in f"\n{text}" for name in SPARKS_OWN)


def test_words_before_the_dashes_are_sparks_and_those_behind_them_the_jobs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    told = home / "bin" / "spark-submit"
    told.write_text('#!/bin/bash\nprintf "%s\\n" "$@" "$PYSPARK_PYTHON"\n')
    told.chmod(0o755)
    script = tmp_path / "submit"
    script.write_text(submit_script(tmp_path))
    found = subprocess.run(
        ["/bin/bash", script, "--master", "spark://h:1", "--", "--bootstrap", "k:9092"],
        env={"SPARK_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = found.stdout.splitlines()
    assert "--jars" not in words
    assert words[-6:-3] == ["--master", "spark://h:1", str(ROOT / "jobs" / "balance_cluster.py")]
    assert words[-3:] == ["--bootstrap", "k:9092", "python3"]


PACKAGES = """\
ruamel.yaml==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
tomli==2.5.0 ; python_full_version < '3.11' \\
    --hash=sha256:cc
"""
JARS = "org.x:a_2.13:1.0 dd\n"


def test_package_and_jar_have_their_address_and_digests() -> None:
    found = json.loads(bill_of_materials(PACKAGES, "", "1.2"))
    assert found["metadata"]["component"]["version"] == "1.2"
    yaml, tomli = found["components"]
    assert (yaml["purl"], yaml["version"]) == ("pkg:pypi/ruamel-yaml@1.0", "1.0")
    assert [one["value"] for one in yaml["properties"]] == ["sha256:aa", "sha256:bb"]
    assert tomli["properties"][-1]["value"] == "python_full_version < '3.11'"
    (jar,) = json.loads(bill_of_materials("", JARS, "1"))["components"]
    assert jar["purl"] == "pkg:maven/org.x/a_2.13@1.0?type=jar"
    assert jar["hashes"] == [{"alg": "SHA-256", "content": "dd"}]


def test_everything_that_is_locked_is_listed_and_each_time_alike() -> None:
    packages = (ROOT / LOCKS["run"]).read_text(encoding="ascii")
    jars = LOCK_PATH.read_text(encoding="ascii")
    text = bill_of_materials(packages, jars, VERSION)
    assert text == bill_of_materials(packages, jars, VERSION)
    listed = [one["bom-ref"] for one in json.loads(text)["components"]]
    assert len(set(listed)) == len(listed)
    lines = [line for line in packages.splitlines() if "==" in line and line[0].isalnum()]
    assert sum(one.startswith("pkg:pypi/") for one in listed) == len(lines)
    pinned = {(jar.group, jar.artifact, jar.revision) for jar in parse_lock(jars)}
    assert sum(one.startswith("pkg:maven/") for one in listed) == len(pinned)


def test_what_is_installed_has_its_licence() -> None:
    packages = (ROOT / LOCKS["run"]).read_text(encoding="ascii")
    jars = LOCK_PATH.read_text(encoding="ascii")
    components = json.loads(bill_of_materials(packages, jars, VERSION))["components"]
    licences = {one["name"]: one["licenses"] for one in components if "licenses" in one}
    assert licences["uvicorn"] == [{"expression": "BSD-3-Clause"}]
    assert licences["rich"] == [{"license": {"name": "MIT License"}}]
    assert licences["kafka-clients"] == [{"expression": "Apache-2.0"}]
    assert licences["slf4j-api"] == [{"expression": "MIT"}]
    assert {one["license"]["name"] for one in licences["pyspark"]} == {"Apache-2.0"}
    missing = [one for one in components if "licenses" not in one]
    assert all(
        any(each["name"] == "ballast:only-if" for each in one["properties"]) for one in missing
    ), missing
    assert "unknown" not in json.dumps(licences)


SCRIPT = """
import sys
from jobs.cli import main, verb_parser
from jobs.console import CommandError
from jobs.extras import EXTRAS
from jobs.verbs import VERBS

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Blocker())
import jobs.agent, jobs.lookup_client
for name, verb in VERBS.items():
    try:
        verb_parser(name, verb)
    except CommandError as error:
        print(name, main([name]))
"""


def test_only_the_job_and_the_service_need_an_extra_and_name_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["run-job 1", "serve 1"]
    assert "`ballast run-job` needs pyspark" in done.stderr
    assert "ballast-balancer[job]" in done.stderr
    assert "`ballast serve` needs uvicorn" in done.stderr
    assert "ballast-balancer[service]" in done.stderr


PAGE = (PUBLIC_INTERFACE_ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_public_names_are_those_of_the_page_and_exist() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    named = [line.split("|")[1] for line in table.splitlines()]
    assert sorted(re.findall(r"`(\w+)`", " ".join(named))) == sorted(ballast.__all__)
    assert all(hasattr(ballast, name) for name in ballast.__all__)
    assert ballast.__version__ == VERSION


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


def test_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    kept = tmp_path / "thesis.txt"
    kept.write_text("mine")
    with pytest.raises(CommandError, match="no package"):
        make_package(tmp_path)
    assert kept.read_text() == "mine"
