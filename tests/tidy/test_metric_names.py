"""The metrics' names: what code writes is what the declarations, and so the documents, have."""

import ast

from tests.drawn_pages import ALL_METRICS
from tests.tidy.source_files import ROOT

WRITERS = (*(ROOT / "jobs" / "telemetry").glob("*.py"), ROOT / "jobs/service/lookup_metrics.py")


def test_metric_that_code_writes_is_declared() -> None:
    written = {
        node.value
        for path in WRITERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.startswith("ballast_") and node.value.isidentifier()
    }
    assert len(written) > 100
    assert {name for name in written if not {name, f"{name}_total"} & set(ALL_METRICS)} == set()
