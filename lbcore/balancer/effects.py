"""Effects of a micro-batch: rows for tables, records to send.

Made by `balancer`; the sink makes rows durable, then sends tombstones, the records of the written
transitions and those of RESEND, in this order, and logs REPORT.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.model.tables import BUNDLE_OWNERSHIP, TABLES, Column, Table
from lbcore.ownership.records import OwnershipRecord, State

RESEND = "resend"
TOMBSTONE = "tombstone"
REPORT = "report"

Row: TypeAlias = dict[str, Any]

SINK_COLUMNS = frozenset({"batch_id", "writer_epoch"})
"""Columns that only the sink knows: they differ between attempts at the same batch."""

_GONE = Table(
    name=TOMBSTONE,
    doc="Bundles that the compacted topic `ownership` may forget; of no table.",
    columns=tuple(c for c in BUNDLE_OWNERSHIP.columns if c.name in {"cluster", "bundle"}),
)
_BY_NAME = {**{table.name: table for table in TABLES}, RESEND: BUNDLE_OWNERSHIP, TOMBSTONE: _GONE}
_DTYPES = {"long": "<i8", "int": "<i4", "double": "<f8", "boolean": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Rows for one table; or what is for Kafka or the log alone.

    RESEND: records as `record_row` makes them, sent again as they are. TOMBSTONE: rows with
    `cluster` and `bundle`, whose records brokers and the topic `ownership` forget; one bundle may
    have a tombstone and then, of the same batch, a record. REPORT: the batch's line.
    """

    kind: str
    rows: Sequence[Row]


def table_of(kind: str) -> Table:
    """The columns that the rows of an effect have, as those of a table."""
    return _BY_NAME[kind]


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns that the balancer fills in."""
    return tuple(c for c in table_of(kind).columns if c.name not in SINK_COLUMNS)


def record_row(record: OwnershipRecord, seq_in_batch: int) -> Row:
    """A record as a row of bundle_ownership, without what the sink knows."""
    return {
        "cluster": record.cluster,
        "namespace": record.bundle.rpartition("/")[0],
        "bundle": record.bundle,
        "version_id": record.version_id,
        "state": record.state.value,
        "source": record.source,
        "source_incarnation": record.source_incarnation,
        "destination": record.destination,
        "destination_incarnation": record.destination_incarnation,
        "children": to_json(dict(record.children)) if record.children else "{}",
        "is_forced": record.is_forced,
        "cause": record.cause.value,
        "decision_id": record.decision_id,
        "command_id": record.command_id,
        "at_ms": record.timestamp_ms,
        "seq_in_batch": seq_in_batch,
    }


def event_row(before: OwnershipRecord | None, after: OwnershipRecord, seq_in_batch: int) -> Row:
    """A transition as a row of ownership_events, without what the sink knows."""
    return {
        **record_row(after, seq_in_batch),
        "state_before": before.state.value if before else State.INIT.value,
        "source_before": before.source if before else "",
        "destination_before": before.destination if before else "",
    }


def to_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def pack_effect(effect: Effect) -> bytes:
    """The rows as one blob, column by column; equal rows give equal bytes.

    Raises (TypeError, ValueError, OverflowError) for values that the column's type can't hold.
    """
    if effect.kind == REPORT:
        return packing.pack({"rows": list(effect.rows)}, {})
    plain: dict[str, Any] = {"count": len(effect.rows)}
    arrays: dict[str, NDArray[Any]] = {}
    for column in columns_of(effect.kind):
        values = [row[column.name] for row in effect.rows]
        if column.type in _DTYPES:
            arrays[column.name] = np.array(values, dtype=_DTYPES[column.type])
        elif column.type == "binary":
            plain[column.name] = [len(value) for value in values]
            arrays[column.name] = np.frombuffer(b"".join(values), dtype=np.uint8)
        else:
            if column.type == "string":
                "".join(values).encode()  # raises for what no table can hold: here, not in the sink
            plain[column.name] = values
    return packing.pack(plain, arrays)


def unpack_columns(kind: str, blob: bytes) -> dict[str, Any]:
    """Column name → list or array of values, in row order. Raises MalformedBlobError."""
    plain, arrays = packing.unpack(blob)
    found: dict[str, Any] = {**plain, **arrays}
    columns = columns_of(kind)
    for name in (column.name for column in columns if column.type == "binary"):
        joined, ends = arrays[name].tobytes(), np.cumsum([0, *plain[name]])
        found[name] = [joined[a:b] for a, b in itertools.pairwise(ends.tolist())]
    return {column.name: found[column.name] for column in columns}


def unpack_report(blob: bytes) -> list[Mapping[str, Any]]:
    """The rows of a REPORT effect."""
    rows: list[Mapping[str, Any]] = packing.unpack(blob)[0]["rows"]
    return rows
