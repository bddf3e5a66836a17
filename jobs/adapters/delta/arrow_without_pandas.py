"""Arrow without pandas, for processes whose start and memory count.

Decides that pyarrow finds no pandas. pyarrow imports it, where there is one, at the first value of
Python's that it is given, to ask whether that is one of pandas' own: 45 MiB and 0.24 s of CPU in a
process that has no use for it. It looks once, so that others may import pandas afterwards. Used by
the lookup service and by the processes that read for it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """As if it were not installed; others are found by others."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def block_pandas() -> None:
    """Hide pandas from pyarrow.

    Call it before any thread may import something.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
