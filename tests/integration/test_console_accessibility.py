"""Each view of the console as axe-core judges it: light and dark, on a desk and on a phone."""

import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from tests.support.processes.browser import Browser, barriers, running_browser
from tests.support.processes.lookup_service import LookupService
from tests.support.worlds.checked_world import hot_world
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import CLUSTER, World

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
_VIEWS = {  # name: (world, address, when it is drawn, what is done then, when that is drawn)
    "now": ("eventful", "now", "#decisions summary", _CLICK.format("#decisions summary"),
            "#decisions details[open] li"),
    "explanation": ("eventful", "now", "#brokers button", _CLICK.format("#brokers button"),
                    "#explanation:not([hidden]) h2"),
    "question": ("eventful", "now", "#brokers button", _ASK, _CHOSEN),
    "heat": ("eventful", "heat", "#view-heat .scale", _CHOOSE, ".chosen a"),
    "bundles": ("eventful", "heat?broker=broker-0%3A8080", "#view-heat .scale", "", "#heat-cell"),
    "why": ("eventful", "why/broker/broker-0:8080", ".why-answer .fill", "", ".why-answer h4"),
    "timeline": ("eventful", "timeline", "#view-timeline tr[tabindex]", "", ".told"),
    "find": ("eventful", "find/t/n/a-topic", "#view-find tbody tr", "", "#view-find article"),
    "find a broker": ("eventful", "find/broker-0:8080", "#view-find .links", "", "#view-find a"),
    "what if": ("eventful", "whatif", "#view-whatif button", _CLICK.format("#view-whatif button"),
                "#view-whatif .pairs"),
    "plans": ("hot", "plans", "#view-plans a", _CLICK.format("#view-plans a"), ".steps li"),
}  # fmt: skip


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, LookupService]]:
    """A service over a busy cluster, and one over a hot one whose plan waits."""
    hot = hot_world("cluster.approval=ask")
    hot.run(120_000, step_ms=2_000)
    running = {
        name: _serving(world, tmp_path_factory.mktemp(name))
        for name, world in (("eventful", eventful()), ("hot", hot))
    }
    yield running
    for service in running.values():
        service.stop()


def _serving(world: World, folder: Path) -> LookupService:
    write_tables(world, folder / "tables", time.time_ns() // 1_000_000)
    service = LookupService(folder / "tables", "--cluster", CLUSTER)
    service.wait_ready()
    return service


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.mark.parametrize("view", list(_VIEWS))
def test_view_has_no_barrier(
    services: Mapping[str, LookupService], browser: Browser, tmp_path: Path, view: str
) -> None:
    world, address, drawn, act, acted = _VIEWS[view]
    browser.open(f"http://127.0.0.1:{services[world].port}/?{view}#/{address}")
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
