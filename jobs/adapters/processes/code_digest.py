"""Digest of Python files, by their names and bytes, that identifies code.

The job reports it of `lbcore`, and of the user's own strategies.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path


def code_digest(files: Iterable[tuple[str, Path]]) -> str:
    """sha256, in hexadecimal, of files under the names that tell them apart, in this order."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def python_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every Python file below a folder, under its path from there, in order."""
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), path
