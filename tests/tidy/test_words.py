"""What the files say: docstrings, reasons, names of tests; and what they must not say."""

import ast
import re
from pathlib import Path

from tests.tidy.source_files import (
    PACKAGES,
    functions,
    name_of,
    of_each,
    parsed,
    python_files,
    text_files,
)

_TESTS = [path for path in python_files("tests") if path.name.startswith("test_")]
_HERE = Path(__file__)
_FOREIGN = (
    r"(?<![\w./])/(?:work|root|home/\w+|Users)/",  # a folder of somebody's machine
    r"pypi\.org",
    r"pythonhosted",
    r"repo1?\.maven\.",
    r"maven\.org",
    r"repository\.apache\.org",
    r"crates\.io",
    r"registry\.npm",
    r"proxy\.golang",
)


@of_each(python_files(*PACKAGES, "tests"))
def test_suppression_of_a_rule_gives_its_reason(path: Path) -> None:
    bare = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"#\s*noqa(?!: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*[ (-]+[^\s(-])", line)
    ]
    if path != _HERE:
        assert bare == []


@of_each(_TESTS)
def test_names_of_tests_are_claims(path: Path) -> None:
    short = [
        function.name
        for function in functions(path)
        if function.name.startswith("test_") and len(function.name.split("_")) < 4
    ]
    assert short == []


@of_each(_TESTS)
def test_module_of_tests_checks_something(path: Path) -> None:
    tests = [one for one in functions(path) if one.name.startswith("test_")]
    assert tests, "a test file without a test"


def test_files_of_the_project_name_no_machine_and_no_registry() -> None:
    found = []
    for path in text_files():
        if path == _HERE:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            f"{name_of(path)}: {match}" for rule in _FOREIGN for match in re.findall(rule, text)
        ]
    assert found == []


def test_class_of_the_product_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in python_files(*PACKAGES):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{name_of(path)}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, "one of each must get another name"
