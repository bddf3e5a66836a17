"""Tables and columns that code and documents name are those that are declared.

Every SELECT in jobs, dashboards and documents is planned by the engine over empty tables; of calls
that read a table, its name, its columns and its condition are held against `lbcore.model.tables`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.tables import ensure_tables
from jobs.console import MisuseError
from jobs.sql.engine import SqlEngine
from jobs.sql.queries import QUERIES
from lbcore.model.tables import TABLES
from tests.tidy.source_files import ROOT, name_of, parsed, python_files

COLUMNS = {table.name: {column.name for column in table.columns} for table in TABLES}
CONSTANTS = {table.name.upper(): table.name for table in TABLES}
TABLE_AT = {"rows": 0, "rows_at": 0, "add_row": 0, "open_table": 1, "table_path": 1}
"""Function → where its table's name stands among its arguments."""

AFTER = {"rows": ("columns", "condition")}
"""What follows the table, where it is not named."""

PUT_TOGETHER = {"jobs/operating/answers.py"}
"""Whose SELECT is of parts: tests/unit/jobs/test_doctor.py asks it as a whole."""

SELECT = re.compile(r"\s*(SELECT|WITH)\b[^`]*\bFROM\b")
WORDS = {"and", "or", "not", "in", "is", "null", "like", "between", "true", "false", "desc", "asc"}


def literal(node: ast.expr | None) -> str | None:
    """A text as it stands, with 0 where a value goes in; None when it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "0" for part in node.values)
    return None


def table_of(node: ast.expr | None) -> str | None:
    """The table that an argument names: a text, or TABLE.name of a declared one."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return CONSTANTS.get(node.value.id) if node.attr == "name" else None
    return literal(node)


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Where, function and call of everything that reads or writes a table by its name."""
    for path in python_files("jobs", "lbcore"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else None
                called = node.func.id if isinstance(node.func, ast.Name) else called
                if called in TABLE_AT:
                    yield f"{name_of(path)}:{node.lineno}", called, node


def arguments(called: str, node: ast.Call) -> dict[str, ast.expr]:
    """Columns and condition of a call, as far as it has them."""
    given = node.args[TABLE_AT[called] + 1 :]
    found = dict(zip(AFTER.get(called, ()), given, strict=False))
    return found | {word.arg: word.value for word in node.keywords if word.arg}


def columns_in(called: str, node: ast.Call) -> set[str]:
    given = arguments(called, node)
    listed = given.get("columns")
    names = {
        text
        for one in (listed.elts if isinstance(listed, ast.Tuple | ast.List) else ())
        if (text := literal(one)) is not None
    }
    condition = re.sub(r"'[^']*'", "", literal(given.get("condition")) or "")
    return names | (set(re.findall(r"\b[a-z_]+\b", condition.lower())) - WORDS)


def test_calls_name_declared_tables_and_their_columns() -> None:
    named = 0
    for where, called, node in calls():
        at = TABLE_AT[called]
        table = table_of(node.args[at]) if len(node.args) > at else None
        if table is None or SELECT.match(table) or " " in table:
            continue  # a variable, or a whole SELECT
        if called != "add_row" or table in COLUMNS:
            assert table in COLUMNS, f"{where}: there is no table {table!r}"
        named += 1
        wrong = columns_in(called, node) - COLUMNS.get(table, set())
        assert called == "add_row" or not wrong, f"{where}: {table} has no {sorted(wrong)}"
    assert named > 60


def selects() -> Iterator[tuple[str, str]]:
    """Where and text of every SELECT, the ready queries' and the documents' included."""
    yield from ((query.name, query.text) for query in QUERIES)
    for path in python_files("jobs", "dashboards"):
        if name_of(path) not in PUT_TOGETHER and path.parent.name != "sql":
            yield from ((f"{name_of(path)}:{at}", text) for at, text in texts(parsed(path)))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        page = path.read_text(encoding="utf-8")
        quoted = re.findall(r'ballast sql "(SELECT[^"]*)"', page)
        for text in [*re.findall(r"```sql\n(.*?)```", page, re.DOTALL), *quoted]:
            if SELECT.match(text):
                yield name_of(path), text.replace("\\", "")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each SELECT among a module's texts, whole ones alone."""
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in parts:
            text = literal(node)
            if text and SELECT.match(text):
                yield node.lineno, text


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> SqlEngine:
    root: Path = tmp_path_factory.mktemp("tables")
    ensure_tables(root)
    return SqlEngine(root)


def test_every_select_is_understood_over_the_declared_tables(engine: SqlEngine) -> None:
    found = sorted(set(selects()))
    wrong = {where: why for where, text in found if (why := why_not(engine, text))}
    assert not wrong
    assert len(found) > 15


def why_not(engine: SqlEngine, text: str) -> str:
    """Why the engine can't plan a SELECT, "" when it can."""
    try:
        engine.query(text)
    except MisuseError as error:
        return str(error.why)
    return ""
