"""`ballast plan --dry-run` and /v1/plan: what would happen, from the tables."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from jobs.cli import main
from jobs.operating.plans import Outlook, _skip_lines
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.plan.shed.custom import FAULTS
from tests.support import Capsys
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.worlds.explained_world import asked_now
from tests.support.worlds.world import CLUSTER, World

HOT = "broker-0:8080"
QUIET = [
    "shedding.cool_down_ms=0",
    "splitting.enabled=false",
    "shedding.strategy=avg",
    "placement.strategy=avg",
]
SET = [word for setting in QUIET[:2] for word in ("--set", setting)]


@pytest.fixture(scope="module")
def world() -> World:
    """Two brokers, one of them hot, while balancing is paused; then it is resumed."""
    made = World(parse_assignments(Config(), QUIET), brokers=2)
    made.command("create_namespace", namespace="acme/a", bundles=8)
    made.run(60_000)
    made.command("pause")
    for row in made.newest():
        made.rates[str(row["bundle"])] = 1_500.0 if row["destination"] == HOT else 50.0
    made.run(180_000)
    made.command("resume")
    made.run(5_000)
    return made


@pytest.fixture(scope="module")
def tables(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with asked_now(world, tmp_path_factory.mktemp("plan")) as root:
        yield root


def plan(tables: Path, *words: str) -> int:
    return main(["plan", "--dry-run", "--tables", str(tables), *SET, *words])


def test_text_says_what_comes_when_and_what_it_brings(tables: Path, capsys: Capsys) -> None:
    assert plan(tables, "--set", "shedding.avg_high_hits=3") == 0
    text = capsys.readouterr().out
    assert text.startswith("dry run, nothing was sent")
    assert "under avg with avg: 10 cycles" in text
    assert "cycle 1 would decide nothing: no broker is beyond its threshold for enough" in text
    assert f"near: {HOT} against broker-1:8080" in text
    assert "needs 1 hits more" not in text
    assert "needs 1 hit more (too_few_hits)" in text
    assert "after 1 more hit, cycle 2, in 15 s to 1 min 5 s:" in text
    why = "its broker was above the ideal load or the threshold (avg)"
    assert f"{HOT} → broker-1:8080: {why}; source 60.0 % → " in text
    assert "(floor-adjusted " in text
    assert "not known here: which report was judged last" in text


def test_text_counts_the_hits_that_the_tables_have(tables: Path, capsys: Capsys) -> None:
    assert plan(tables) == 0
    text = capsys.readouterr().out
    assert "at once:" in text
    assert "would decide nothing: a broker is beyond" not in text.splitlines()[2]


def test_drain_is_foreseen_in_the_same_form(tables: Path, capsys: Capsys) -> None:
    words = ["broker", "drain", HOT, "--dry-run", "--tables", str(tables)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert f"{HOT} → broker-1:8080: its broker is being drained" in text
    assert f"{HOT} (drained)" in text
    assert "gets hot: " not in text
    assert "not known here: " in text
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "accepted"
    assert found["foresight"]["hot"] == []


def test_json_has_the_same_and_strategy_takes_a_placement_that_suits(
    tables: Path, capsys: Capsys
) -> None:
    assert plan(tables, "--strategy", "uniform", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["strategy"], found["placement"]) == ("uniform", "least_long_term_message_rate")
    first = [one for one in found["decisions"] if one["cycle"] == 1]
    assert {one["source"] for one in first} == {HOT}
    assert found["after"]["imbalance"] < found["before"]["imbalance"]


def test_brokers_may_come_and_go(tables: Path, capsys: Capsys) -> None:
    words = ("--add-brokers", "1", "--remove-broker", HOT)
    assert plan(tables, *words) == 0
    text = capsys.readouterr().out
    assert "no load is known of new-broker-1: taken for idle" in text
    assert f"{HOT} (drained)" in text
    assert f"drain acme/a/0x00000000_0x20000000 {HOT} → " in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--strategy", "best"], 2, "there is no strategy 'best' to plan with"),
        (["--set", "shedding.nope=1"], 2, "there is no such setting"),
        (["--add-brokers", "-1"], 1, "0 to 1000 brokers"),
        (["--remove-broker", "nobody"], 1, "nobody"),
    ],
)
def test_question_that_makes_no_sense_is_refused(
    tables: Path, capsys: Capsys, words: list[str], code: int, said: str
) -> None:
    assert plan(tables, *words) == code
    assert said in capsys.readouterr().err


def test_plan_without_dry_run_is_misuse(capsys: Capsys) -> None:
    assert main(["plan"]) == 2
    assert "`plan` needs --dry-run or an action" in capsys.readouterr().err


@pytest.fixture
def app(tables: Path) -> AdminApp:
    return AdminApp(replace(make_context(tables), cluster=CLUSTER), ROUTES)


def get(app: AdminApp, query: str) -> Answer:
    return asyncio.run(ask(app, f"/v1/plan?{query}"))


def test_query_asks_for_several_things_at_once(app: AdminApp) -> None:
    query = "strategy=uniform&set=shedding.cool_down_ms=0&add_brokers=1&remove_broker=" + HOT
    found = get(app, query).json
    assert found["decisions"]
    assert found["strategy"] == "uniform"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("strategy=best", 400),
        ("set=shedding.nope=1", 400),
        ("&".join(["set=a=b"] * 101), 400),
        ("add_brokers=true", 400),
        ("add_brokers=1001", 400),
        ("remove_broker=nobody", 409),
        ("remove_broker=nobody&remove_broker=nobody", 409),
        ("remove_broker=", 409),
        (f"remove_broker={HOT}&remove_broker=" + "x" * 5_000, 409),
    ],
)
def test_query_that_makes_no_sense_is_refused_with_a_reason(
    app: AdminApp, query: str, status: int
) -> None:
    reply = get(app, query)
    assert reply.status == status
    assert reply.json["detail"]


@pytest.mark.parametrize("reason", FAULTS)
def test_fault_of_an_own_strategy_is_shown_and_fails(reason: str) -> None:
    fault = {"reason": reason, "inputs": {"skipped": {"strategy": "m:f: raised KeyError, line 7"}}}
    idle = {"reason": "NoBundles", "inputs": {"skipped": {"strategy": "not shown"}}}
    found = mock.Mock(skips=[{**idle, "cycle": 1}, *({**fault, "cycle": at} for at in (2, 3))])
    outlook = Outlook(found=found, tables_age_ms=0)
    assert outlook.has_faults
    why = "brokers are beyond their thresholds, but no bundle may move or no move helps"
    assert list(_skip_lines(found)) == [
        f"cycle 1 would decide nothing: {why}",
        f"cycles 2 to 3 would decide nothing: {reason}: m:f: raised KeyError, line 7",
    ]
    assert not Outlook(found=mock.Mock(skips=[idle]), tables_age_ms=0).has_faults
