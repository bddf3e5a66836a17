"""Make a recording of a table of series, or export what a cluster has recorded.

import: CSV (also .gz) or Parquet, entity x time x resources, long or wide, becomes a recording that
`simulate` and `backtest` replay; entities are folded into bundles by the hash of their
names. Nothing is written of a file that has a flaw; each is told with its line. export: what
load_history has, names replaced by keyed hashes. docs/traces.md says more.
"""

import argparse
import csv
import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.settings import read_secret
from jobs.console import CAUSE_BREAK, CommandError, Exit, MisuseError, answer
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.operating.simulations import write_text
from jobs.operating.text_format import parse_duration_ms
from jobs.parser import action, actions, argument, arguments, carry_out, whole_number
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.model.times import duration
from lbcore.sim.load.recording import (
    UNITS,
    Flaw,
    Folded,
    FoldingError,
    Gaps,
    Grid,
    Series,
    SpanError,
    TraceColumn,
    dealt,
    flaws_of,
    fold,
    on_grid,
    step_of,
)
from lbcore.sim.scenario.tokens import ScenarioTokenError, format_ms, number

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


_ADVICE = (
    "correct them; times rise within an entity, --gaps hold or --gaps zero says what stands where "
    "a value is missing"
)
_LONG_RUN_MS = 3_600_000
_TRIGGER_MS = 2_000
_NAME_BYTES = 8


def import_trace(args: argparse.Namespace, how: TraceReading) -> tuple[Folded, list[str]]:
    """Return the file's load, folded, and sentences on what it came to.

    Raises MisuseError, with the line of every flaw.
    """
    path = args.file
    found = read_trace(path, how)
    series = found.series
    step_ms = how.step_ms or step_of(series)
    if not found.flaws and step_ms < 1:
        raise MisuseError(
            f"{path} has one time only",
            why="nothing says how long an interval is",
            next_step="say --step TIME, e.g. --step 5m",
        )
    refuse_flaws(path, [*found.flaws, *flaws_of(series, max(1, step_ms), args.gaps)], _ADVICE)
    try:
        grid = _part(on_grid(series, step_ms, args.gaps), args)
        folded = fold(grid, series.entities, found.resources, (args.namespace, args.bundles))
    except SpanError as error:
        raise MisuseError(
            f"{path} is too long for its step",
            why=str(error),
            next_step="correct a time that is far off, or say a longer --step",
        ) from None
    except FoldingError as error:
        raise MisuseError(
            f"{path} has no load", why=str(error), next_step="name a resource that weighs"
        ) from None
    empty = int((folded.topics == 0).sum())
    said = [
        f"{len(series.entities)} entities, {len(grid.values)} intervals of "
        f"{duration(step_ms)}, folded into {args.bundles} bundles"
        + (f", {empty} of them without an entity" if empty else ""),
        *folded.said,
        *(f"{name} is left out: nobody said what it is" for name in found.left),
    ]
    if grid.partly:
        said.append(f"{grid.partly} entities are not there all the time: 0 where they aren't")
    return folded, said


def write_recording(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as `load_history` has them, all or nothing. Raises CommandError."""
    beside = path.with_name(f".{path.name}.part")
    try:
        table = pa.Table.from_pylist(list(rows))
        pyarrow.parquet.write_table(table, beside, compression="zstd", compression_level=19)
        beside.replace(path)
    except OSError as cause:
        beside.unlink(missing_ok=True)
        raise CommandError(
            f"{path} can't be written", why=str(cause), next_step="correct the path or its rights"
        ) from None


def write_scenario(
    path: Path, recording: Path, about: str, length_ms: int, args: argparse.Namespace
) -> None:
    """A scenario that replays the recording. about: a sentence."""
    where = os.path.relpath(recording.absolute(), path.absolute().parent)
    long = length_ms >= _LONG_RUN_MS
    lines = [
        f"title {recording.stem}: recorded load on {args.brokers} brokers",
        f"# {about}.",
        f"brokers {args.brokers}",
        f"namespace {args.namespace} bundles={args.bundles} topics=1",
        f"own {args.namespace} all all",
        f"load {args.namespace} replay {args.load:g}% file={where}",
        *([f"set pipeline.trigger_ms={_TRIGGER_MS}"] if long else []),
        f"run {format_ms(length_ms)} sample={'1m' if long else '10s'}",
        "expect doubles == 0",
        "expect unsettled == 0",
    ]
    write_text(path, "\n".join([*lines, ""]))


def hashed_rows(rows: Iterable[Mapping[str, Any]], key: bytes) -> list[dict[str, Any]]:
    """Return rows of `load_history` with hashes as names.

    Clusters, brokers, tenants, namespaces. key: whoever has it can tell whether a name is in it;
    the same key gives the same hashes. Hash ranges, times and loads stay.
    """

    def hidden(kind: str, name: str) -> str:
        digest = hashlib.blake2b(f"{kind} {name}".encode(), key=key, digest_size=_NAME_BYTES)
        return f"{kind}-{digest.hexdigest()}"

    def bundle(name: str) -> str:
        space = parse_bundle(name)[0]
        tenant, _, own = space.partition("/")
        bounds = name.rpartition("/")[2]
        return f"{hidden('tenant', tenant)}/{hidden('namespace', f'{tenant}/{own}')}/{bounds}"

    return [
        {
            **row,
            "cluster": hidden("cluster", str(row["cluster"])),
            "broker": hidden("broker", str(row["broker"])),
            "broker_group": hidden("broker", name) if (name := row.get("broker_group")) else "",
            "bundles": [bundle(name) for name in row["bundles"]],
        }
        for row in rows
    ]


def _part(grid: Grid, args: argparse.Namespace) -> Grid:
    """The part of the trace that is asked for."""
    first = args.from_ms // grid.step_ms
    count = max(1, args.for_ms // grid.step_ms) if args.for_ms else len(grid.values)
    values = grid.values[first : first + count]
    if not len(values):
        raise MisuseError(
            f"{args.file} has nothing there",
            why=f"it is {duration(len(grid.values) * grid.step_ms)} long",
            next_step="choose an earlier --from",
        )
    start_ms = grid.start_ms + first * grid.step_ms
    return Grid(start_ms=start_ms, step_ms=grid.step_ms, values=values, partly=grid.partly)


KEY = "BALLAST_TRACE_KEY"
MINUTE_MS = 60_000
_BUNDLES_MAX = 1_000_000
_KEY_BYTES = 32
_COUNT = partial(whole_number, most=_BUNDLES_MAX)


def _import(args: argparse.Namespace) -> int:
    how = TraceReading(
        entity=args.entity,
        time=args.time,
        time_unit=args.time_unit,
        covers=args.covers,
        resources=tuple(args.resource),
        step_ms=args.step,
    )
    folded, said = import_trace(args, how)
    length_ms = len(folded.rates) * folded.step_ms
    write_recording(args.out, dealt(folded, args.brokers, args.load))
    if args.scenario:
        write_scenario(args.scenario, args.out, said[0], length_ms, args)
    written = [str(args.out), *([str(args.scenario)] if args.scenario else [])]
    value = {"written": written, "said": said, "length_ms": length_ms}
    answer(args, value, [*said, f"written: {', '.join(written)}"])
    return Exit.DONE


def _export(args: argparse.Namespace) -> int:
    where = connection_options(args)
    place = args.recording or where.reader().root
    rows = read_history(place, "" if args.recording else where.cluster)
    newest_ms = max((int(row["minute_ms"]) for row in rows), default=0)
    rows = [row for row in rows if not args.last or row["minute_ms"] > newest_ms - args.last]
    if not rows:
        raise CommandError(
            f"{place} has recorded nothing to give away",
            why="load_history has no row",
            next_step="let the job run for some minutes: it writes load_history each minute",
        )
    key = read_secret(KEY).encode()[:64] or os.urandom(_KEY_BYTES)
    write_recording(args.out, hashed_rows(rows, key))
    oldest_ms = min(int(row["minute_ms"]) for row in rows)
    length = duration(newest_ms - oldest_ms + MINUTE_MS)
    value = {"written": [str(args.out)], "rows": len(rows)}
    answer(args, value, [f"{len(rows)} rows, {length}, without names", f"written: {args.out}"])
    return Exit.DONE


def _parquet(word: str) -> Path:
    if not word.endswith(".parquet"):
        raise argparse.ArgumentTypeError(f"{word!r} does not end with .parquet")
    return Path(word)


def _namespace(word: str) -> str:
    try:
        parse_bundle(f"{word}/0x00000000_0xffffffff")
    except InvalidNameError:
        raise argparse.ArgumentTypeError(f"{word!r} is no namespace: tenant/namespace") from None
    return word


def _load(word: str) -> float:
    try:
        percent = number(word.removesuffix("%"))
    except ScenarioTokenError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if percent <= 0.0:
        raise argparse.ArgumentTypeError(f"{word!r} is no percent above 0")
    return percent


def _resource(word: str) -> TraceColumn:
    column, _, rest = word.rpartition("=")
    kind, _, unit = rest.partition(":")
    units = UNITS.get(kind)
    if units is None:
        kinds = ", ".join(UNITS)
        raise argparse.ArgumentTypeError(f"{kind!r} is no kind of resource; there are {kinds}")
    if unit.lower() not in units:
        known = ", ".join(units)
        raise argparse.ArgumentTypeError(f"{unit!r} is an unknown unit of {kind}: one of {known}")
    return TraceColumn(column=column, kind=kind, unit=unit.lower())


add_arguments = actions(
    action(
        "import",
        "a table of series becomes a recording",
        _import,
        argument("file", type=Path, metavar="FILE", help=".csv, .csv.gz or .parquet"),
        argument(
            "--out", type=_parquet, required=True, metavar="FILE.parquet", help="the recording"
        ),
        argument("--bundles", type=_COUNT, required=True, metavar="N", help="fold into N"),
        argument(
            "--brokers",
            type=_COUNT,
            default=10,
            metavar="N",
            help="who owns them at first, in turn",
        ),
        argument("--namespace", type=_namespace, default="trace/load", metavar="NAME"),
        argument(
            "--resource",
            action="append",
            default=[],
            type=_resource,
            metavar="[COLUMN=]KIND:UNIT",
            help="what a column is, e.g. cpu_usage=cpu:MHz; of a wide table without a column",
        ),
        argument("--entity", default="", metavar="COLUMN"),
        argument("--time", default="", metavar="COLUMN"),
        argument("--time-unit", choices=tuple(TIME_UNITS), default="", help="of bare numbers"),
        argument(
            "--covers",
            default="",
            metavar="COLUMN",
            help="ms before its time that a row stands for",
        ),
        argument("--step", type=parse_duration_ms, default=0, metavar="TIME"),
        argument(
            "--gaps",
            type=Gaps,
            choices=tuple(Gaps),
            default=Gaps.REFUSE,
            metavar="refuse|hold|zero",
        ),
        argument("--from", type=parse_duration_ms, default=0, dest="from_ms", metavar="TIME"),
        argument("--for", type=parse_duration_ms, default=0, dest="for_ms", metavar="TIME"),
        argument("--scenario", type=Path, metavar="FILE", help="write one that replays it"),
        argument(
            "--load",
            type=_load,
            default=45.0,
            metavar="PERCENT",
            help="its mean, of what the brokers can carry (default 45%%)",
        ),
    ),
    action(
        "export",
        "what a cluster recorded, without its names",
        _export,
        argument("--out", type=_parquet, required=True, metavar="FILE.parquet"),
        argument("--last", type=parse_duration_ms, default=0, metavar="TIME"),
        argument("--recording", type=Path, metavar="FILE", help="a trace's file, not the tables"),
        TABLES_OPTIONS,
        arguments(
            about=f"The key of the hashes is {KEY}, or the content of {KEY}_FILE; without one it "
            "is drawn and forgotten, and nobody can tell later whether a name is in it."
        ),
    ),
)
run = carry_out
