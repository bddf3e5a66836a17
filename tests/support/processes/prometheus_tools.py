"""Prometheus and promtool for tests; where they can't be had, the test is skipped and says so."""

from pathlib import Path

import pytest

from jobs.adapters.processes.prometheus_tools import have_tool
from jobs.console import CommandError


def tool(name: str) -> Path:
    """The path of `prometheus` or `promtool`; skips the test when it can't be had."""
    try:
        return have_tool(name)
    except CommandError as error:
        pytest.skip(str(error))
