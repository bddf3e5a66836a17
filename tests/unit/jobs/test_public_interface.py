"""What `import ballast` gives: the names of docs/api.md, and no other."""

import re

import ballast

from jobs import VERSION
from tests.tidy.source_files import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_public_names_are_those_of_the_page() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    named = [line.split("|")[1] for line in table.splitlines()]
    assert sorted(re.findall(r"`(\w+)`", " ".join(named))) == sorted(ballast.__all__)


def test_public_names_exist_and_the_version_is_the_programs() -> None:
    assert all(hasattr(ballast, name) for name in ballast.__all__)
    assert ballast.__version__ == VERSION
