"""docs/kubernetes.md: what it starts takes its words, what it mounts is declared."""

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.adapters.processes.settings import load_settings
from jobs.service import lookup_http
from tests.tidy.conftest import ParsedError
from tests.tidy.source_files import ROOT

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
JOB, LOOKUP = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
CONTAINER: Mapping[str, Any] = LOOKUP["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("jobs.balance_cluster", JOB["spec"]["arguments"]),
        (CONTAINER["command"][2], CONTAINER["command"][3:]),
    ],
)
@pytest.mark.usefixtures("only_parsing")
def test_process_takes_its_words(module: str, words: Sequence[str]) -> None:
    with pytest.raises(ParsedError) as parsed:
        importlib.import_module(module).main(words)
    assert load_settings(parsed.value.args[0].config)


def test_file_that_spark_runs_is_where_the_image_has_the_source() -> None:
    path = JOB["spec"]["mainApplicationFile"].removeprefix("local:///opt/ballast/")
    assert (ROOT / path).is_file()
    assert "COPY . /opt/ballast" in PAGE


def test_what_is_mounted_is_declared() -> None:
    for spec, users in (
        (JOB["spec"], [JOB["spec"]["driver"], JOB["spec"]["executor"]]),
        (LOOKUP["spec"]["template"]["spec"], [CONTAINER]),
    ):
        declared = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for user in users for mount in user["volumeMounts"]} == declared


def test_probes_ask_for_what_the_service_answers() -> None:
    source = Path(lookup_http.__file__).read_text()
    for probe in ("livenessProbe", "readinessProbe"):
        assert f'b"{CONTAINER[probe]["httpGet"]["path"]}"' in source
