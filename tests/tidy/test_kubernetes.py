"""docs/kubernetes.md: values that it names are the chart's, what it starts takes its words."""

import re

import pytest
import yaml

from jobs import balance_cluster
from jobs.adapters.processes.settings import load_settings
from lbcore.config.tree import SETTINGS
from tests.support.processes.helm_tool import CHART
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
(JOB,) = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def is_value(path: str) -> bool:
    """Whether the chart has it, such as job.words."""
    found = VALUES
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def test_value_that_the_page_names_is_one_of_the_charts() -> None:
    groups = "|".join(VALUES)
    set_here = re.findall(r"--set(?:-file)? '?([\w.]+)=", PAGE)
    named = re.findall(rf"`((?:{groups})\.[\w.]+)[`=]", PAGE)
    assert len(set_here) > 4
    assert [path for path in set_here if not is_value(path)] == []
    # sections of settings are called `kafka` and `lookup`, too
    assert [path for path in named if not is_value(path) and path not in SETTINGS] == []


@pytest.mark.usefixtures("only_parsing")
def test_job_of_the_operator_takes_its_words() -> None:
    with pytest.raises(ParsedError) as parsed:
        balance_cluster.main(JOB["spec"]["arguments"])
    assert load_settings(parsed.value.args[0].config)


def test_file_that_spark_runs_is_where_the_image_has_the_source() -> None:
    path = JOB["spec"]["mainApplicationFile"].removeprefix("local:///opt/ballast/")
    assert (ROOT / path).is_file()
    assert "COPY . /opt/ballast" in PAGE


def test_what_the_operator_mounts_is_declared() -> None:
    spec = JOB["spec"]
    declared = {volume["name"] for volume in spec["volumes"]}
    users = (spec["driver"], spec["executor"])
    assert {mount["name"] for user in users for mount in user["volumeMounts"]} == declared
