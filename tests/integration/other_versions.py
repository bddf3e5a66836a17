"""Other versions of this project, made of its own source: one before, the next, and a mended one.

The source is copied and changed in a few places, as a version after this one would be; whatever
is looked for and not found fails, so that a copy is never the same by mistake.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.stack import ROOT

COLUMN = "note"
"""The column that the next version has in the table `namespaces`; of new rows it is NOTED."""
NOTED = "by the next version"

_NEW_COLUMN = f"""
from dataclasses import replace

from lbcore.model.tables import Column

_NOTE = Column(name="{COLUMN}", type="string", doc="of the next version", is_nullable=True)
NAMESPACES = replace(NAMESPACES, columns=(*NAMESPACES.columns, _NOTE))

TABLES = ("""


def make_next_version(folder: Path) -> Path:
    """Messages and the balancer's state have a schema more, and a table has a new column."""
    root = _copy(folder)
    _change(root / "lbcore/wire/fields.py", r"(?m)^SCHEMA = (\d+)$", _one_more("SCHEMA"))
    balancer = root / "lbcore/balancer/balancer.py"
    _change(balancer, r"(?m)^STATE_SCHEMA = (\d+)$", _one_more("STATE_SCHEMA"))
    _change(root / "lbcore/model/tables.py", r"\nTABLES = \(", lambda _: _NEW_COLUMN)
    written = r'("properties": to_json\(entry.properties\),)(\s+\})'
    _change(
        root / "lbcore/balancer/book.py",
        written,
        lambda found: f'{found[1]} "{COLUMN}": "{NOTED}",{found[2]}',
    )
    return root


def make_version_before(folder: Path) -> Path:
    """In its checkpoints every chunk is an entry of its own, which the index says."""
    root = _copy(folder)
    spark = root / "jobs/adapters/spark"
    _change(spark / "spark_machine.py", r"(?m)^_SMALL_BYTES = .+$", lambda _: "_SMALL_BYTES = -1")
    return root


def make_mended_version(folder: Path) -> Path:
    """Nothing is different but the digest of its code."""
    root = _copy(folder)
    with (root / "lbcore/balancer/balancer.py").open("a") as source:
        source.write("\n# mended\n")
    return root


def digest_of(root: Path) -> str:
    """What the job of this version says that its code is."""
    asked = "from jobs.adapters.spark.checkpoint import code_version; print(code_version())"
    command = [*in_folder(root), "-c", asked]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def in_folder(root: Path) -> tuple[str, ...]:
    """A command line that begins Python in the folder of a version.

    Spark's workers look into the working folder before anything that PYTHONPATH names.
    """
    return ("sh", "-c", 'cd "$0" && exec "$@"', str(root), sys.executable)


def _copy(folder: Path) -> Path:
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("lbcore", "jobs", "conf"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    tests = folder / "tests/integration"
    tests.mkdir(parents=True)
    for name in ("__init__.py", "integration/__init__.py", "integration/killable_job.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    return folder


def _one_more(name: str) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{name} = {int(found[1]) + 1}"


def _change(path: Path, pattern: str, to: Callable[[re.Match[str]], str]) -> None:
    changed, times = re.subn(pattern, to, path.read_text())
    assert times == 1, (path, pattern, times)
    path.write_text(changed)
