"""A batch's rows as Arrow tables, without those that no table can hold.

One bad row costs no other. Decides which rows are put aside: those with a value that Arrow or the
table's declaration refuses (a lone surrogate, an integer of more bits, another type, null). Looked
for only when a column is refused as a whole, so good rows cost nothing. Which they are follows from
the rows alone, so that a repeated batch puts aside the same. Used by the sink.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.tables import arrow_schema
from lbcore.balancer.effects import table_of, unpack_columns
from lbcore.fault_isolation import Fault, fault_of

PHASE = "sink_row"
"""Phase under which its faults are counted."""

_SHOWN_CHARS = 200
_NAMING = ("bundle", "broker", "namespace", "tenant", "topic", "name", "command_id", "decision_id")


class UnfitValueError(ValueError):
    """A value that its column can't hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowRows:
    """Rows that fit.

    faults: one a row that does not; bundles: those that such rows name.
    """

    table: pa.Table
    faults: Sequence[Fault] = ()
    bundles: frozenset[str] = field(default_factory=frozenset)


def arrow_rows(kind: str, blob: bytes, stamp: Mapping[str, int]) -> ArrowRows:
    """Return the rows of an effect.

    stamp: the columns of integers that are the same in all of them.
    """
    schema = arrow_schema(table_of(kind))
    columns = unpack_columns(kind, blob)
    count = len(columns["cluster"])
    columns |= {name: np.full(count, value, dtype=np.int64) for name, value in stamp.items()}
    arrays: list[pa.Array] = []
    unfit: dict[int, Fault] = {}
    for column in schema:
        array = _whole(column, columns[column.name])
        if array is None:
            array, refused = _by_value(kind, column, columns)
            unfit = {**refused, **unfit}
        arrays.append(array)
    if not unfit:
        return ArrowRows(table=pa.Table.from_arrays(arrays, schema=schema))
    left = pa.array([at for at in range(count) if at not in unfit], pa.int64())
    bundles = columns.get("bundle", ())
    named = [bundles[at] for at in unfit if len(bundles)]
    return ArrowRows(
        table=pa.Table.from_arrays([array.take(left) for array in arrays], schema=schema),
        faults=[unfit[at] for at in sorted(unfit)],
        bundles=frozenset(one for one in named if isinstance(one, str)),
    )


def without_bundles(table: pa.Table, bundles: frozenset[str]) -> pa.Table:
    """The rows of other bundles."""
    if not bundles:
        return table
    left_out = pa.array(sorted(bundles), pa.string())
    return table.filter(pc.invert(pc.is_in(table["bundle"], left_out)))


def _whole(column: pa.Field, values: Any) -> pa.Array | None:
    """The column; None when a value does not fit."""
    try:
        array = pa.array(values, type=column.type)
    except MemoryError:
        raise  # the machine's, not the row's: Arrow's own error is one of these, too
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return array if column.nullable or not array.null_count else None


def _by_value(
    kind: str, column: pa.Field, columns: Mapping[str, Any]
) -> tuple[pa.Array, dict[int, Fault]]:
    """Return the column with null for what does not fit, and faults by row. O(values)."""
    fitting: list[Any] = []
    refused = {}
    for at, value in enumerate(columns[column.name]):
        try:
            fitting.append(_fitting(kind, column, value))
        except UnfitValueError as error:  # noqa: PERF203 one row's fault is no other's
            fitting.append(None)
            refused[at] = fault_of(error, PHASE, _name(kind, columns, at))
    return pa.array(fitting, type=column.type), refused


def _fitting(kind: str, column: pa.Field, value: Any) -> Any:
    if _whole(column, [value]) is None:
        nullable = " or null" if column.nullable else ""
        message = f"{kind}.{column.name} must be {column.type}{nullable}, got {_shown(value)}"
        raise UnfitValueError(message)
    return value


def _name(kind: str, columns: Mapping[str, Any], at: int) -> str:
    named = next((columns[name][at] for name in _NAMING if name in columns), at)
    return f"row of {kind}: {_shown(named)}"


def _shown(value: Any) -> str:
    return ascii(value)[:_SHOWN_CHARS]
