"""Dashboards are what the code makes, query declared metrics alone, and explain each panel."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboards.pages import PAGES
from dashboards.panel import Page
from dashboards.rules import ALERTS
from jobs.telemetry.agent_metrics import AGENT_METRICS
from jobs.telemetry.bridge_metrics import BRIDGE_METRICS
from tests.drawn_pages import ALL_METRICS
from tests.support.values.alert_cases import labels_in, names_in

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
def test_panel_has_unit_and_says_what_is_normal_and_what_to_do(page: Page) -> None:
    panels = [one for one in loaded(page)["panels"] if one["type"] != "row"]
    assert [one["title"] for one in panels] == [one.title for one in page.panels]
    assert len({one["title"] for one in panels}) == len(panels)
    for one in panels:
        assert one["fieldConfig"]["defaults"]["unit"]
        assert re.fullmatch(r"Normal: .+\.\n\nOtherwise: .+[.?]", one["description"]), one["title"]
        assert one["targets"]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_each_panel_and_row_has_an_id_of_its_own(page: Page) -> None:
    found = [one["id"] for one in loaded(page)["panels"]]
    assert found == list(range(1, len(found) + 1))


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


def test_alert_that_a_panel_names_exists() -> None:
    texts = " ".join(panel.description for page in PAGES for panel in page.panels)
    named = set(re.findall(r"\bBallast[A-Z]\w+", texts))
    assert named - {alert.name for alert in ALERTS} == set()
    assert len(named) > 15


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_page_leads_to_the_others_with_what_is_chosen(page: Page) -> None:
    (link,) = loaded(page)["links"]
    assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
    assert link["tags"] == loaded(page)["tags"]
