"""The client model: what a move costs publishers and consumers, by its table of costs."""

import pytest

from lbcore.config.tree import Config
from lbcore.sim.engine.coverage import Outage
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.clients import reconnections
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.scenario.model import Client
from lbcore.sim.scenario.parse import parse_scenario

CRASH = """
brokers 3
namespace t/n bundles=6 topics=5
own t/n all all
load t/n even 1pt each
at 30s crash b1
run 90s
"""


def waits(client: Client, *outages: tuple[int, int, int]) -> list[tuple[int, float]]:
    """(from the end of service until connected, clients) of (began, ended, topics), one broker."""
    made = [Outage(began, ended, topics, 1.0, 0) for began, ended, topics in outages]
    return [(one.away_ms + one.wait_ms, one.clients) for one in reconnections(made, client)]


def test_client_that_is_told_at_once_looks_up_and_connects() -> None:
    assert waits(Client(), (0, 500, 4)) == [(530, 8.0)]


@pytest.mark.parametrize(
    ("lasted_ms", "noticed_ms"), [(50, 100), (100, 100), (101, 300), (700, 700), (15_000, 25_500)]
)
def test_client_that_asks_again_notices_at_its_next_try(lasted_ms: int, noticed_ms: int) -> None:
    ((wait_ms, _),) = waits(Client(retry_ms=100), (0, lasted_ms, 1))
    assert wait_ms == noticed_ms + 30


def test_broker_accepts_clients_one_after_another() -> None:
    found = waits(Client(accept=100, publishers=3, consumers=2), (0, 0, 40))
    assert sum(clients for _, clients in found) == 200
    assert found[-1][0] == 2_030
    assert found[0][0] == 130


def test_those_that_come_later_wait_behind_those_before() -> None:
    found = waits(Client(accept=10, consumers=0), (0, 0, 10), (0, 500, 10))
    assert max(wait for wait, _ in found) == 2_030


@pytest.mark.parametrize(
    ("client", "longest_ms"), [("", 30), ("client connect=1s", 1_010), ("client accept=2", 5_030)]
)
def test_costs_are_seen_in_what_publishing_takes(client: str, longest_ms: int) -> None:
    run = run_scenario(parse_scenario(CRASH + client), Config())
    outage = measure_named(run, "outage.max")
    publish = measure_named(run, "publish.max")
    assert outage is not None
    assert publish is not None
    assert publish == pytest.approx(outage + longest_ms + 5, abs=2_600 if "accept" in client else 1)
    assert measure_named(run, "publish.p50") == 5.0
    assert measure_named(run, "reconnects") == 20.0


def test_time_without_service_is_told_of_each_topic() -> None:
    run = run_scenario(parse_scenario(CRASH), Config())
    assert measure_named(run, "topic_unserved.max") == measure_named(run, "outage.max")
    assert measure_named(run, "topic_unserved.p50") == 0.0
    total = measure_named(run, "topic_unserved.mean")
    assert total is not None
    assert total * 30 == pytest.approx(sum(
        (one.ended_ms - one.began_ms) * one.topics for one in run.coverage.outages
    ))  # fmt: skip
