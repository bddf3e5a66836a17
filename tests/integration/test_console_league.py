"""The console's league of the cluster's own load: a real backtest, over HTTP, in a browser."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from tests.support.processes.browser import Browser, running_browser
from tests.support.processes.lookup_service import LookupService

CELLS = (
    "[...document.querySelectorAll('.league tbody tr')].map((row) => "
    "[...row.children].map((cell) => cell.textContent))"
)


def backtest(tables: Path, *words: str) -> None:
    assert main(["backtest", "--tables", str(tables), "--workers", "1", "--keep", *words]) == 0


@pytest.fixture(scope="module")
def tables(recorded_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("league") / "tables"
    shutil.copytree(recorded_tables, made)
    return made


@pytest.fixture(scope="module")
def service(tables: Path) -> Iterator[LookupService]:
    running = LookupService(tables, "--cluster", "local")
    running.wait_ready()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def page(service: LookupService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        running.open(f"http://127.0.0.1:{service.port}/#/league")
        yield running


def told(service: LookupService) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/v1/league") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_view_says_how_to_make_a_league_and_shows_it_once_there_is_one(
    page: Browser, service: LookupService, tables: Path, tmp_path: Path
) -> None:
    page.wait("document.querySelector('#view-league code')")
    command = page.value("document.querySelector('#view-league code').textContent")
    assert command == "ballast backtest --keep"
    assert told(service)["run"] is None
    backtest(
        tables, "--strategy", "none,avg,ballast,as-set", "--set", "shedding.avg_low_threshold=9"
    )
    page.wait("document.querySelectorAll('.league tbody tr').length === 5")
    strategies = told(service)["strategies"]
    costs = [one["cost"] for one in strategies]
    assert costs == sorted(costs)
    for at, (cells, one) in enumerate(zip(page.value(CELLS), strategies, strict=True), start=1):
        assert cells[0] == str(at)
        assert cells[1].split(" (")[0] == one["strategy"]
        assert cells[2] == f"{one['cost']:.1f}"
        assert cells[3] == f"{one['imbalance_mean']:.2f}"
        assert cells[4] == f"{one['over_bound_mean']:.2f}"
        assert cells[5] == f"{round(one['above_ms'] / 60_000, 1):g} min"
        assert cells[6] == f"{one['moves']:.0f}"
    assert page.value("document.querySelectorAll('.league .recorded').length") == 1
    assert page.value("document.querySelectorAll('.dots circle.dot').length") == 4
    assert page.value("document.querySelectorAll('.dots circle.ring').length") == 1
    assert "shedding.avg_low_threshold=9" in page.value(
        "document.querySelector('#view-league > p').textContent"
    )
    page.shoot(tmp_path / "league.png")
    assert page.complaints == []


def test_strategy_that_sheds_comes_before_one_that_does_not(
    service: LookupService, page: Browser
) -> None:
    names = [one["strategy"] for one in told(service)["strategies"]]
    assert names.index("ballast") < names.index("none")
    assert page.value("document.querySelector('#view-league .told').textContent").startswith(
        f"{names[0]} comes first: imbalance "
    )
