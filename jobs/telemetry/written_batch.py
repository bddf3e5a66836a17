"""Report of the sink on a written batch, for metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """One batch. reports: a cluster each; tables: name → rows written; versions: after that.

    parts_ms: operators_ms, delta_ms and kafka_ms.
    """

    batch_id: int
    reports: Sequence[Mapping[str, Any]]
    tables: Mapping[str, pa.Table]
    versions: Mapping[str, int]
    parts_ms: Mapping[str, int]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of what was written to a table, row by row."""
        found = self.tables.get(table)
        if found is None or not len(found):
            return []
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))
