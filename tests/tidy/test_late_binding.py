"""No generator outlives the loop whose variable it reads: it would see the last value each time."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source_files import of_each, parsed, python_files

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


def test_generator_that_is_handed_on_with_a_loops_variable_is_seen() -> None:
    wrong = "{d: Fields((n, stats(d)) for n in found[d]) for d in domains}"
    right = "{d: tuple((n, stats(d)) for n in found[d]) for d in domains}"
    assert list(_late(ast.parse(wrong), frozenset(), is_eaten=False)) == [(1, "d")]
    assert list(_late(ast.parse(right), frozenset(), is_eaten=False)) == []


@of_each(python_files("jobs", "lbcore"))
def test_no_generator_outlives_the_variable_that_it_reads(path: Path) -> None:
    assert list(_late(parsed(path), frozenset(), is_eaten=False)) == []
