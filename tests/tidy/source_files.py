"""What the house rules look at: the project's own text files and its parsed modules."""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("lbcore", "jobs")
FOLDERS = (*PACKAGES, "tests", "conf", "dashboards", "docs", ".ci")
TOP_FILES = ("*.md", "*.toml", "*.lock", "*.yml", "Makefile")
TEXT_SUFFIXES = {
    ".py", ".md", ".toml", ".lock", ".yml", ".yaml", ".json", ".jsonl", ".txt", ".properties", "",
}  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


def text_files() -> Iterator[Path]:
    for pattern in TOP_FILES:
        yield from sorted(ROOT.glob(pattern))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
                yield path


def python_files(*folders: str) -> list[Path]:
    """The Python files under these top folders, sorted."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, Function):
            yield node


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import; `from a import b` gives both a and a.b."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def of_each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """A rule of one file as a test of them all, which says of each what is wrong."""

    def decorate(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            found = {name_of(path): _broken(rule, path) for path in paths}
            broken = [f"{name}: {what}" for name, what in found.items() if what]
            assert paths
            assert not broken, "\n".join(broken)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return decorate


def _broken(rule: Callable[[Path], None], path: Path) -> str:
    try:
        rule(path)
    except AssertionError as error:
        return str(error) or "does not hold"
    return ""
