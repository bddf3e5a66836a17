"""Dashboards and alert rules: made by the code, declared metrics, promtool cases."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboards.pages import PAGES
from dashboards.panel import Page
from dashboards.rules import ALERTS, RUNBOOK, render_rules
from jobs.telemetry.agent_metrics import AGENT_METRICS
from jobs.telemetry.bridge_metrics import BRIDGE_METRICS
from lbcore.ownership.states import IN_FLIGHT
from tests.drawn_pages import ALL_METRICS
from tests.support.processes.prometheus import tool
from tests.support.values.alert_cases import CASES, Case, as_promtool, labels_in, names_in

FOLDER = Path(__file__).resolve().parents[3] / "dashboards"
# prometheus-client's own, of each process
_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
_PROMETHEUS = {"instance", "job", "le"}
_SERIES = {name: metric for metric in ALL_METRICS.values() for name in metric.series}


def ids(page: Page) -> str:
    return page.slug


def loaded(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{page.slug}.json").read_text())
    return found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="grafana-foundation-sdk needs Python 3.11")
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_file_is_what_the_code_makes(page: Page) -> None:
    from dashboards.grafana import to_json  # noqa: PLC0415 not to be had before 3.11

    assert (FOLDER / f"{page.slug}.json").read_text() == to_json(page), "run `make draw`"


def test_each_file_is_of_a_page() -> None:
    assert sorted(p.stem for p in FOLDER.glob("*.json")) == sorted(page.slug for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_page_leads_to_the_others_and_its_panels_say_what_is_normal_and_what_to_do(
    page: Page,
) -> None:
    whole = loaded(page)
    (link,) = whole["links"]
    assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
    assert link["tags"] == whole["tags"]
    found = [one["id"] for one in whole["panels"]]
    assert found == list(range(1, len(found) + 1))
    panels = [one for one in whole["panels"] if one["type"] != "row"]
    assert [one["title"] for one in panels] == [one.title for one in page.panels]
    assert len({one["title"] for one in panels}) == len(panels)
    for one in panels:
        assert one["fieldConfig"]["defaults"]["unit"]
        assert re.fullmatch(r"Normal: .+\.\n\nOtherwise: .+[.?]", one["description"]), one["title"]
        assert one["targets"]


def test_each_metric_of_bridge_and_agents_has_a_panel() -> None:
    shown = {
        name
        for page in PAGES
        for one in page.panels
        for q in one.queries
        for name in names_in(q.expr)
    }
    declared = {name for one in (*BRIDGE_METRICS, *AGENT_METRICS) for name in one.series}
    assert declared - shown == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_query_of_a_dashboard_names_declared_metrics_and_labels(page: Page) -> None:
    panels = [one for one in loaded(page)["panels"] if one["type"] != "row"]
    exprs = [target["expr"] for one in panels for target in one["targets"]]
    exprs += [one["expr"] for one in loaded(page)["annotations"].get("list", [])]
    for expr in exprs:
        assert names_in(expr) - _SERIES.keys() - _PROCESS == set(), expr
        for name, label in labels_in(expr):
            assert label in {*_SERIES[name].labels, *_PROMETHEUS}, expr


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_legend_of_a_panel_has_labels_that_its_query_leaves(page: Page) -> None:
    for panel in page.panels:
        for query in panel.queries:
            labels = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            kept = {
                one
                for name in names_in(query.expr) & _SERIES.keys()
                for one in _SERIES[name].labels
            }
            summed = re.search(r"\bby \(([^)]*)\)", query.expr)
            left = set(re.split(r",\s*", summed.group(1))) if summed else kept | _PROMETHEUS
            assert labels <= left, (panel.title, query)


def test_bundles_in_flight_are_those_of_all_passing_states() -> None:
    found = [q for page in PAGES for one in page.panels for q in one.queries
             if one.title == "Bundles in flight"]  # fmt: skip
    assert found
    for query in found:
        (states,) = re.findall(r'state=~"([^"]+)"', query.expr)
        assert {*states.split("|")} == {one.value for one in IN_FLIGHT}


def test_alert_that_a_panel_names_exists() -> None:
    texts = " ".join(panel.description for page in PAGES for panel in page.panels)
    named = set(re.findall(r"\bBallast[A-Z]\w+", texts))
    assert named - {alert.name for alert in ALERTS} == set()
    assert len(named) > 15


ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "dashboards" / "alerts.yml"


def test_file_is_its_declarations_and_names_the_runbook_that_is_given() -> None:
    assert FILE.read_text() == render_rules(), "run `make draw`"
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
