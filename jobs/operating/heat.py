"""Load over time as a grid of bounded size: brokers by moments, or one broker's bundles by moments.

Decides how wide a moment is, and which rows are shown when there are too many: those with the
highest peak. A cell is the largest value of its moment, so no peak is averaged away. Read from
`load_history` by the SQL engine; source: ours.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.rows import literal, of_cluster
from jobs.adapters.delta.table_reader import TableReader
from jobs.sql.engine import SqlEngine
from lbcore.model.resources import RESOURCES
from lbcore.model.tables import LOAD_HISTORY

_TRAFFIC = {
    "msg_rate": "msg/s",
    "msg_rate_in": "msg/s",
    "msg_rate_out": "msg/s",
    "msg_throughput_in": "bytes/s",
    "msg_throughput_out": "bytes/s",
}
OF_BROKERS = {
    "usage": "%",
    "score": "%",
    **{one.name: "%" for one in RESOURCES},
    **_TRAFFIC,
    "bundles": "bundles",
}
"""What a broker's row can show → its unit."""
OF_BUNDLES = {**_TRAFFIC, "topics": "topics", "sessions": "sessions"}
"""What a bundle's row can show → its unit."""

MOMENTS_MAX = 120
BROKERS_MAX = 1_000
BUNDLES_MAX = 200
_MINUTE_MS = 60_000
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatQuestion:
    """until_ms: the end of the window, ms since 1970. broker: "" = all brokers, else its bundles.

    by: a key of OF_BROKERS, or of OF_BUNDLES for a broker's bundles.
    """

    by: str
    until_ms: int
    window_ms: int
    broker: str = ""

    @property
    def step_ms(self) -> int:
        """The width of a moment: whole minutes, at most MOMENTS_MAX of them in the window."""
        minutes = -(-self.window_ms // (_MINUTE_MS * (MOMENTS_MAX - 1)))
        return max(1, minutes) * _MINUTE_MS


def read_heat(reader: TableReader, question: HeatQuestion) -> dict[str, Any]:
    """The grid: names by moments, None where nothing was reported.

    Rows in name order. left_out: how many rows with lower peaks are not among them.
    """
    step_ms = question.step_ms
    since_ms = (question.until_ms - question.window_ms) // step_ms * step_ms
    cells = _cells(reader, question, since_ms)
    names, left_out = _shown(cells, BUNDLES_MAX if question.broker else BROKERS_MAX)
    until_ms = question.until_ms // step_ms * step_ms
    moments = range(since_ms, until_ms + 1, step_ms)
    row_of = {name: at for at, name in enumerate(names)}
    grid: list[list[float | None]] = [[None] * len(moments) for _ in names]
    for name, at_ms, value in cells:
        if name in row_of and value is not None:
            grid[row_of[name]][(at_ms - since_ms) // step_ms] = _short(value)
    units = OF_BUNDLES if question.broker else OF_BROKERS
    return {
        "by": question.by,
        "unit": units[question.by],
        "broker": question.broker,
        "from_ms": since_ms,
        "step_ms": step_ms,
        "moments": len(moments),
        "names": names,
        "left_out": left_out,
        "values": grid,
    }


def _cells(
    reader: TableReader, question: HeatQuestion, since_ms: int
) -> list[tuple[str, int, float | None]]:
    view, name = ("bundle_loads", "bundle") if question.broker else ("broker_loads", "broker")
    where = [
        of_cluster(reader.cluster),
        f"minute_ms >= {since_ms}",
        f"minute_ms <= {question.until_ms}",
    ]
    if question.broker:
        where.append(f"broker = {literal(question.broker)}")
    step_ms = question.step_ms
    moment = f"minute_ms - minute_ms % {step_ms} AS at_ms"
    asked = f"SELECT {name}, {moment}, MAX({question.by}) AS most"
    rows = f" FROM {view} WHERE {' AND '.join(where)} GROUP BY 1, 2"
    found: pa.Table = SqlEngine(reader.root, (LOAD_HISTORY.name,)).query(asked + rows)
    columns = (column.to_pylist() for column in found.columns)
    return list(zip(*columns, strict=True))


def _shown(cells: list[tuple[str, int, float | None]], most: int) -> tuple[list[str], int]:
    """Those names with the highest peaks, in name order, and how many others there are."""
    peaks: dict[str, float] = {}
    for name, _, value in cells:
        peaks[name] = max(peaks.get(name, 0.0), value or 0.0)
    by_peak = sorted(peaks, key=lambda name: (-peaks[name], name))
    return sorted(by_peak[:most]), max(0, len(by_peak) - most)


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
