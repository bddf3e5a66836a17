"""Imports: lbcore stays pure, no module is dead, and production reaches each public function."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from jobs.verbs import VERBS
from tests.tidy.source_files import (
    PACKAGES,
    ROOT,
    imported_modules,
    module_of,
    name_of,
    of_each,
    parsed,
    python_files,
)

_CORE = python_files("lbcore")
_ALLOWED = {"lbcore", "numpy", "mmh3", "re2"}
_IMPURE = {
    "asyncio", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "shutil", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
_SEEDED = ("lbcore/sim/", "random")
_IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "__import__"}
_IMPURE_METHODS = {("datetime", "now"), ("datetime", "utcnow"), ("date", "today"), ("np", "random")}


@of_each(_CORE)
def test_import_of_lbcore_is_pure(path: Path) -> None:
    wrong = []
    for line, name in imported_modules(path):
        top = name.split(".")[0]
        is_known = top in sys.stdlib_module_names or top in _ALLOWED
        is_seeded = name_of(path).startswith(_SEEDED[0]) and top == _SEEDED[1]
        if not is_known or (top in _IMPURE and not is_seeded):
            wrong.append(f"line {line}: {name}")
    assert wrong == []


@of_each(_CORE)
def test_call_in_lbcore_reaches_no_outside_world(path: Path) -> None:
    def is_impure(owner: str, name: str) -> bool:
        is_seeded = name_of(path).startswith(_SEEDED[0]) and name == _SEEDED[1]
        return (owner, name) in _IMPURE_METHODS and not is_seeded

    wrong = []
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _IMPURE_CALLS:
                wrong.append(f"line {node.lineno}: {name}()")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if is_impure(owner, name):
                wrong.append(f"line {node.lineno}: {owner}.{name}")
    assert wrong == []


_CLOCKS = "jobs/adapters/processes/clocks.py"


@of_each(python_files("jobs"))
def test_wall_clock_in_milliseconds_is_read_by_one_function(path: Path) -> None:
    wrong = []
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Name(id="time_ns") | ast.Attribute(attr="time_ns"):
                wrong.append(f"line {node.lineno}: time_ns")
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="time")), op=ast.Mult()):
                wrong.append(f"line {node.lineno}: time() in other units")
    assert wrong == [] or name_of(path) == _CLOCKS, "call `wall_ms`"


def _is_started_by_itself(path: Path) -> bool:
    return 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def test_module_of_the_product_is_used() -> None:
    """Functions that are reached by their names alone hide a module that nothing imports."""
    product = python_files(*PACKAGES)
    used = {name for path in product for _, name in imported_modules(path)}
    used |= {verb.module for verb in VERBS.values()}
    dead = [
        name_of(path)
        for path in product
        if path.name != "__init__.py"
        and module_of(path) not in used
        and not _is_started_by_itself(path)
    ]
    assert dead == []


def test_verb_of_the_table_has_its_module() -> None:
    absent = [
        verb.module
        for verb in VERBS.values()
        if not (ROOT / (verb.module.replace(".", "/") + ".py")).exists()
    ]
    assert absent == []


def test_module_of_a_verb_is_in_the_table() -> None:
    modules = {module_of(path) for path in python_files("jobs/verbs")} - {"jobs.verbs"}
    assert modules - {verb.module for verb in VERBS.values()} == set()


_INTERFACE = ("agent.md", "api.md", "client.md", "strategies.md")
"""Pages of what programs of others may call; what they write as code is reached from there."""
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_FOR_OTHERS: dict[str, str] = {
    "timeout_keep_alive_handler": "uvicorn's protocol, which ours is made of, sets a timer for it",
}
"""Function → who calls it, where neither the product nor a page says so."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_public_function_is_reached_by_the_product() -> None:
    reached = _reached_names()
    dead = [
        f"{name_of(path)}:{one.lineno} {one.name}"
        for path in python_files(*PACKAGES)
        for one, _ in _definitions(parsed(path))
        if not one.name.startswith("_") and one.name not in reached | _FOR_OTHERS.keys()
    ]
    assert dead == [], "only tests call these: they belong to tests, or nowhere"


def test_exception_of_reach_is_still_needed() -> None:
    assert {name for name in _FOR_OTHERS if name in _reached_names()} == set()


def _reached_names() -> set[str]:
    """The names that reached code says, until no more come to them."""
    said_by: dict[str, set[str]] = defaultdict(set)
    waiting = set(_names_of_pages())
    for path in python_files(*PACKAGES):
        tree = parsed(path)
        foreign = _foreign_names(tree)
        waiting |= _said(tree)
        for one, bases in _definitions(tree):
            if bases & foreign or one.name.startswith("__"):
                waiting |= {one.name}  # whoever knows the base calls it
            said_by[one.name] |= _said(one)
    reached: set[str] = set()
    while waiting:
        reached |= waiting
        waiting = set().union(*(said_by[name] for name in waiting)) - reached
    return reached


def _definitions(tree: ast.Module) -> Iterator[tuple[Definition, set[str]]]:
    """Functions, classes and their methods, each with the bases of the class that it is in."""
    for one in tree.body:
        if isinstance(one, Definition):
            yield one, set()
        if isinstance(one, ast.ClassDef):
            bases = {name for base in one.bases for name in _names(base)}
            yield from ((each, bases) for each in one.body if isinstance(each, Definition))


def _said(outer: ast.Module | Definition) -> set[str]:
    """The names that it says, but for what definitions in a module or a class say themselves."""
    is_split = not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
    found: set[str] = set()
    for node in ast.iter_child_nodes(outer):
        if not (is_split and isinstance(node, Definition)):
            found |= set(_names(node))
    return found


def _names(node: ast.AST) -> Iterator[str]:
    """Names, attributes, and texts that may be names: some are looked up by them."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(text)):
                yield from re.findall(r"\w+", text) if len(text.split()) == 1 else ()


def _foreign_names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {(one.asname or one.name).split(".")[0] for one in names}
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] not in PACKAGES:
                    found |= {one.asname or one.name for one in names}
    return found


def _names_of_pages() -> Iterator[str]:
    for page in _INTERFACE:
        for code in _CODE.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
            yield from re.findall(r"\w+", code)
