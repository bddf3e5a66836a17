"""Who imports whom: lbcore stays pure, and no module is dead."""

import ast
import sys
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


_FOR_OTHER_PROGRAMS = {
    "lbcore.wire.pulsar": "reads real Pulsar brokers' reports; whoever has them calls it",
}


def _is_started_by_itself(path: Path) -> bool:
    return 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def test_module_of_the_product_is_used() -> None:
    product = python_files(*PACKAGES)
    used = {name for path in product for _, name in imported_modules(path)}
    used |= {verb.module for verb in VERBS.values()}
    dead = [
        name_of(path)
        for path in product
        if path.name != "__init__.py"
        and module_of(path) not in used
        and module_of(path) not in _FOR_OTHER_PROGRAMS
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
