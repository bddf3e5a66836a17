"""What stands at the top of the project, so that what a run leaves there is no part of it."""

import subprocess

import pytest

from tests.tidy.source_files import ROOT

FOLDERS = {"jobs", "lbcore", "conf", "tests", "dashboards", "docs"}
FILES = {"pyproject.toml", "README.md", "docker-compose.yml", "Makefile", "CHANGELOG.md", "LICENSE"}


def test_nothing_else_stands_at_the_top() -> None:
    """Neither committed nor left there by a test; locks and dot-files aside."""
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name.split("/")[0] for name in listed.split("\0") if name}
    others = {name for name in names if not name.startswith(".") and not name.endswith(".lock")}
    assert others == FOLDERS | FILES
