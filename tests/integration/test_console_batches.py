"""The console shows each batch, and says so when its service is away."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.browser import running_browser
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import Row, TablesWriter
from tests.support.values.tokens import SECRET
from tests.support.worlds.checked_world import owners, running
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER


def start(tables: Path, *words: str) -> LookupService:
    words = ("--cluster", CLUSTER, "--set", "lookup.authentication=token", *words)
    words += ("--set", "lookup.token_audience=ballast")
    service = LookupService(tables, *words, environment={"BALLAST_TOKEN_SECRET": SECRET})
    service.wait_ready()
    return service


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LookupService, TablesWriter, str]]:
    """A service that asks for tokens, a writer of its tables, and a bundle."""
    world = running(2, 4)
    tables = tmp_path / "tables"
    write_tables(world, tables, time.time_ns() // 1_000_000)
    service = start(tables)
    yield service, TablesWriter(tables, "q1", first_batch=2), min(owners(world))
    service.stop()


def test_page_shows_each_batch(
    served: tuple[LookupService, TablesWriter, str], tmp_path: Path
) -> None:
    service, writer, bundle = served
    with running_browser(tmp_path) as page:
        page.sign_in(f"http://127.0.0.1:{service.port}/alive", "viewer")
        page.open(f"http://127.0.0.1:{service.port}/")
        ages = "document.querySelector('#ages').textContent"
        page.wait(f"/table version \\d+/.test({ages})")
        page.complaints.clear()  # the first page has no icon
        before = int(page.value(f"/table version (\\d+)/.exec({ages})[1]"))
        for version in range(50, 53):
            writer.batch([Row(bundle=bundle, version=version, destination="broker-1:8080")])
            page.wait(f"/table version (\\d+)/.exec({ages})[1] > {before + version - 50}")
        assert page.complaints == []


def test_page_whose_service_goes_away_says_so_and_goes_on_when_it_is_back(
    served: tuple[LookupService, TablesWriter, str], tmp_path: Path
) -> None:
    service, _, _ = served
    with running_browser(tmp_path) as page:
        page.sign_in(f"http://127.0.0.1:{service.port}/alive", "operator")
        page.open(f"http://127.0.0.1:{service.port}/")
        brokers = "document.querySelectorAll('#brokers tr').length"
        page.wait(f"{brokers} === 2")
        service.stop()
        phase = "document.querySelector('#phase').textContent"
        page.wait(f"{phase}.includes('what is below is old')")
        assert page.value(brokers) == 2
        asked = "import('/page/actions.js').then((the) => the.command('pause', {}, 'one'))"
        page.value(f"{asked}.then((told) => {{ window.told = told.text; }})")
        page.wait("window.told")
        assert "whether it was done is not known" in page.value("window.told")
        again = start(tmp_path / "tables", "--port", str(service.port))
        try:
            page.wait(f"!{phase}.includes('what is below is old') && {brokers} === 2")
        finally:
            again.stop()
