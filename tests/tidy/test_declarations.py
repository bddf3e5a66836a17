"""Declarations are used: settings, metrics, strategies, table readers."""

import ast
from collections.abc import Iterator
from pathlib import Path

from lbcore.config.tree import SETTINGS
from lbcore.model.resources import RESOURCES
from lbcore.plan.registry import PLACEMENT_STRATEGIES, SHEDDING_STRATEGIES
from tests.drawn_pages import ALL_METRICS
from tests.tidy.source_files import PACKAGES, ROOT, name_of, of_each, parsed, python_files

READ_BY_NAME = {resource.weight for resource in RESOURCES}
"""The weights, which the declaration of a resource names."""
CHECKED_IN = "lbcore/validation/check.py"
"""Reads settings without obeying them."""


def test_setting_is_read_by_the_product() -> None:
    read = {
        node.attr
        for path in python_files(*PACKAGES)
        if name_of(path) != CHECKED_IN
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert [key for key in SETTINGS if key.rpartition(".")[2] not in read | READ_BY_NAME] == []


WRITERS = (*(ROOT / "jobs" / "telemetry").glob("*.py"), ROOT / "jobs/service/lookup_metrics.py")


def test_metric_that_code_writes_is_declared() -> None:
    written = {
        node.value
        for path in WRITERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.startswith("ballast_") and node.value.isidentifier()
    }
    assert len(written) > 100
    assert {name for name in written if not {name, f"{name}_total"} & set(ALL_METRICS)} == set()


_NAMES = {*SHEDDING_STRATEGIES, *PLACEMENT_STRATEGIES}
_CONSTANTS = {name.upper() for name in _NAMES}
_TABLES = {
    "lbcore/config/placement.py",
    "lbcore/config/pulsar_keys.py",
    "lbcore/validation/pulsar_import.py",
}
"""Pulsar's tables: its classes, and what its managers make of them."""
_SUBJECTS = ("strateg", "shedding", "shedder", "placement", "algorithm")


def _is_name(node: ast.AST) -> bool:
    """Whether it says the name of a strategy, as a text or as its constant."""
    if isinstance(node, ast.Constant):
        return node.value in _NAMES
    return getattr(node, "attr", getattr(node, "id", "")) in _CONSTANTS


def _named(tree: ast.AST) -> Iterator[int]:
    """Lines that compare something with a strategy's name, or choose by a table of names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            said = [part for part in parts if any(_is_name(one) for one in ast.walk(part))]
            about = " ".join(ast.unparse(part) for part in parts if part not in said).lower()
            if said and any(word in about for word in _SUBJECTS):
                yield node.lineno
        elif isinstance(node, ast.match_case):
            if any(_is_name(one) for one in ast.walk(node.pattern)):
                yield node.pattern.lineno
        elif isinstance(node, ast.Dict) and sum(_is_name(key) for key in node.keys if key) > 1:
            yield node.lineno


@of_each(python_files("lbcore", "jobs", "dashboards"))
def test_strategy_is_asked_for_by_its_record(path: Path) -> None:
    if name_of(path) in _TABLES:
        return
    lines = sorted(_named(parsed(path)))
    assert not lines, (
        f"lines {lines} compare with a strategy's name or have two as keys: what differs stands "
        "in the strategies' records; give a key another name if it is none"
    )


def test_tables_of_pulsar_are_there() -> None:
    assert [path for path in _TABLES if not (ROOT / path).exists()] == []


LOG = "jobs/adapters/delta/table_log.py"
SCAN = "jobs/adapters/delta/table_scan.py"
_OF_LOGS = {"_delta_log", "_last_checkpoint", "history()", "is_deltatable", "parse_commit"}
_OF_ROWS = {
    "DeltaTable", "ParquetDataset", "ParquetFile", "QueryBuilder", "get_add_actions", "load_cdf",
    "parquet_scan", "read_parquet", "read_table", "to_pandas", "to_pyarrow_dataset",
    "to_pyarrow_table",
}  # fmt: skip
_EXCEPTIONS = {
    (LOG, "ParquetFile"): "looks whether a checkpoint is whole",
    ("jobs/adapters/delta/recordings.py", "read_table"): "files of load that users bring",
    ("jobs/verbs/trace.py", "read_table"): "files of traces that users bring",
    (
        "jobs/adapters/delta/table_upkeep.py",
        "history()",
    ): "of rows past their days: a part of upkeep",
    ("jobs/assess/watch.py", "history()"): "what was seen of a Pulsar cluster",
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
    paths = python_files("jobs")
    return {(name_of(path), word) for path in paths for word in reads(parsed(path))}


def test_nothing_but_the_log_reads_logs_and_nothing_but_the_scan_reads_rows() -> None:
    rooms = {(LOG, word) for word in _OF_LOGS} | {
        (SCAN, word) for word in {*_OF_ROWS, "scan", "is_deltatable"}
    }
    assert found() - rooms == set(_EXCEPTIONS)
