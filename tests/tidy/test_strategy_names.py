"""No branch asks for a strategy by its name: what differs stands in the strategies' records."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lbcore.plan.registry import PLACEMENT_STRATEGIES, SHEDDING_STRATEGIES
from tests.tidy.source_files import ROOT, name_of, of_each, parsed, python_files

_NAMES = {*SHEDDING_STRATEGIES, *PLACEMENT_STRATEGIES}
_CONSTANTS = {name.upper() for name in _NAMES}
_TABLES = {
    "lbcore/config/strategies.py",
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


@pytest.mark.parametrize(
    "code",
    [
        'if config.shedding.strategy == "uniform": pass',
        "if draft.strategy == BALLAST: pass",
        'if strategy in ("avg", "uniform"): pass',
        "kept = placement_name(config) != strategies.ROUND_ROBIN",
        'run = {"avg": shed_avg, "threshold": shed_threshold}[name]',
        'match strategy:\n    case "avg":\n        pass',
    ],
)
def test_branch_on_a_name_is_found(code: str) -> None:
    assert list(_named(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code", ['kind in ("transfer", "unload")', 'row["number"] >= level["threshold"]', 'x = "avg"']
)
def test_other_words_that_are_names_are_no_branch(code: str) -> None:
    assert list(_named(ast.parse(code))) == []


def test_tables_of_pulsar_are_there() -> None:
    assert [path for path in _TABLES if not (ROOT / path).exists()] == []
