"""What a run's tables must hold, row by row: its recorded batches, run again without Spark."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lbcore.balancer.effects import RESEND, TOMBSTONE, unpack_columns
from lbcore.config.tree import Config
from lbcore.model.tables import BUNDLE_OWNERSHIP
from lbcore.ownership.invariants import of_bundles
from tests.integration.stack import Stack
from tests.replay import replay

Row = dict[str, Any]
_GONE = ("Deleted", "Init")


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


def assert_replayed(stack: Stack, *tables: str) -> Mapping[str, list[Row]]:
    """Compare tables of a job that has stopped with a replay; what each must have."""
    (checkpoint,) = (stack.folder / "job" / "checkpoints").iterdir()
    last, expected = replayed_rows(checkpoint, stack.kafka.bootstrap, stack.config)
    for table in tables:
        # a batch that was begun and not ended is repeated, and not compared
        written = [row for row in stack.rows(table) if row["batch_id"] <= last]
        assert _comparable(written) == _comparable(expected[table]), table
    return expected


def _comparable(rows: Iterable[Row]) -> list[str]:
    """Rows in an order of their own, without what differs between attempts."""
    plain = [{k: v for k, v in row.items() if k != "writer_epoch"} for row in rows]
    return sorted(repr(sorted(row.items())) for row in plain)


def wrong_records(events: Iterable[Row], current: Iterable[Row], *ignored: str) -> Iterator[str]:
    """Where the current records are not the fold of their events, or do not cover a namespace.

    ignored: columns, as `writer_epoch` where a job was killed: a second attempt has another.
    """
    newest = {row["bundle"]: row for row in sorted(events, key=lambda row: row["version_id"])}
    known: dict[str, Row] = {}
    for row in current:
        if row["bundle"] in known:
            yield f"bundle_ownership has {row['bundle']} twice"
        known[row["bundle"]] = row
    for bundle, row in sorted(newest.items()):
        names = [one.name for one in BUNDLE_OWNERSHIP.columns if one.name not in ignored]
        record = known.get(bundle, row)
        wrong = {name: (record[name], row[name]) for name in names if record[name] != row[name]}
        if wrong:
            yield f"{bundle} differs from its newest event: {wrong}"
        if bundle not in known and row["state"] not in _GONE:
            yield f"{bundle} is missing, its event says {row['state']}"
    yield from (f"{bundle} has no event" for bundle in sorted(known.keys() - newest.keys()))
    live = [row for row in known.values() if row["state"] not in _GONE]
    for name in sorted({row["namespace"] for row in live}):
        found = of_bundles(name, [row["bundle"] for row in live if row["namespace"] == name])
        yield from (one.sentence for one in found)


def _rows(kind: str, blob: bytes) -> list[Row]:
    columns = unpack_columns(kind, blob)
    names = list(columns)
    lists = [c.tolist() if hasattr(c, "tolist") else list(c) for c in columns.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
