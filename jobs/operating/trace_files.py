"""Reader of foreign series: CSV (also .gz) and Parquet, long or wide.

Every flaw gets its line (in Parquet: its row) and nothing is returned of a file that has one.
`lbcore.sim.load.recording` judges the samples. Long = a row an entity and time; wide = a row an
entity, a column a time. A table with a column of times is long.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from jobs.console import CAUSE_BREAK, MisuseError
from lbcore.sim.load.recording import UNITS, Flaw, Series, TraceColumn

TIME_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
_ENTITIES = ("entity", "id", "vm", "vm_id", "name", "machine_id", "container_id", "bundle", "topic")
_TIMES = ("time", "timestamp", "minute_ms", "time_ms", "timestamp_ms", "time_s")
_NOTHING = ("", "nan", "null", "na")
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, pa.ArrowException)
_SHOWN = 20
_TIME_MAX_MS = 1 << 53
_Lines: TypeAlias = Iterable[tuple[int, list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReading:
    """Options for reading a file. "" and 0 = detected, or refused with advice.

    resources: of a wide file one, its column "". step_ms: of a wide file whose columns have no
    times. covers: the column that says how long before its time a sample covers, in ms.
    """

    entity: str = ""
    time: str = ""
    time_unit: str = ""
    covers: str = ""
    resources: tuple[TraceColumn, ...] = ()
    step_ms: int = 0


@dataclass(slots=True)
class _Samples:
    """Samples while they are read."""

    names: dict[str, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    values: list[tuple[float, ...]] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)

    def add(self, entity: str, at_ms: int, place: tuple[int, int, int], values: Any) -> None:
        """One sample. place: line, column, how long it covers."""
        number = self.names.setdefault(entity, len(self.names))
        self.rows.append((number, at_ms, *place))
        self.values.append(values)

    def flaw(self, line: int, column: int, what: str) -> None:
        """One flaw."""
        self.flaws.append(Flaw(line=line, column=column, what=what))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """Content of a file. flaws: of its cells. left: columns that are not used."""

    series: Series
    resources: tuple[TraceColumn, ...]
    flaws: tuple[Flaw, ...]
    left: tuple[str, ...]


def read_trace(path: Path, how: TraceReading) -> TraceFile:
    """A file's samples, and what is wrong with its cells.

    Raises MisuseError for a file that isn't such a table.
    """
    head, lines = _table(path)
    samples = _Samples()
    if head is not None:
        how = _named(path, how, head)
    if head is not None and how.time:
        how = _with_units(path, how, head)
        _read_long(how, head, lines, samples)
        used = {how.entity, how.time, how.covers, *(one.column for one in how.resources)}
        left = tuple(name for name in head if name not in used)
    else:
        _read_wide(path, how, (head, lines), samples)
        left = ()
    if not samples.rows and not samples.flaws:
        raise _misuse(path, "it has no line with a value", "name a file that has some")
    table = np.array(samples.rows, dtype=np.int64).reshape(-1, 5)
    series = Series(
        entities=tuple(samples.names),
        of=table[:, 0],
        at_ms=table[:, 1],
        values=np.array(samples.values, dtype=float).reshape(len(table), len(how.resources)),
        covers_ms=table[:, 4],
        lines=table[:, 2],
        columns=table[:, 3],
    )
    return TraceFile(series=series, resources=how.resources, flaws=tuple(samples.flaws), left=left)


def refuse_flaws(path: Path, flaws: Sequence[Flaw], advice: str) -> None:
    """Raise MisuseError with the first of them, if there are any."""
    if not flaws:
        return
    shown = CAUSE_BREAK.join(str(flaw) for flaw in flaws[:_SHOWN])
    more = f"{CAUSE_BREAK}and {len(flaws) - _SHOWN} more" if len(flaws) > _SHOWN else ""
    raise MisuseError(
        f"{path} is not imported: {len(flaws)} flaw{'s' * (len(flaws) > 1)}",
        why=f"{shown}{more}",
        next_step=advice,
    )


def _misuse(path: Path, why: str, next_step: str) -> MisuseError:
    return MisuseError(f"{path} can't be read as a trace", why=why, next_step=next_step)


def _table(path: Path) -> tuple[list[str] | None, _Lines]:
    """Header (None: it has none) and the lines, each with its number from 1."""
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            return table.column_names, _parquet_rows(table)
        lines = _csv_rows(path)
    except _UNREADABLE as error:
        raise _misuse(path, f"{type(error).__name__}: {error}", "name a readable file") from None
    if not lines:
        raise _misuse(path, "it is empty", "name a file that has lines")
    first = lines[0][1]
    has_numbers = any(_is_number(cell) for cell in first[1:])
    is_head = not has_numbers or first[0].strip().lower() in _ENTITIES  # then times may follow
    return ([cell.strip() for cell in first], iter(lines[1:])) if is_head else (None, iter(lines))


def _csv_rows(path: Path) -> list[tuple[int, list[Any]]]:
    """Yield the lines of a .csv, .txt or either with .gz.

    Separated by commas, semicolons or tabs.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        separator = max(",;\t", key=first.count)
        file.seek(0)
        reader = csv.reader(file, delimiter=separator, strict=True)
        return [(reader.line_num, row) for row in reader if row]


def _parquet_rows(table: pa.Table) -> Iterator[tuple[int, list[Any]]]:
    columns = [column.to_pylist() for column in table.columns]
    return ((at + 1, list(row)) for at, row in enumerate(zip(*columns, strict=True)))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(path: Path, how: TraceReading, head: list[str]) -> TraceReading:
    """With the columns of entity and time; time "" = a wide table."""
    twice = next((name for at, name in enumerate(head) if name in head[:at]), None)
    if twice is not None:
        raise _misuse(path, f"line 1: two columns are named {twice!r}", "name each one once")
    entity = how.entity or next((name for name in head if name.lower() in _ENTITIES), "")
    time = how.time or next((name for name in head if name.lower() in _TIMES), "")
    for what, name in (("--entity", entity), ("--time", time), ("--covers", how.covers)):
        if name and name not in head:
            raise _misuse(path, f"it has no column {name!r}", f"{what} is one of {_some(head)}")
    if time and not entity:
        raise _misuse(
            path,
            "nothing says which column is the entity",
            f"say --entity COLUMN, one of {_some(head)}",
        )
    return replace(how, entity=entity, time=time)


def _with_units(path: Path, how: TraceReading, head: Sequence[str]) -> TraceReading:
    """Return the named resources, or those whose columns tell kind and unit.

    cpu_percent, cpu [MHz].
    """
    for one in how.resources:
        if one.column not in head:
            raise _misuse(path, f"it has no column {one.column!r}", f"it has {_some(head)}")
    found = how.resources or tuple(filter(None, map(_resource_named, head)))
    if not found:
        free = [name for name in head if name not in (how.entity, how.time, how.covers)]
        raise _misuse(
            path,
            f"no column tells resource and unit (as cpu_percent does); it has {_some(free)}",
            f"say --resource COLUMN=KIND:UNIT, e.g. {free[0] if free else 'cpu'}=cpu:percent; "
            f"kinds: {', '.join(UNITS)}",
        )
    return replace(how, resources=found)


def _resource_named(name: str) -> TraceColumn | None:
    """Return a column's kind and unit: cpu_percent, bytes_in [KB/s], msg_rate_in.

    By its name.
    """
    low = name.lower().replace("msg_rate", "msg").strip(" ])")
    kind, _, unit = low.replace(" [", "|").replace(" (", "|").partition("|")
    if not unit:
        kind, _, unit = low.rpartition("_")
    if low in ("msg", "msg_in", "msg_out"):
        kind, unit = low, "msg/s"
    is_known = kind in UNITS and unit in UNITS[kind]
    return TraceColumn(column=name, kind=kind, unit=unit) if is_known else None


def _read_long(how: TraceReading, head: Sequence[str], rows: _Lines, samples: _Samples) -> None:
    """Every sample of a table with a row an entity and time."""
    places = {name: at for at, name in enumerate(head)}
    entity_at, time_at = places[how.entity], places[how.time]
    covers_at = places[how.covers] if how.covers else -1
    columns = [places[one.column] for one in how.resources]
    scale = _time_scale(how)
    for line, row in rows:
        if len(row) != len(head):
            samples.flaw(line, 0, f"it has {len(row)} cells, the header {len(head)}")
            continue
        entity = _name_of(row[entity_at])
        if not entity:
            samples.flaw(line, entity_at + 1, "missing entity")
        at_ms = _time_of(row[time_at], scale, (line, time_at + 1), samples)
        values = tuple(_value_of(row[at], line, at + 1, samples) for at in columns)
        covers = _value_of(row[covers_at], line, covers_at + 1, samples) if how.covers else 0.0
        if how.covers and not covers > 0:
            samples.flaw(line, covers_at + 1, "it covers no time")
        elif at_ms is not None and entity:
            samples.add(entity, at_ms, (line, 0, round(covers)), values)


def _read_wide(
    path: Path, how: TraceReading, table: tuple[list[str] | None, _Lines], samples: _Samples
) -> None:
    """Every sample of a table whose columns are times."""
    head, rows = table
    if len(how.resources) != 1:
        named = f"{len(how.resources)} are named" if how.resources else "nothing says which"
        raise _misuse(
            path,
            f"a table without a column of times has one resource, and {named}",
            f"say --resource KIND:UNIT, e.g. cpu:percent; kinds: {', '.join(UNITS)}",
        )
    if head is None and not how.step_ms:
        raise _misuse(
            path,
            "its columns have no times: nothing says how long a step is",
            "say --step TIME, e.g. --step 5m",
        )
    width, scale, seen = len(head or ()), _time_scale(how), set[str]()
    cells = [] if how.step_ms else (head or [])[1:]
    times = [_time_of(cell, scale, (1, at), samples) or 0 for at, cell in enumerate(cells, 2)]
    for line, row in rows:
        width = width or len(row)
        name = _name_of(row[0])
        if len(row) != width:
            samples.flaw(line, 0, f"it has {len(row)} cells, the first line {width}")
        elif not name:
            samples.flaw(line, 1, "missing entity")
        elif name in seen:
            samples.flaw(line, 1, f"duplicate: {name} has a line already")
        else:
            seen.add(name)
            for at, cell in enumerate(row[1:]):
                when = times[at] if times else at * how.step_ms
                value = _value_of(cell, line, at + 2, samples)
                samples.add(name, when, (line, at + 2, 0), (value,))


def _name_of(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()


def _value_of(cell: Any, line: int, column: int, samples: _Samples) -> float:
    """A number; NaN for nothing. Text is a flaw."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError):
        samples.flaw(line, column, f"{str(cell)[:40]!r} is no number")
        return 0.0


def _time_scale(how: TraceReading) -> float:
    """Milliseconds of one, 0 = nobody said."""
    unit = how.time_unit or next(
        (unit for unit in ("ms", "us", "ns", "s") if how.time.lower().endswith(f"_{unit}")), ""
    )
    return TIME_UNITS.get(unit, 0.0)


def _time_of(cell: Any, scale: float, place: tuple[int, int], samples: _Samples) -> int | None:
    """Milliseconds since 1970, or since whenever; a time without a zone is UTC."""
    if isinstance(cell, str) and not _is_number(cell):
        try:
            cell = datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
        except ValueError:
            what = f"{cell[:40]!r} is no time" if cell.strip() else "missing time"
            samples.flaw(*place, what)
            return None
    if isinstance(cell, datetime):
        aware = cell if cell.tzinfo else cell.replace(tzinfo=timezone.utc)
        return round(aware.timestamp() * 1_000)
    if cell is None or isinstance(cell, date) or not math.isfinite(float(cell)):
        samples.flaw(*place, "missing time")
        return None
    if abs(float(cell) * (scale or 1.0)) > _TIME_MAX_MS:
        samples.flaw(*place, f"{cell} is no time: it is further away than any clock tells")
        return None
    if not scale:
        samples.flaw(
            *place, f"{cell} has an unknown unit: say --time-unit, {' or '.join(TIME_UNITS)}"
        )
        return None
    return round(float(cell) * scale)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")  # noqa: PLR2004 enough to see
