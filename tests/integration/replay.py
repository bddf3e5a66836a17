"""What a run's tables must hold, row by row: its recorded batches, run again without Spark."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lbcore.balancer.effects import RESEND, TOMBSTONE, unpack_columns
from lbcore.config.tree import Config
from tests.replay import replay

Row = dict[str, Any]


def replayed_rows(
    checkpoint: Path, bootstrap: str, config: Config
) -> tuple[int, dict[str, list[Row]]]:
    """The last batch that was ended, and what each table must have up to there."""
    expected: dict[str, list[Row]] = defaultdict(list)
    last = -1
    for batch in replay(bootstrap, checkpoint, config):
        last = batch.number
        for kind in sorted(batch.effects.keys() - {RESEND, TOMBSTONE}):
            for _, blob in batch.effects[kind]:
                expected[kind] += [{**row, "batch_id": last} for row in _rows(kind, blob)]
    return last, expected


def comparable(rows: Iterable[Row]) -> list[str]:
    """Rows in an order of their own, without what differs between attempts."""
    plain = [{k: v for k, v in row.items() if k != "writer_epoch"} for row in rows]
    return sorted(repr(sorted(row.items())) for row in plain)


def _rows(kind: str, blob: bytes) -> list[Row]:
    columns = unpack_columns(kind, blob)
    names = list(columns)
    lists = [c.tolist() if hasattr(c, "tolist") else list(c) for c in columns.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
