"""A real Prometheus on the real stack: every panel has data, and the right alerts fire.

One run, in which what operators fear happens; each test asks Prometheus about it.
"""

import math
from collections.abc import Iterator

import pytest

from dashboards.pages import PAGES
from dashboards.panel import CLUSTER, RATE, Page, Panel
from dashboards.rules import ALERTS, GROUPS
from tests.integration.eventful_run import AGENT, CRASHED, EventfulRun, eventful_run
from tests.support.values.alert_cases import names_in

pytestmark = pytest.mark.long  # four minutes
MUST_FIRE = {
    "BallastBrokerDown",
    "BallastCallbacksFail",
    "BallastCallbacksHang",
    "BallastOverride",
    "BallastRejectedReports",
    "BallastRepairs",
}
MAY_FIRE = {
    # on a crowded machine a batch takes ten seconds or more, a producer of ticks is held up, ...
    "BallastBehind",
    "BallastDisagreement",
    "BallastJobSilent",
    "BallastLookupStale",
    "BallastLookupsSlow",
    "BallastNoTicks",
    "BallastSlowBatches",
    "BallastWriterSilent",
    # a drain that has just begun: its rule waits 15 minutes, here a second
    "BallastDrainStalled",
    # and what is moved on purpose, or can't be opened, may look like it
    "BallastImbalance",
    "BallastLookupsFail",
    "BallastMovesDontHelp",
    "BallastThrash",
}
ABSENT = {
    "ballast_agent_lease_seconds",  # the agents have no leases
    "ballast_broker_blocked_seconds",  # nor is a hot broker blocked,
    "ballast_bundles_without_candidate",  # a bundle stranded by a policy,
    "ballast_lookup_certificate_expiry_timestamp_seconds",  # or HTTP encrypted
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventfulRun]:
    with eventful_run(tmp_path_factory.mktemp("eventful")) as played:
        yield played


def test_rules_are_those_of_the_project_and_evaluate_without_errors(run: EventfulRun) -> None:
    groups = run.prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {group["name"] for group in groups} == set(GROUPS)
    assert {rule["name"] for rule in rules} == {alert.name for alert in ALERTS}
    assert {rule["health"] for rule in rules} == {"ok"}


def test_alerts_that_should_fire_do_and_the_others_do_not(run: EventfulRun) -> None:
    fired = run.prometheus.fired(run.started_s, run.ended_s)
    assert MUST_FIRE - fired == set()
    assert fired - MUST_FIRE - MAY_FIRE == set()


def test_metric_of_every_rule_has_data(run: EventfulRun) -> None:
    names = {name for alert in ALERTS for name in names_in(alert.expr)}
    empty = {name for name in names if not run.prometheus.between(name, run.started_s, run.ended_s)}
    assert empty == {name for name in names if is_absent(name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.slug)
def test_every_panel_has_data(run: EventfulRun, page: Page) -> None:
    empty = [one.title for one in page.panels if not any(points_of(one, run))]
    absent = [
        one.title
        for one in page.panels
        if all(is_absent(name) for query in one.queries for name in names_in(query.expr))
    ]
    assert empty == absent


def is_absent(name: str) -> bool:
    """True for a metric that this run can't have: there is no bridge."""
    return name.startswith("ballast_bridge_") or name in ABSENT


def points_of(panel: Panel, run: EventfulRun) -> Iterator[bool]:
    """Whether each point of a panel is a number; queries come without Grafana's variables."""
    for query in panel.queries:
        expr = query.expr.replace(CLUSTER, "local").replace(RATE, "10s").replace("[1m]", "[15s]")
        for series in run.prometheus.between(expr, run.started_s, run.ended_s):
            yield from (math.isfinite(float(value)) for _, value in series["values"])


def test_numbers_are_those_of_the_tables(run: EventfulRun) -> None:
    prometheus, stack = run.prometheus, run.stack
    assert prometheus.value(f'ballast_broker_up{{broker="{CRASHED}"}}') == 0
    assert prometheus.value("sum(ballast_broker_up)") == 4  # three simulated ones, and the agent's
    stack.wait(  # the drain that has begun moves bundles between two scrapes
        "the agent's bundles in Prometheus and in the table to be equal",
        lambda: (
            prometheus.value("ballast_agent_open_bundles")
            == sum(owner == AGENT for owner in stack.owners().values())
        ),
    )
    splits = [row for row in stack.rows("ownership_events") if row["state"] == "Splitting"]
    assert prometheus.value("sum(pulsar_lb_bundles_split_total)") == len(splits) == 1
    failed = 'increase(ballast_agent_callbacks_total{callback="open", result="failed"}[5m])'
    assert (prometheus.value(failed) or 0) >= 1
    lag = prometheus.value("ballast_kafka_lag_messages")
    assert lag is not None
    assert lag < 20_000
