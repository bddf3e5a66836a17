"""The console in a real browser: what its views show, its keys, its policy, its sign-in."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.processes.browser import Browser, running_browser
from tests.support.processes.lookup_service import LookupService
from tests.support.values.tokens import SECRET, token
from tests.support.worlds.explained_world import eventful, write_tables

_HAS_DRAWN = "document.querySelectorAll('#brokers tr').length === 5"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """A service that asks for tokens, over a cluster that was busy until now."""
    tables = tmp_path_factory.mktemp("page") / "tables"
    write_tables(eventful(), tables, time.time_ns() // 1_000_000)
    brokers = DeltaTable(tables / "brokers")
    brokers.update(updates={"version": "'4.0.8'"})
    brokers.update(updates={"version": "'4.2.4'"}, predicate="broker = 'broker-0:8080'")
    words = ["--cluster", "local", "--set", "lookup.authentication=token"]
    words += ["--set", "lookup.token_audience=ballast"]
    secret = {"BALLAST_TOKEN_SECRET": SECRET}
    running = LookupService(tables, *words, environment=secret)
    running.wait_ready()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def page(service: LookupService, browser: Browser) -> Browser:
    """The page, signed in, with nothing wrong so far."""
    browser.sign_in(f"http://127.0.0.1:{service.port}/", "viewer")
    browser.open(f"http://127.0.0.1:{service.port}/")
    browser.wait(_HAS_DRAWN)
    browser.complaints.clear()
    return browser


def text(browser: Browser, selector: str) -> str:
    return str(browser.value(f"document.querySelector('{selector}').textContent"))


def test_stranger_is_asked_for_a_token_and_sees_nothing(
    service: LookupService, browser: Browser
) -> None:
    browser.open(f"http://127.0.0.1:{service.port}/")
    browser.value("sessionStorage.clear()")
    browser.open(f"http://127.0.0.1:{service.port}/")
    browser.wait("!document.querySelector('#sign-in').hidden")
    assert browser.value("document.querySelectorAll('#brokers tr').length") == 0
    browser.value("document.querySelector('#token').focus()")
    browser.write(token(SECRET, "HS256", sub="ada", roles=["viewer"]))
    browser.press("Enter")
    browser.wait(_HAS_DRAWN)
    assert browser.value("document.querySelector('#sign-in').hidden")


def test_page_shows_the_cluster_without_a_complaint(page: Browser, tmp_path: Path) -> None:
    assert text(page, "#cluster") == "local"
    assert "broker-2:8080" in text(page, "#alarms")
    assert "no heartbeat" in text(page, "#alarms") or text(page, ".badge") != "stalled"
    assert "4.2.4 (1): end the upgrade" in text(page, "#warnings")
    assert page.value("document.querySelectorAll('#decisions details').length") == 20
    assert page.value("document.querySelectorAll('#balance polyline').length") == 1
    widths = page.value(
        "[...document.querySelectorAll('.fill')].map((fill) => fill.getBoundingClientRect().width)"
    )
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 10
    page.shoot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert page.complaints == []


def test_page_is_used_with_the_keyboard_alone(page: Browser) -> None:
    page.press("/")
    page.write("t/n/a-topic")
    page.press("Enter")
    page.wait("document.querySelector('#owner button')")
    owner = text(page, "#owner button")
    assert owner.startswith("broker-")
    page.press("Tab")
    page.press("Tab")
    assert page.value("document.activeElement.dataset.key") == f"broker {owner}"
    page.press("Enter")
    page.wait("!document.querySelector('#explanation').hidden")
    page.wait("document.activeElement.id === 'explanation'")
    assert text(page, "#explanation h2").startswith(f"{owner} is ")
    page.press("Escape")
    assert page.value("document.querySelector('#explanation').hidden")
    assert page.value("document.activeElement.dataset.key") == f"broker {owner}"


def test_decision_stays_open_over_a_refresh(page: Browser) -> None:
    page.value("document.querySelector('#decisions details:nth-of-type(3) summary').focus()")
    page.press("Enter")
    key = page.value("document.activeElement.dataset.key")
    assert page.value("document.querySelectorAll('#decisions details[open] li').length") > 0
    page.value("window.before = document.querySelector('#decisions details')")
    page.wait("document.querySelector('#decisions details') !== window.before")
    assert page.value("document.querySelectorAll('#decisions details[open]').length") == 1
    assert page.value("document.activeElement.dataset.key") == key


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_page_follows_the_colour_scheme(
    page: Browser, service: LookupService, *, scheme: str, is_dark: bool
) -> None:
    page.open(f"http://127.0.0.1:{service.port}/", scheme=scheme)
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    shades = [int(part) for part in ground.removeprefix("rgb(").rstrip(")").split(",")]
    assert (sum(shades) < 200) is is_dark


def test_names_are_never_taken_for_markup(page: Browser) -> None:
    page.press("/")
    page.write("<img src=x onerror=alert(1)>/n/t")
    page.press("Enter")
    page.wait("document.querySelector('#owner').textContent.length > 12")
    assert page.value("document.querySelectorAll('#owner img').length") == 0


def test_views_are_reached_by_keys_and_by_address(page: Browser) -> None:
    page.value("document.activeElement.blur()")
    for name in ("heat", "why", "plans", "timeline", "find", "whatif", "now"):
        page.value(f"location.hash = '#/{name}'")
        page.wait(f"!document.querySelector('#view-{name}').hidden")
        assert page.value("document.querySelectorAll('.view:not([hidden])').length") == 1
        current = page.value("document.querySelector('[aria-current]').textContent")
        assert current.lower().replace(" ", "") == name
        assert page.value("document.activeElement.id") == "main"
    assert page.complaints == []


def test_heat_tells_a_cell_by_arrow_keys_and_leads_to_bundles(page: Browser) -> None:
    page.value("location.hash = '#/heat'")
    page.wait("document.querySelector('#heat-cell')?.textContent.startsWith('Point at')")
    page.value("document.querySelector('#view-heat canvas').focus()")
    for key in ("ArrowDown", "ArrowLeft", "Enter"):
        page.value(
            "document.querySelector('#view-heat canvas').dispatchEvent("
            f"new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))"
        )
    assert text(page, "#heat-cell").startswith("broker-0:8080, ")
    page.value("document.querySelector('.chosen a[href^=\"#/heat?broker\"]').click()")
    page.wait("document.querySelector('#view-heat .legend').textContent.includes('bundles')")
    assert text(page, "#heat-title") == "Bundles of broker-0:8080"
    assert page.complaints == []


def test_why_says_the_explanation_with_bars(page: Browser) -> None:
    page.value("location.hash = '#/why/broker/broker-0:8080'")
    page.wait("document.querySelector('.why-answer .numbers .fill')")
    assert text(page, ".why-answer h3").startswith("broker-0:8080 is active")
    assert page.complaints == []


def test_viewer_is_told_why_there_is_nothing_to_press(page: Browser) -> None:
    page.wait("document.querySelector('#cluster-actions').textContent.length > 20")
    assert page.value("document.querySelectorAll('button.action').length") == 0


def test_timeline_tells_loads_of_a_move_by_focus_and_shows_what_is_asked_for(page: Browser) -> None:
    page.value("location.hash = '#/timeline?window=86400000'")
    page.wait("document.querySelectorAll('#view-timeline tbody tr[tabindex]').length > 0")
    page.value("document.querySelector('#view-timeline tbody tr[tabindex]').focus()")
    page.wait("/broker-.*: .* → .*; broker-/.test("
              "document.querySelector('#view-timeline .told').textContent)")  # fmt: skip
    page.value("location.hash = '#/timeline?window=86400000&about=broker-4'")
    page.wait("document.querySelectorAll('#view-timeline tbody tr').length > 0")
    lines = page.value("[...document.querySelectorAll('#view-timeline tbody tr')]"
                       ".map((tr) => tr.textContent)")  # fmt: skip
    assert all("broker-4" in line for line in lines)
    assert page.complaints == []


def test_find_leads_from_a_topic_to_who_owned_its_bundle(page: Browser) -> None:
    page.value("location.hash = '#/find/t/n/a-topic'")
    page.wait("document.querySelectorAll('#view-find tbody tr').length > 1")
    assert "t/n/a-topic is in t/n/0x" in text(page, "#view-find article")
    assert page.complaints == []


def test_what_if_shows_load_before_and_after_and_what_is_wrong_with_a_question(
    page: Browser,
) -> None:
    page.value("location.hash = '#/whatif'")
    page.wait("document.querySelector('#view-whatif button')")
    page.value("document.querySelector('#view-whatif button').click()")
    page.wait("document.querySelectorAll('#view-whatif .pairs tbody tr').length > 2")
    page.value("document.querySelector('#view-whatif input').value = 'nosuch'")
    page.value("document.querySelector('#view-whatif button').click()")
    page.wait("document.querySelector('#view-whatif .silent')?.textContent.includes('nosuch')")
