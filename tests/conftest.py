"""Options of the whole test run.

Properties are tried with the same examples in each run, so that a run says something about the
change and not about luck; `HYPOTHESIS_PROFILE=search make test` draws new ones.
"""

import logging
import os
import signal
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# a thread that outlives its test, as one does that never returns, may log when pytest has closed
# what it logged to: no news of this run
logging.raiseExceptions = False

# a shell's background job ignores Ctrl-C, and so would every process that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)

_QUICK_EXAMPLES, _USUAL_EXAMPLES = 20, 40
_SETTINGS = "_hypothesis_internal_use_settings"  # where @settings leaves them; nothing public has


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: golden files become what the code answers now; review them as a diff."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden files")
    parser.addoption("--quick", action="store_true", help="few examples for each property")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """At most 20 examples a property with `--quick`, 40 without long tests; else all of them."""
    is_quick = config.getoption("--quick")
    if is_quick or config.option.markexpr == "not long":
        for item in items:
            _take_fewer_examples(item, _QUICK_EXAMPLES if is_quick else _USUAL_EXAMPLES)


def _take_fewer_examples(item: pytest.Item, most: int) -> None:
    test = getattr(item, "obj", None)
    chosen = getattr(test, _SETTINGS, None)
    if is_hypothesis_test(test) and isinstance(chosen, settings):
        fewer = min(chosen.max_examples, most)
        setattr(getattr(test, "__func__", test), _SETTINGS, settings(chosen, max_examples=fewer))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    """Compare a text with a golden file beside the test."""
    folder = Path(request.path).parent / Path(request.path).stem.removeprefix("test_")
    return Golden(folder, is_rewriting=request.config.getoption("--rewrite"))


class Golden:
    """A folder of golden texts."""

    def __init__(self, folder: Path, *, is_rewriting: bool) -> None:
        self._folder = folder
        self._is_rewriting = is_rewriting

    def check(self, name: str, text: str) -> None:
        """The file of this name holds the text; with --rewrite it is made to."""
        path = self._folder / f"{name}.txt"
        if self._is_rewriting:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is not recorded yet: run this test with --rewrite, review it"
        assert text == path.read_text(encoding="utf-8"), (
            f"{path} differs: if it shall, run this test with --rewrite and review the diff"
        )
