"""The console's view of strategies that only think along, over real HTTP, in a real browser."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.browser import Browser, running_browser
from tests.support.processes.lookup_service import LookupService
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.hot_world import hot_world
from tests.support.worlds.world import CLUSTER

THINK = ("cluster.observe_only=true", "cluster.shadow=uniform,overload")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """A service over a hot cluster that is only observed, while two strategies think along."""
    tables = tmp_path_factory.mktemp("shadow") / "tables"
    world = hot_world(*THINK)
    world.run(120_000, step_ms=2_000)
    write_tables(world, tables, time.time_ns() // 1_000_000)
    running = LookupService(tables, "--cluster", CLUSTER)
    running.wait_ready()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def page(service: LookupService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        running.open(f"http://127.0.0.1:{service.port}/#/shadow")
        running.wait("document.querySelectorAll('.shadows tbody tr').length === 2")
        yield running


def test_view_shows_what_each_would_have_done(
    page: Browser, service: LookupService, tmp_path: Path
) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/v1/shadow") as answer:
        told = json.load(answer)["shadows"]
    assert [one["strategy"] for one in told] == ["overload", "uniform"]
    cells = "[...document.querySelectorAll('.shadows tbody tr')].map((row) => "
    cells += "[...row.children].map((cell) => cell.textContent))"
    for row, one in zip(page.value(cells), told, strict=True):
        assert row[0] == one["strategy"]
        assert row[1:4] == [
            f"{one['shadow_imbalance']:.2f}", f"{one['imbalance']:.2f}", str(one["moves"])
        ]  # fmt: skip
    assert told[1]["moves"] > 0
    assert page.value("document.querySelectorAll('#view-shadow figure polyline').length") == 4
    steps = page.value("document.querySelectorAll('#view-shadow .events tbody tr').length")
    assert steps == sum(len(one["steps"]) for one in told) > 0
    page.shoot(tmp_path / "shadow.png")
    assert page.complaints == []
