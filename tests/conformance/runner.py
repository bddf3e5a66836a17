"""Runs conformance cases through lbcore's public functions and says which of them differ.

A case is one JSON object: `id`, `fn`, inputs, `expected`. One module a family knows how the
inputs become calls of lbcore; it has `HANDLERS: fn -> callable(case) -> answer`. A handler raises
JavaError(name) where Pulsar's class throws; the answer is then {"error": name}. A case is of the
release that its `rules` name, else of 4.2 in a folder whose name begins with it, else of 4.0.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lbcore.config.shedding import RULES_4_0, RULES_4_2
from tests.conformance.compare import first_difference

Case = dict[str, Any]
Handler = Callable[[Case], Any]

FAMILIES = {
    "shed": ("shed",),
    "models": (
        "broker_load",
        "local_usage",
        "time_average",
        "time_average_broker",
        "compare_stats",
        "topk",
    ),
    "place": ("place", "ext_place"),
    "transfer": ("transfer",),
    "bundles": ("hash", "even_bundles", "find_bundle", "bundle"),
    "split": ("split_range", "split_algo", "ext_split", "mod_split"),
    "state": ("resolve", "transition", "state_data"),
}
FAMILY_OF = {fn: family for family, fns in FAMILIES.items() for fn in fns}


class JavaError(Exception):
    """Pulsar's class throws here; the text is the simple name of the exception's class."""


class UnusableCaseError(Exception):
    """A file or a case that the runner can't run; the text says which and why."""


def handler(fn: str) -> Handler:
    """The handler of a function; raises UnusableCaseError for one that no family has."""
    family = FAMILY_OF.get(fn)
    if family is None:
        known = ", ".join(sorted(FAMILY_OF))
        raise UnusableCaseError(f"unknown fn {fn!r}; known are {known}")
    name = f"tests.conformance.{family}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UnusableCaseError(f"fn {fn!r} needs the module {name}, which is missing") from error
    found: Handler = module.HANDLERS[fn]
    return found


def rules_of(path: Path) -> str:
    """Whose answers a file has, by its folder."""
    return RULES_4_2 if path.resolve().parent.name.startswith(RULES_4_2) else RULES_4_0


def read_cases(path: Path, rules: str = "") -> Iterator[Case]:
    """The cases of one file, a JSON object a line; empty lines are skipped.

    rules: whose answers they are, "" = by the folder.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnusableCaseError(f"can't read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield {"rules": rules or rules_of(path), **json.loads(line)}
        except json.JSONDecodeError as error:
            raise UnusableCaseError(f"{path}:{number} is not JSON: {error}") from error


def difference(case: Case) -> str | None:
    """Where lbcore's answer to a case first differs from the expected one; None when equal."""
    run = handler(case["fn"])
    try:
        answer = run(case)
    except JavaError as error:
        answer = {"error": str(error)}
    return first_difference(case["expected"], answer)


def _failure(case: Case) -> str | None:
    try:
        return difference(case)
    except UnusableCaseError:
        raise
    except Exception:  # noqa: BLE001 a case that raises has failed, and the others still run
        return "raised\n" + traceback.format_exc()


def main(arguments: Sequence[str]) -> int:
    """Run the cases of the named files, print failures and a count; the process's exit code."""
    rules, files = "", list(arguments)
    if files[:1] == ["--rules"]:
        rules, files = "".join(files[1:2]), files[2:]
    if not files or rules not in ("", RULES_4_0, RULES_4_2):
        sys.stderr.write("usage: python -m tests.conformance [--rules 4.0|4.2] FILE.jsonl ...\n")
        return 2
    passed = failed = 0
    try:
        for path in files:
            for case in read_cases(Path(path), rules):
                failure = _failure(case)
                if failure is None:
                    passed += 1
                    continue
                failed += 1
                sys.stdout.write(f"FAIL {case['id']} ({case['fn']}): {failure}\n")
    except UnusableCaseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0
