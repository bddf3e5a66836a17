"""The Python snippets of docs/read-tables.md run against real tables."""

import re
from pathlib import Path

import pytest

from tests.support.tables.lookup_tables import TablesWriter, owned

PAGE = Path(__file__).resolve().parents[3] / "docs" / "read-tables.md"


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_snippet_for_pandas_counts_the_moves_by_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = TablesWriter(tmp_path)
    written.batch(owned("demo/one", 4, ("b1", "b2")))
    exec(snippets()[0], {"TABLES": str(tmp_path)})  # noqa: S102 (the project's own page)
    printed = capsys.readouterr().out
    assert printed.startswith("cause")
    assert printed.split()[2] == "4"
