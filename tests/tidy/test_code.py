"""Conventions of code: sizes, late binding, signal handlers, the project's top level."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source_files import (
    PACKAGES,
    ROOT,
    functions,
    of_each,
    parsed,
    python_files,
)

FUNCTION_LINES_MAX = 60
NESTING_MAX = 4
MODULE_LINES_MAX = 700
_ALL = python_files("lbcore", "jobs", "tests")
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


def _nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in ast.iter_child_nodes(node):
        is_else_if = isinstance(node, ast.If) and child in node.orelse and len(node.orelse) == 1
        deeper = isinstance(child, _BLOCKS) and not (is_else_if and isinstance(child, ast.If))
        deepest = max(deepest, _nesting(child, depth + deeper))
    return deepest


@of_each(_ALL)
def test_module_of_any_kind_is_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MODULE_LINES_MAX, "divide it by subject"


@of_each(_ALL)
def test_functions_of_any_module_are_short(path: Path) -> None:
    long = [
        f"{function.name}: {length} lines"
        for function in functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


@of_each(python_files("lbcore", "jobs"))
def test_functions_of_the_product_are_flat(path: Path) -> None:
    deep = [
        f"{function.name}: {depth} levels"
        for function in functions(path)
        if (depth := _nesting(function)) > NESTING_MAX
    ]
    assert deep == []


_EATERS = {"all", "any", "dict", "frozenset", "join", "list", "max", "min", "next", "set"}
_EATERS |= {"sorted", "sum", "tuple"}
_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _names(part: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}


def _late(node: ast.AST, outer: frozenset[str], *, is_eaten: bool) -> Iterator[tuple[int, str]]:
    """Lines of generators that are handed on and read a variable of a comprehension around them."""
    inner = outer
    if isinstance(node, _LOOPS):
        own = {name for part in node.generators for name in _names(part.target)}
        first, *rest = node.generators
        if isinstance(node, ast.GeneratorExp) and not is_eaten:
            parts = [
                node.elt,
                *first.ifs,
                *(one for part in rest for one in (part.iter, *part.ifs)),
            ]
            read = {name for part in parts for name in _names(part)}
            yield from ((node.lineno, name) for name in sorted((read - own) & outer))
        inner = outer | own
    name = ""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    eats = name in _EATERS or isinstance(node, ast.Starred)
    for child in ast.iter_child_nodes(node):
        yield from _late(child, inner, is_eaten=eats)


@of_each(python_files("jobs", "lbcore"))
def test_no_generator_outlives_the_variable_that_it_reads(path: Path) -> None:
    assert list(_late(parsed(path), frozenset(), is_eaten=False)) == []


HANDLES = {
    "jobs/adapters/processes/signals.py": "hears in a thread",
    "jobs/adapters/processes/child_process.py": "reads the wake-up pipe; imports nothing of ours",
    "jobs/operating/simulations.py": "ignores, in a process of a pool",
    "jobs/run_fleet.py": "ends the process",
    "jobs/serve_lookup.py": "uvicorn's own, which writes fields",
    "jobs/service/v1/reading.py": "ignores",
}
HANDLING = {
    path.relative_to(ROOT).as_posix()
    for path in python_files(*PACKAGES)
    if "signal.signal(" in path.read_text()
}


@pytest.mark.parametrize("module", sorted(HANDLING | HANDLES.keys()))
def test_handlers_take_no_lock(module: str) -> None:
    assert module in HANDLES, "use jobs.adapters.processes.signals.on_signals"
    assert module in HANDLING, "strike it from HANDLES"


def test_what_is_frozen_is_waited_for() -> None:
    stops = "signal.SIG" + "STOP"
    found = {
        path.relative_to(ROOT).as_posix()
        for path in python_files(*PACKAGES, "tests")
        if stops in path.read_text()
    }
    assert found == {"tests/support/processes/frozen.py"}, "use freeze, which waits for it"


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
