"""The console in a real Chromium while a job of this size is at work: how soon, how large.

Measures each view from a click to what it shows, how long after a batch the page has it, and what
the page holds in memory.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes.browser import Browser, find_browser

FIRST_VIEW = "console: first view (ms)"
LIVE = "console: a batch is shown after (ms, p95)"
HEAP = "console: most memory of the page (MiB)"
TARGETS = {FIRST_VIEW: 1_000, LIVE: 2_000, HEAP: 60}
_VIEWS: Mapping[str, str] = {
    "heat": "document.querySelector('#view-heat canvas, #view-heat svg')",
    "timeline": "document.querySelector('#view-timeline table, #view-timeline svg')",
    "find": "document.querySelector('#view-find form')",
    "plans": "document.querySelector('#view-plans').textContent.length > 20",
}
"""View → what is true when it shows something."""
_BROKERS = "document.querySelectorAll('#brokers tr').length > 0"
_HEAP = "performance.memory.usedJSHeapSize / 1048576"
_LISTEN = """(() => {
  const before = window.fetch;
  window.overviews = [];
  window.fetch = async (...words) => {
    const reply = await before(...words);
    if (String(words[0]).includes("/v1/overview")) {
      const found = await reply.clone().json();
      window.overviews.push([Date.now(), found.status.now_ms]);
    }
    return reply;
  };
})()"""
"""Notes of each overview that the page gets: when, and of which moment it is."""
_TIMES = 8
_A_MINUTE_S = 60.0


def measure_console_of(
    port: int, folder: Path, batches_since: Callable[[float], Sequence[Mapping[str, Any]]]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Figures and, view by view, ms and MiB; nothing where there is no Chromium.

    batches_since: what the job has logged of its batches since a moment in seconds.
    """
    if find_browser() is None:
        return {}, {"console": "no Chromium here"}
    browser = Browser(folder / "profile", "--enable-precise-memory-info")
    try:
        figures, detail = _measured(browser, f"http://127.0.0.1:{port}/")
        lags = _lags(browser, batches_since)
        return {**figures, LIVE: lags[int(0.95 * len(lags))][0]}, {
            "console": {**detail, "a batch is shown after (ms), of them its look took": lags}
        }
    finally:
        browser.close()


def _measured(browser: Browser, url: str) -> tuple[dict[str, float], dict[str, Any]]:
    first = []
    for _ in range(_TIMES):
        browser.open("about:blank")
        began_s = time.monotonic()
        browser.open(url)
        browser.wait(_BROKERS)
        first.append(_ms_since(began_s))
    detail: dict[str, Any] = {"now": {"ms": first, "mib": _heap(browser)}}
    for name, is_shown in _VIEWS.items():
        began_s = time.monotonic()
        browser.value(f"location.hash = '#/{name}'")
        browser.wait(is_shown)
        detail[name] = {"ms": _ms_since(began_s), "mib": _heap(browser)}
    browser.value("location.hash = '#/now'")
    browser.wait(_BROKERS)
    browser.value(_LISTEN)
    time.sleep(_A_MINUTE_S)  # as it stays open, batch by batch
    detail["now, a minute later"] = {"mib": _heap(browser)}
    figures = {
        FIRST_VIEW: sorted(first)[len(first) // 2],
        HEAP: max(one["mib"] for one in detail.values()),
    }
    return figures, detail


def _lags(
    browser: Browser, batches_since: Callable[[float], Sequence[Mapping[str, Any]]]
) -> list[tuple[int, int]]:
    """How many ms lie between a batch and the first overview with it, and its making; sorted.

    A batch that wrote nothing changes nothing that could be shown.
    """
    seen = browser.value("window.overviews")
    begin_ms = seen[0][0]
    batches = batches_since(begin_ms / 1e3)
    ends = [batch["logged_at_ms"] for batch in batches if batch["rows"]]
    shown = [
        [(at_ms - end, at_ms - of_ms) for at_ms, of_ms in seen if of_ms >= end][:1] for end in ends
    ]
    return sorted(lag for found in shown for lag in found)


def _heap(browser: Browser) -> float:
    return round(float(browser.value(_HEAP)), 1)


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1e3)
