"""The console in a real browser: what its views show, its keys, its policy, its sign-in.

Each view as axe-core judges it too: light and dark, on a desk and on a phone.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.processes.browser import Browser, barriers, running_browser
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import Row, TablesWriter
from tests.support.values.tokens import SECRET, token
from tests.support.worlds.checked_world import hot_world, owners, running
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World

_HAS_DRAWN = "document.querySelectorAll('#brokers tr').length === 5"


@contextmanager
def serving(tables: Path, *words: str) -> Iterator[LookupService]:
    """A service that asks for tokens; it is gone at the end."""
    words = ("--cluster", CLUSTER, "--set", "lookup.authentication=token", *words)
    words += ("--set", "lookup.token_audience=ballast")
    service = LookupService(tables, *words, environment={"BALLAST_TOKEN_SECRET": SECRET})
    try:
        service.wait_ready()
        yield service
    finally:
        service.stop()


def written(world: World, folder: Path) -> Path:
    """Tables with all that the world has written until now."""
    write_tables(world, folder / "tables", time.time_ns() // 1_000_000)
    return folder / "tables"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """Over a cluster that was busy until now."""
    tables = written(eventful(), tmp_path_factory.mktemp("page"))
    brokers = DeltaTable(tables / "brokers")
    brokers.update(updates={"version": "'4.0.8'"})
    brokers.update(updates={"version": "'4.2.4'"}, predicate="broker = 'broker-0:8080'")
    with serving(tables) as running:
        yield running


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
    page.value("location.hash = '#/find/non-persistent://t/n/a-topic'")
    page.wait("document.querySelector('#view-find article').textContent"
              ".startsWith('non-persistent://t/n/a-topic is in t/n/0x')")  # fmt: skip
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


_CHOOSE = "; ".join(
    "document.querySelector('#view-heat canvas').dispatchEvent("
    f"new KeyboardEvent('keydown', {{ key: '{key}' }}))"
    for key in ("ArrowDown", "Enter")
)
_ASK = (
    "import('/page/actions.js').then(({ open }) => open({ kind: 'pin_bundle', title: 'Pin it', "
    "says: ['It stays.'], fields: [{ name: 'broker', label: 'on', options: [['a', 'a']] }, "
    "{ name: 'reason', label: 'why' }], foresee: async () => ({ isPossible: true, nodes: [] }) }))"
)
_CHOSEN = "#question[open] option:checked"  # a choice begins with its first
_UNREADABLE = (  # words in pictures that are too small, or cut off at the picture's edge
    "[...document.querySelectorAll('svg text')].filter((one) => {"
    " const [box, all] = [one, one.ownerSVGElement].map((it) => it.getBoundingClientRect());"
    " return box.height > 0 && (box.height < 10 || box.left < all.left - 1"
    " || box.right > all.right + 1 || box.bottom > all.bottom + 3); })"
    ".map((one) => one.textContent)"
)
_FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
_SCREENS = tuple(product(("light", "dark"), (1100, 390, 320)))  # 320: WCAG 1.4.10, reflow
_CLICK = "document.querySelector('{}').click()"
_VIEWS = {  # name: (address, when it is drawn, what is done then, when that is drawn)
    "now": ("now", "#decisions summary", _CLICK.format("#decisions summary"),
            "#decisions details[open] li"),
    "explanation": ("now", "#brokers button", _CLICK.format("#brokers button"),
                    "#explanation:not([hidden]) h2"),
    "question": ("now", "#brokers button", _ASK, _CHOSEN),
    "heat": ("heat", "#view-heat .scale", _CHOOSE, ".chosen a"),
    "bundles": ("heat?broker=broker-0%3A8080", "#view-heat .scale", "", "#heat-cell"),
    "why": ("why/broker/broker-0:8080", ".why-answer .fill", "", ".why-answer h4"),
    "timeline": ("timeline", "#view-timeline tr[tabindex]", "", ".told"),
    "find": ("find/t/n/a-topic", "#view-find tbody tr", "", "#view-find article"),
    "find a broker": ("find/broker-0:8080", "#view-find .links", "", "#view-find a"),
    "what if": ("whatif", "#view-whatif button", _CLICK.format("#view-whatif button"),
                "#view-whatif .pairs"),
    "plans": ("plans", "#view-plans a", _CLICK.format("#view-plans a"), ".steps li"),
}  # fmt: skip


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupService]:
    """Over a hot cluster whose plan waits."""
    world = hot_world("cluster.approval=ask")
    world.run(120_000, step_ms=2_000)
    with serving(written(world, tmp_path_factory.mktemp("hot"))) as running:
        yield running


@pytest.mark.parametrize("view", list(_VIEWS))
def test_view_has_no_barrier(
    service: LookupService, hot: LookupService, browser: Browser, tmp_path: Path, view: str
) -> None:
    address, drawn, act, acted = _VIEWS[view]
    url = f"http://127.0.0.1:{(hot if view == 'plans' else service).port}/"
    browser.sign_in(url, "admin")
    browser.open(url)
    browser.wait("document.querySelector('#brokers tr')")  # what was asked without a token
    browser.complaints.clear()
    browser.open(f"{url}?{view}#/{address}")
    browser.wait(f"document.querySelector('{drawn}')")
    browser.value(act)
    browser.wait(f"document.querySelector('{acted}')")
    for scheme, width in _SCREENS:
        browser.look(scheme, width, 900)
        browser.shoot(tmp_path / f"{scheme}-{width}.png")
        assert barriers(browser) == [], (scheme, width)
        assert browser.value(_FITS), (scheme, width)
        assert browser.value(_UNREADABLE) == [], width
    assert browser.complaints == []


def test_page_shows_each_batch_and_says_so_while_its_service_is_away(
    browser: Browser, tmp_path: Path
) -> None:
    world = running(2, 4)
    ages = "document.querySelector('#ages').textContent"
    rows = "document.querySelectorAll('#brokers tr').length"
    phase = "document.querySelector('#phase').textContent"
    with serving(written(world, tmp_path)) as service:
        writer = TablesWriter(tmp_path / "tables", "q1", first_batch=2)
        browser.sign_in(f"http://127.0.0.1:{service.port}/alive", "operator")
        browser.open(f"http://127.0.0.1:{service.port}/")
        browser.wait(f"/table version \\d+/.test({ages})")
        browser.complaints.clear()  # the first page has no icon
        before = int(browser.value(f"/table version (\\d+)/.exec({ages})[1]"))
        for version in range(50, 53):
            row = Row(bundle=min(owners(world)), version=version, destination="broker-1:8080")
            writer.batch([row])
            browser.wait(f"/table version (\\d+)/.exec({ages})[1] > {before + version - 50}")
        assert browser.complaints == []
        browser.wait(f"{rows} === 2")
    browser.wait(f"{phase}.includes('what is below is old')")
    assert browser.value(rows) == 2
    asked = "import('/page/actions.js').then((the) => the.command('pause', {}, 'one'))"
    browser.value(f"{asked}.then((told) => {{ window.told = told.text; }})")
    browser.wait("window.told")
    assert "whether it was done is not known" in browser.value("window.told")
    with serving(tmp_path / "tables", "--port", str(service.port)):
        browser.wait(f"!{phase}.includes('what is below is old') && {rows} === 2")
