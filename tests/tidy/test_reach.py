"""What production runs: a public function that only tests reach is no part of the product.

It goes by names: a function is reached when what is reached says its name, whatever else has that
name. So nothing that runs is called dead, and what only dead functions call falls with them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.tidy.source_files import PACKAGES, ROOT, name_of, parsed, python_files

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
    """What a module imports from elsewhere."""
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
