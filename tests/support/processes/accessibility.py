"""What axe-core finds wrong with a page for people who can't see it well, or use no mouse.

Decides what is told: what axe calls serious or critical. Source: axe-core's rules, as
axe-playwright-python carries them; of that package only the script is used.
"""

from importlib.resources import files

from tests.support.processes.browser import Browser

_AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_FOUND = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
  .filter(({ impact }) => ["serious", "critical"].includes(impact))
  .flatMap(({ id, nodes }) => nodes.map((node) =>
    [id, node.target.join(" "), node.failureSummary].join(": "))))"""


def barriers(page: Browser) -> list[str]:
    """The rules that the page as it is breaks: each with its element and what would mend it."""
    if not page.value("'axe' in window"):
        page.value(_AXE)
    found: list[str] = page.value(_FOUND)
    return found
