"""Recorded load: table `load_history` of a run, or a file that anybody can write.

Decides which columns a file must have, and what is said when it lacks one;
`lbcore.sim.load.recording` turns rows into load. A file has one line per bundle and interval, or,
with a column `bundles`, rows as `load_history` has them (`ballast trace` writes these). Used by
`simulate` and `backtest`.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_scan import is_delta, open_delta, present_columns, scan
from jobs.adapters.delta.tables import table_path
from jobs.console import MisuseError
from lbcore.model.tables import LOAD_HISTORY
from lbcore.sim.load.recording import COLUMNS, Recording, RecordingError, make_recording

Row: TypeAlias = Mapping[str, Any]

NEEDED = ("minute_ms", "bundle", "msg_rate_in", "msg_rate_out")
MESSAGE_BYTES = 1024.0
_HISTORY = (
    "cluster",
    "broker",
    "minute_ms",
    "percent",
    "bundles",
    *COLUMNS,
    "topics",
    "broker_group",
)
_READERS: Mapping[str, Callable[[Path], pa.Table]] = {
    ".csv": pyarrow.csv.read_csv,
    ".json": pyarrow.json.read_json,
    ".parquet": pyarrow.parquet.read_table,
}


def read_recording(path: TablePlace, cluster: str = "") -> Recording:
    """The load that a table or file has recorded. cluster: "" = the only one in it.

    Raises MisuseError.
    """
    rows = read_history(path, cluster)
    try:
        return make_recording(rows)
    except RecordingError as error:
        raise MisuseError(
            f"{path} has no load to replay", why=str(error), next_step="name another recording"
        ) from None


def read_history(path: TablePlace, cluster: str = "") -> list[Row]:
    """Rows as `load_history` has them, of one cluster. Raises MisuseError."""
    try:
        rows = _rows(path)
    except (OSError, DeltaError, pa.ArrowException, ValueError) as error:
        raise MisuseError(
            f"{path} can't be read as recorded load",
            why=f"{type(error).__name__}: {error}",
            next_step="name a folder of tables, its load_history, or a .csv, .json or .parquet "
            f"file with the columns {', '.join(NEEDED)}",
        ) from None
    names = sorted({str(row["cluster"]) for row in rows})
    if not cluster and len(names) > 1:
        raise MisuseError(
            f"{path} has the load of several clusters",
            why=f"there are {', '.join(names)}",
            next_step="say which: cluster=NAME in a scenario, --cluster for a backtest",
        )
    if cluster and names and cluster not in names:
        raise MisuseError(
            f"{path} has no load of the cluster {cluster}",
            why=f"it has {', '.join(names)}",
            next_step="name one of them, or another recording",
        )
    return [row for row in rows if not cluster or row["cluster"] == cluster]


def _rows(path: TablePlace) -> list[Row]:
    for folder in (path, table_path(path, LOAD_HISTORY.name)):
        if folder.is_dir() and is_delta(folder):
            table = open_delta(folder)
            return list(scan(table, present_columns(table, _HISTORY)).to_pylist())
    if not isinstance(path, Path) or path.suffix not in _READERS:
        raise ValueError("it is neither a folder with load_history nor a file of these kinds")
    table = _READERS[path.suffix](path)
    names = table.column_names
    is_history = "bundles" in names  # which `ballast trace` wrote
    needed = ("broker", "minute_ms", *COLUMNS, "topics") if is_history else NEEDED
    for absent in (name for name in needed if name not in names):
        if is_history:
            raise ValueError(f"it has bundles, and no column {absent}")
        raise ValueError(f"it has no column {absent}, only {', '.join(names)}")
    rows = ({**row, "cluster": row.get("cluster") or ""} for row in table.to_pylist())
    return [row if is_history else _row_of(at, row) for at, row in enumerate(rows, start=1)]


def _row_of(number: int, row: Row) -> Row:
    """Convert a file's line to a row of `load_history`: a broker with one bundle.

    number: of the line, from 1. Raises ValueError.
    """

    def amount(name: str, otherwise: float | None = None) -> float:
        value: Any = row.get(name)
        try:
            found = float(value if value is not None or otherwise is None else otherwise)
        except (TypeError, ValueError):
            found = math.nan
        if not 0.0 <= found < math.inf:
            raise ValueError(f"{name} of row {number} is no number from 0: {value}")
        return found

    rates = {name: [amount(name)] for name in COLUMNS[:2]}
    volumes = {
        volume: [amount(volume, 0.0) or rates[rate][0] * MESSAGE_BYTES]
        for rate, volume in zip(COLUMNS[:2], COLUMNS[2:], strict=True)
    }
    return {
        "cluster": row["cluster"],
        "broker": row.get("broker") or "",
        "minute_ms": int(amount("minute_ms")),
        "bundles": [str(row["bundle"])],
        "topics": [amount("topics", 1.0) or 1.0],
        **rates,
        **volumes,
    }
