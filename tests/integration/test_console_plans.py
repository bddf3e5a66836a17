"""The plan of a skewed cluster in a real browser: proposed, approved, carried out, undone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stack import Cluster, Stack, running_stack
from tests.support.processes.browser import Browser, barriers, running_browser

CLUSTER = Cluster(
    brokers=3,
    settings=("cluster.approval=ask", "shedding.is_shedding=false", "splitting.enabled=false"),
)
_BUTTON = "document.querySelector('#view-plans button.action[data-key^=\"action {}\"]')"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One broker has every bundle, and cycles may shed from now on, when they are allowed to."""
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        hot = min(set(running.owners().values()))
        for number, (bundle, owner) in enumerate(sorted(running.owners().items())):
            if owner != hot:
                asked = {"bundle": bundle, "destination": hot}
                running.command(f"skew-{number}", "unload_bundle", asked)
        running.wait("the skew", lambda: set(running.owners().values()) == {hot})
        running.wait_settled()
        running.start_lookup()
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.mark.long
def test_plan_of_a_skewed_cluster_is_approved_and_undone_in_the_console(
    stack: Stack, browser: Browser, tmp_path: Path
) -> None:
    before = stack.owners()
    url = f"http://127.0.0.1:{stack.port(stack.folder / 'lookup-port')}/"
    stack.command("shed", "set_config", {"values": {"shedding.is_shedding": True}})
    stack.wait("a plan", lambda: _plan_that_waits(stack))
    name = _plan_that_waits(stack)
    assert stack.owners() == before
    browser.open(f"{url}#/plans/{name}")
    browser.wait(_BUTTON.format("Approve"))
    assert browser.value("document.querySelectorAll('.pairs .track.will').length") > 1
    _answer(browser, "Approve")
    browser.shoot(tmp_path / "approved.png")
    stack.command("rest", "set_config", {"values": {"shedding.is_shedding": False}})
    browser.wait(_BUTTON.format("Undo"))
    stack.wait("the moves", lambda: stack.owners() != before)
    browser.wait("document.querySelector('[aria-label=Plan]').textContent.includes('done by')")
    stack.wait_settled()
    _answer(browser, "Undo")
    browser.wait(f"!location.hash.endsWith('{name}')")
    browser.wait(_BUTTON.format("Approve"))
    _answer(browser, "Approve")
    stack.wait("the way back", lambda: stack.owners() == before)
    assert browser.complaints == []


@pytest.mark.long
def test_broker_is_filled_again_where_its_drain_is_cancelled_in_the_console(
    stack: Stack, browser: Browser, tmp_path: Path
) -> None:
    stack.wait_settled()
    before = stack.owners()
    broker = max(set(before.values()))
    stack.command("empty", "drain_broker", {"broker": broker})
    stack.wait("the drain", lambda: broker not in stack.owners().values())
    stack.wait_settled()
    url = f"http://127.0.0.1:{stack.port(stack.folder / 'lookup-port')}/"
    browser.open(url)
    browser.wait(f"document.querySelector('#brokers [data-key=\"broker {broker}\"]')")
    browser.value(f"document.querySelector('#brokers [data-key=\"broker {broker}\"]').click()")
    _press(browser, '#explanation button[data-key^="action Cancel drain"]')
    _press(browser, "#question-yes:not([disabled])")
    _press(browser, "#question-then button")
    browser.wait("document.querySelectorAll('#question-foresight li').length > 0")
    browser.shoot(tmp_path / "again.png")
    assert barriers(browser) == []
    _press(browser, "#question-yes:not([disabled])")
    browser.wait("location.hash.startsWith('#/plans/')")
    browser.wait("document.querySelector('#question-outcome').textContent.startsWith('Done')")
    browser.press("Escape")
    browser.wait(_BUTTON.format("Approve"))
    _answer(browser, "Approve")
    stack.wait("the broker to be filled again", lambda: stack.owners() == before)
    assert browser.complaints == []


def _press(browser: Browser, selector: str) -> None:
    """Press a button as soon as it is there and in sight."""
    browser.wait(f"document.querySelector('{selector}')?.checkVisibility()")
    browser.value(f"document.querySelector('{selector}').click()")


def _answer(browser: Browser, action: str) -> None:
    """Press the button of an action, read the question, say yes, and close it."""
    browser.value(f"{_BUTTON.format(action)}.click()")
    browser.wait("document.querySelector('#question').open")
    browser.wait("!document.querySelector('#question-yes').disabled")
    assert browser.value("document.querySelector('#question-says').textContent.length") > 20
    browser.value("document.querySelector('#question-yes').click()")
    browser.wait("document.querySelector('#question-outcome').textContent.startsWith('Done')")
    browser.press("Escape")
    browser.wait("!document.querySelector('#question').open")


def _plan_that_waits(stack: Stack) -> Any:
    rows = [row for row in stack.rows("policies") if row["kind"] == "proposal" and row["is_set"]]
    return max((row["name"] for row in rows), default="")
