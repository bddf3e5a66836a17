"""A table's log is read by two modules and its rows by another: every reader goes through these."""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.source_files import name_of, parsed, python_files

LOG = "jobs/adapters/delta/table_log.py"
TAIL, SCAN = "jobs/adapters/delta/table_tail.py", "jobs/adapters/delta/table_scan.py"
_OF_LOGS = {"_delta_log", "_last_checkpoint", "history()", "is_deltatable", "parse_commit"}
_OF_ROWS = {
    "DeltaTable", "ParquetDataset", "ParquetFile", "QueryBuilder", "get_add_actions", "load_cdf",
    "parquet_scan", "read_parquet", "read_table", "to_pandas", "to_pyarrow_dataset",
    "to_pyarrow_table",
}  # fmt: skip
_EXCEPTIONS = {
    (LOG, "DeltaTable"): "opens for the scan, without what is damaged",
    (LOG, "ParquetFile"): "looks for the file that is damaged",
    (LOG, "get_add_actions"): "looks for the file that is damaged",
    ("jobs/adapters/delta/recordings.py", "read_table"): "files of load that users bring",
    ("jobs/operating/trace_files.py", "read_table"): "files of traces that users bring",
    (
        "jobs/adapters/delta/table_upkeep.py",
        "history()",
    ): "of rows past their days: a part of upkeep",
    ("jobs/verbs/assess.py", "history()"): "what was seen of a Pulsar cluster",
}
"""(file, word) → what it reads instead."""


def reads(tree: ast.AST) -> Iterator[str]:
    """The ways in which a module reads logs or rows by itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text in _OF_LOGS:
                yield text
            case ast.Call(func=ast.Name(id=name)) if name in _OF_LOGS | _OF_ROWS:
                yield name
            case ast.Call(func=ast.Attribute(attr="format"), args=[ast.Constant(value="delta")]):
                yield 'format("delta")'
            case ast.Call(func=ast.Attribute(attr="history")):
                yield "history()"
            case ast.Attribute(attr=name) if name in _OF_LOGS | _OF_ROWS | {"scan"}:
                yield name


def found() -> set[tuple[str, str]]:
    """Every way in every module of jobs."""
    paths = python_files("jobs")
    return {(name_of(path), word) for path in paths for word in reads(parsed(path))}


def test_nothing_but_log_and_tail_reads_logs_and_nothing_but_the_scan_reads_rows() -> None:
    rooms = {(file, word) for file in (LOG, TAIL) for word in _OF_LOGS} | {
        (SCAN, word) for word in {*_OF_ROWS, "scan"}
    }
    assert found() - rooms == set(_EXCEPTIONS)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("pq.read_table(place / name)", "read_table"),
        ("DeltaTable(str(path))", "DeltaTable"),
        ("handle.scan(columns=wanted).read_all()", "scan"),
        ("(path / '_delta_log').is_dir()", "_delta_log"),
        ("readers = {'.parquet': pyarrow.parquet.read_table}", "read_table"),
        ("table.history(20)", "history()"),
        ("spark.read.format('delta').load(path)", 'format("delta")'),
    ],
)
def test_reading_in_a_way_of_its_own_is_found(line: str, word: str) -> None:
    assert list(reads(ast.parse(line))) == [word]
