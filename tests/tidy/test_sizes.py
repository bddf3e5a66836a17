"""Small enough to be read at once: lines, functions, parameters, nesting, modules."""

import ast
import re
from pathlib import Path

from tests.tidy.source_files import Function, functions, of_each, python_files

LINE_MAX = 100
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
NESTING_MAX = 4
MODULE_LINES_MAX = 700

_ALL = python_files("lbcore", "jobs", "tests")
_SUPPRESSION = re.compile(r"  # (?:noqa|type: ignore).*")
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


def _parameters(function: Function) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([one for one in named if one.arg not in ("self", "cls")])


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
    code = [_SUPPRESSION.sub("", line) for line in lines]
    long = [n for n, line in enumerate(code, start=1) if len(line) > LINE_MAX]
    assert long == [], f"these lines have more than {LINE_MAX} characters"


@of_each(_ALL)
def test_functions_of_any_module_are_short(path: Path) -> None:
    long = [
        f"{function.name}: {length} lines"
        for function in functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


@of_each(python_files("lbcore", "jobs"))
def test_functions_of_the_product_take_few_parameters(path: Path) -> None:
    many = [
        f"{function.name}: {count} parameters"
        for function in functions(path)
        if (count := _parameters(function)) > PARAMETERS_MAX
    ]
    assert many == []


@of_each(python_files("lbcore", "jobs"))
def test_functions_of_the_product_are_flat(path: Path) -> None:
    deep = [
        f"{function.name}: {depth} levels"
        for function in functions(path)
        if (depth := _nesting(function)) > NESTING_MAX
    ]
    assert deep == []
