"""Each alert fires on what it is for, and on nothing else: tried by promtool."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from dashboards.rules import ALERTS, RUNBOOK, render_rules
from tests.drawn_pages import ALL_METRICS
from tests.support.processes.prometheus import tool
from tests.support.values.alert_cases import CASES, Case, as_promtool, names_in

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "dashboards" / "alerts.yml"


def test_file_is_its_declarations() -> None:
    assert FILE.read_text() == render_rules(), "run `make draw`"


def test_runbook_is_where_it_is_said_to_be() -> None:
    text = render_rules(runbook="https://wiki.example/runbook")
    assert text.count("runbook_url: https://wiki.example/runbook#ballast") == len(ALERTS)


def test_query_of_a_rule_names_declared_metrics_and_labels() -> None:
    series = {name: metric for metric in ALL_METRICS.values() for name in metric.series}
    for alert in ALERTS:
        assert names_in(alert.expr)
        assert names_in(alert.expr) - series.keys() == set(), alert.name


def test_rule_has_a_runbook_section_that_says_what_to_do() -> None:
    text = (ROOT / RUNBOOK).read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert [a.name for a in ALERTS if a.name not in sections] == []
    for alert in ALERTS:
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in sections[alert.name], f"{alert.name} lacks {part}"
    assert [name for name in sections if name.startswith("Ballast")] == [a.name for a in ALERTS]


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {name.partition(",")[0] for name in CASES} == {alert.name for alert in ALERTS}


@pytest.fixture(scope="module")
def promtool() -> Path:
    return tool("promtool")


def test_rules_are_sound_to_promtool(promtool: Path) -> None:
    ended = subprocess.run([promtool, "check", "rules", FILE], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(ALERTS)} rules found".encode() in ended.stdout


def _run(
    promtool: Path, folder: Path, cases: dict[str, Case]
) -> "subprocess.CompletedProcess[str]":
    (folder / "alerts.yml").write_text(FILE.read_text())
    (folder / "cases.yml").write_text(json.dumps(as_promtool(cases)))  # JSON is YAML
    words = [str(promtool), "test", "rules", "cases.yml"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_alerts_fire_on_what_they_are_for_and_on_nothing_else(
    promtool: Path, tmp_path: Path
) -> None:
    ended = _run(promtool, tmp_path, CASES)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4_000:]


def test_case_that_is_wrong_is_noticed(promtool: Path, tmp_path: Path) -> None:
    quiet = CASES["BallastBrake"].quiet
    ended = _run(promtool, tmp_path, {"BallastBrake": Case(fires=quiet, quiet=quiet)})
    assert ended.returncode != 0
