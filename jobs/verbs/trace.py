"""Make a recording of a table of series, or export what a cluster has recorded.

import: CSV (also .gz) or Parquet, entity x time x resources, long or wide, becomes a recording that
`simulate` and `backtest` replay; entities are folded into bundles by the hash of their
names. A file with a flaw is not imported; each flaw is named with its line. export: what
load_history has, names replaced by keyed hashes. docs/traces.md says more.
"""

import argparse
import csv
import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.settings import read_secret
from jobs.console import CAUSE_BREAK, CommandError, Exit, MisuseError, answer
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.operating.simulations import write_text
from jobs.parser import (
    action,
    actions,
    argument,
    arguments,
    carry_out,
    parse_duration_ms,
    whole_number,
)
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.model.times import MINUTE_MS, duration
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
    flaws_of,
    fold,
    history_rows,
    on_grid,
    step_of,
)
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.sim.scenario.tokens import ScenarioError, ScenarioTokenError, format_ms, number

TIME_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4}
_ENTITIES = ("entity", "id", "vm", "vm_id", "name", "machine_id", "container_id", "bundle", "topic")
_TIMES = ("time", "timestamp", "minute_ms", "time_ms", "timestamp_ms", "time_s")
_NOTHING = ("", "nan", "null", "na")
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, pa.ArrowException)
_SHOWN = 20
_TIME_MAX_MS = 1 << 53


class CellError(ValueError):
    """Fault of a cell. column: from 1, 0 = the whole line."""

    def __init__(self, column: int, what: str) -> None:
        super().__init__(what)
        self.column = column

    def flaw(self, line: int) -> Flaw:
        """Return it as a flaw of a line."""
        return Flaw(line=line, column=self.column, what=str(self))


class _Sample(NamedTuple):
    """Sample in a row of a table.

    place: the column that a flaw names, 0 = the whole line. at_ms: the header's time, ms.
    values_at: the columns of its values.
    """

    place: int
    at_ms: int
    values_at: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableForm:
    """Form of a table: its samples, and whether an entity has one row only (wide).

    time_at: column of a sample's time, -1 = the header has it. covers_at: of the time that it
    covers, -1 = none. left: columns that are not used.
    """

    samples: Sequence[_Sample]
    resources: Sequence[TraceColumn]
    width: int
    scale: float
    is_wide: bool = True
    entity_at: int = 0
    time_at: int = -1
    covers_at: int = -1
    left: Sequence[str] = ()

    def entity(self, row: Sequence[Any], known: dict[str, int]) -> int:
        """Return the number of a row's entity, added if new; raises CellError."""
        if len(row) != self.width:
            whose = "first line" if self.is_wide else "header"
            raise CellError(0, f"it has {len(row)} cells, the {whose} {self.width}")
        cell = row[self.entity_at]
        name = "" if cell is None else str(cell).strip()
        if not name:
            raise CellError(self.entity_at + 1, "missing entity")
        if self.is_wide and name in known:
            raise CellError(1, f"duplicate: {name} has a line already")
        return known.setdefault(name, len(known))

    def read(self, row: Sequence[Any], sample: _Sample) -> tuple[int, int, tuple[float, ...]]:
        """Time, how long it covers, and values of a sample; raises CellError."""
        _, at_ms, values_at = sample
        if self.time_at >= 0:
            at_ms = _time(row[self.time_at], self.scale, self.time_at + 1)
        values = tuple(_value(row[at], at + 1) for at in values_at)
        if self.covers_at < 0:
            return at_ms, 0, values
        covers = _value(row[self.covers_at], self.covers_at + 1)
        if not 1.0 <= covers <= _TIME_MAX_MS:
            raise CellError(self.covers_at + 1, "it covers no time, or more than a clock tells")
        return at_ms, round(covers), values


def read_trace(args: argparse.Namespace) -> tuple[_TableForm, Series, list[Flaw]]:
    """A file's samples, and what is wrong with its cells, one flaw a sample.

    Raises MisuseError for a file that isn't such a table.
    """
    head, lines = _table(args.file)
    form = None if head is None else _long_form(args, head)
    flaws, names = list[Flaw](), dict[str, int]()
    if form is None:
        form = _wide_form(args, head, len(lines[0][1] if head is None else head), flaws)
    rows, values = list[tuple[int, ...]](), list[tuple[float, ...]]()
    for line, row in lines:
        try:
            of = form.entity(row, names)
        except CellError as error:
            flaws.append(error.flaw(line))
            continue
        for sample in form.samples:
            try:
                at_ms, covers_ms, numbers = form.read(row, sample)
            except CellError as error:  # noqa: PERF203 (each is named)
                flaws.append(error.flaw(line))
            else:
                rows.append((of, at_ms, line, sample.place, covers_ms))
                values.append(numbers)
    if not rows and not flaws:
        raise _misuse(args.file, "it has no line with a value", "name a file that has some")
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    series = Series(
        entities=tuple(names),
        of=table[:, 0],
        at_ms=table[:, 1],
        values=np.array(values, dtype=float).reshape(len(table), len(form.resources)),
        covers_ms=table[:, 4],
        lines=table[:, 2],
        columns=table[:, 3],
    )
    return form, series, flaws


def _misuse(path: Path, why: str, next_step: str) -> MisuseError:
    return MisuseError(f"{path} can't be read as a trace", why=why, next_step=next_step)


def _table(path: Path) -> tuple[list[str] | None, list[tuple[int, Sequence[Any]]]]:
    """Header (None: it has none) and the lines, each with its number from 1.

    A file is Parquet, or text (.csv, .txt or either with .gz) with commas, semicolons or tabs.
    """
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            columns = [column.to_pylist() for column in table.columns]
            return table.column_names, list(enumerate(zip(*columns, strict=True), start=1))
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8-sig", newline=""
        ) as file:
            separator = max(",;\t", key=file.readline().count)
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            lines: list[tuple[int, Sequence[Any]]] = [
                (reader.line_num, row) for row in reader if row
            ]
    except _UNREADABLE as error:
        raise _misuse(path, f"{type(error).__name__}: {error}", "name a readable file") from None
    if not lines:
        raise _misuse(path, "it is empty", "name a file that has lines")
    first = lines[0][1]
    is_entity = first[0].strip().lower() in _ENTITIES  # then times may follow
    if is_entity or not any(map(_is_number, first[1:])):
        return [cell.strip() for cell in first], lines[1:]
    return None, lines


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(args: argparse.Namespace, head: list[str]) -> tuple[str, str]:
    """The columns of entity and time; time "" = a wide table."""
    path = args.file
    twice = next((name for at, name in enumerate(head) if name in head[:at]), None)
    if twice is not None:
        raise _misuse(path, f"line 1: two columns are named {twice!r}", "name each one once")
    entity = args.entity or next((name for name in head if name.lower() in _ENTITIES), "")
    time = args.time or next((name for name in head if name.lower() in _TIMES), "")
    for what, name in (("--entity", entity), ("--time", time), ("--covers", args.covers)):
        if name and name not in head:
            raise _misuse(path, f"it has no column {name!r}", f"{what} is one of {_some(head)}")
    if time and not entity:
        raise _misuse(
            path,
            "nothing says which column is the entity",
            f"say --entity COLUMN, one of {_some(head)}",
        )
    return entity, time


def _resources(
    args: argparse.Namespace, head: Sequence[str], keys: Sequence[str]
) -> Sequence[TraceColumn]:
    """Return the named resources, or those with kind and unit in the column's name."""
    for one in args.resource:
        if one.column not in head:
            raise _misuse(args.file, f"it has no column {one.column!r}", f"it has {_some(head)}")
    found = args.resource or list(filter(None, map(_resource_named, head)))
    if not found:
        free = [name for name in head if name not in (*keys, args.covers)]
        raise _misuse(
            args.file,
            f"no column tells resource and unit (as cpu_percent does); it has {_some(free)}",
            f"say --resource COLUMN=KIND:UNIT, e.g. {free[0] if free else 'cpu'}=cpu:percent; "
            f"kinds: {', '.join(UNITS)}",
        )
    return found


def _resource_named(name: str) -> TraceColumn | None:
    """Return kind and unit by a column's name, None if it has none.

    Examples: cpu_percent, bytes_in [KB/s], msg_rate_in.
    """
    low = name.lower().replace("msg_rate", "msg").strip(" ])")
    kind, _, unit = low.replace(" [", "|").replace(" (", "|").partition("|")
    if not unit:
        kind, _, unit = low.rpartition("_")
    if low in ("msg", "msg_in", "msg_out"):
        kind, unit = low, "msg/s"
    is_known = kind in UNITS and unit in UNITS[kind]
    return TraceColumn(column=name, kind=kind, unit=unit) if is_known else None


def _long_form(args: argparse.Namespace, head: list[str]) -> _TableForm | None:
    """The form of a table with a row an entity and time; None for one without times."""
    entity, time = _named(args, head)
    if not time:
        return None
    resources = _resources(args, head, (entity, time))
    columns = [one.column for one in resources]
    return _TableForm(
        samples=[_Sample(0, 0, [head.index(name) for name in columns])],
        resources=resources,
        width=len(head),
        scale=_time_scale(args.time_unit, time),
        is_wide=False,
        entity_at=head.index(entity),
        time_at=head.index(time),
        covers_at=head.index(args.covers) if args.covers else -1,
        left=[name for name in head if name not in (*columns, entity, time, args.covers)],
    )


def _wide_form(
    args: argparse.Namespace, head: list[str] | None, width: int, flaws: list[Flaw]
) -> _TableForm:
    """The form of a table whose columns are times; flaws: takes those of the header."""
    if len(args.resource) != 1:
        named = f"{len(args.resource)} are named" if args.resource else "nothing says which"
        raise _misuse(
            args.file,
            f"a table without a column of times has one resource, and {named}",
            f"say --resource KIND:UNIT, e.g. cpu:percent; kinds: {', '.join(UNITS)}",
        )
    if head is None and not args.step:
        raise _misuse(
            args.file,
            "its columns have no times: nothing says how long a step is",
            "say --step TIME, e.g. --step 5m",
        )
    scale, places = _time_scale(args.time_unit, ""), range(1, width)
    times = [(at - 1) * args.step for at in places]
    if head is not None and not args.step:
        for at in places:
            try:
                times[at - 1] = _time(head[at], scale, at + 1)
            except CellError as error:  # noqa: PERF203 (each is named)
                flaws.append(error.flaw(1))
    samples = [_Sample(at + 1, at_ms, (at,)) for at, at_ms in zip(places, times, strict=True)]
    return _TableForm(samples=samples, resources=args.resource, width=width, scale=scale)


def _value(cell: Any, column: int) -> float:
    """A number; NaN for nothing. Raises CellError for text."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError):
        raise CellError(column, f"{str(cell)[:40]!r} is no number") from None


def _time_scale(unit: str, column: str) -> float:
    """Return the unit's length in ms, 0 = unknown. column: its name may end with it."""
    units = (one for one in ("ms", "us", "ns", "s") if column.lower().endswith(f"_{one}"))
    return TIME_UNITS.get(unit or next(units, ""), 0.0)


def _time(cell: Any, scale: float, column: int) -> int:
    """Return ms since 1970 or the file's own origin; a time without a zone is UTC.

    Raises CellError.
    """
    if isinstance(cell, str) and not _is_number(cell):
        try:
            cell = datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
        except ValueError:
            what = f"{cell[:40]!r} is no time" if cell.strip() else "missing time"
            raise CellError(column, what) from None
    if isinstance(cell, datetime):
        aware = cell if cell.tzinfo else cell.replace(tzinfo=timezone.utc)
        return round(aware.timestamp() * 1_000)
    try:
        at = math.nan if cell is None or isinstance(cell, date) else float(cell)
    except (TypeError, ValueError):  # a time of day, a duration, bytes or a list of Parquet
        raise CellError(column, f"{str(cell)[:40]!r} is no time") from None
    if not math.isfinite(at):
        raise CellError(column, "missing time")
    if abs(at * (scale or 1.0)) > _TIME_MAX_MS:
        raise CellError(column, f"{cell} is no time: it is further away than any clock tells")
    if not scale:
        raise CellError(
            column, f"{cell} has an unknown unit: say --time-unit, {' or '.join(TIME_UNITS)}"
        )
    return round(at * scale)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")  # noqa: PLR2004 enough to see


_ADVICE = (
    "correct them; times rise within an entity, --gaps hold or --gaps zero says what stands where "
    "a value is missing"
)
_LONG_RUN_MS = 3_600_000
_TRIGGER_MS = 2_000
_NAME_BYTES = 8


def _fold(args: argparse.Namespace) -> tuple[Folded, list[str]]:
    """Return the file's load, folded into bundles, and sentences that describe it.

    Raises MisuseError, with the line of every flaw.
    """
    path = args.file
    form, series, cell_flaws = read_trace(args)
    step_ms = args.step or step_of(series)
    if not cell_flaws and step_ms < 1:
        raise MisuseError(
            f"{path} has one time only",
            why="nothing says how long an interval is",
            next_step="say --step TIME, e.g. --step 5m",
        )
    flaws = [*cell_flaws, *flaws_of(series, max(1, step_ms), args.gaps)]
    if cell_flaws:  # an unreadable cell is not reported as a gap, too
        flaws = [one for one in flaws if not one.what.startswith("gap: ")]
    if flaws:
        more = [f"and {len(flaws) - _SHOWN} more"] if len(flaws) > _SHOWN else []
        raise MisuseError(
            f"{path} is not imported: {len(flaws)} flaw{'s' * (len(flaws) > 1)}",
            why=CAUSE_BREAK.join([*map(str, flaws[:_SHOWN]), *more]),
            next_step=_ADVICE,
        )
    try:
        grid = _part(on_grid(series, step_ms, args.gaps), args)
        folded = fold(grid, series.entities, form.resources, (args.namespace, args.bundles))
    except SpanError as error:
        raise MisuseError(
            f"{path} is too long for its step",
            why=str(error),
            next_step="correct a time that is far off, or say a longer --step",
        ) from None
    except FoldingError as error:
        raise MisuseError(
            f"{path} has no load", why=str(error), next_step="name a resource that counts as load"
        ) from None
    empty = int((folded.topics == 0).sum())
    said = [
        f"{len(series.entities)} entities, {len(grid.values)} intervals of "
        f"{duration(step_ms)}, folded into {args.bundles} bundles"
        + (f", {empty} of them without an entity" if empty else ""),
        *folded.notes,
        *(f"{name} is left out: nobody said what it is" for name in form.left),
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


def scenario_text(about: str, length_ms: int, args: argparse.Namespace) -> str:
    """A scenario that replays the recording. about: a sentence. Raises MisuseError."""
    where = os.path.relpath(args.out.absolute(), args.scenario.absolute().parent)
    load = np.format_float_positional(args.load, trim="-")  # the grammar has no exponents
    is_long = length_ms >= _LONG_RUN_MS
    trigger = f"set pipeline.trigger_ms={_TRIGGER_MS}\n" if is_long else ""
    text = f"""\
title {args.out.stem}: recorded load on {args.brokers} brokers
# {about}.
brokers {args.brokers}
namespace {args.namespace} bundles={args.bundles} topics=1
own {args.namespace} all all
load {args.namespace} replay {load}% file={where}
{trigger}run {format_ms(length_ms)} sample={"1m" if is_long else "10s"}
expect doubles == 0
expect unsettled == 0
"""
    try:
        parse_scenario(text)
    except ScenarioError as error:
        raise MisuseError(
            f"{args.scenario} would be no scenario",
            why=f"{error.what}; expected {error.expected}",
            next_step="correct --out (without blanks), --brokers, --bundles or --for",
        ) from None
    return text


def hashed_rows(rows: Iterable[Mapping[str, Any]], key: bytes) -> list[dict[str, Any]]:
    """Return rows of `load_history` with hashes as names.

    Hashed are clusters, brokers, tenants and namespaces; hash ranges, times and loads stay. The
    same key gives the same hashes. Its holder can test whether a name is among them.
    """

    def hidden(kind: str, name: str) -> str:
        digest = hashlib.blake2b(f"{kind} {name}".encode(), key=key, digest_size=_NAME_BYTES)
        return f"{kind}-{digest.hexdigest()}"

    def bundle(name: str) -> str:
        space = parse_bundle(name)[0]
        tenant, bounds = space.partition("/")[0], name.rpartition("/")[2]
        return f"{hidden('tenant', tenant)}/{hidden('namespace', space)}/{bounds}"

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
_BUNDLES_MAX = 1_000_000
_KEY_BYTES = 32
_COUNT = partial(whole_number, most=_BUNDLES_MAX)


def _import(args: argparse.Namespace) -> int:
    folded, said = _fold(args)
    length_ms = len(folded.rates) * folded.step_ms
    text = scenario_text(said[0], length_ms, args) if args.scenario else ""
    write_recording(args.out, history_rows(folded, args.brokers, args.load))
    if args.scenario:
        write_text(args.scenario, text)
    written = [str(path) for path in (args.out, args.scenario) if path]
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
    try:
        hashed = hashed_rows(rows, key)
    except InvalidNameError as error:
        raise CommandError(
            f"{place} has names that can't be hidden", why=str(error), next_step="correct them"
        ) from None
    write_recording(args.out, hashed)
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
        raise argparse.ArgumentTypeError(
            f"{kind!r} is no kind of resource; there are {', '.join(UNITS)}"
        )
    if unit.lower() not in units:
        raise argparse.ArgumentTypeError(
            f"{unit!r} is an unknown unit of {kind}: one of {', '.join(units)}"
        )
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
            help="first owners of the bundles, in turn",
        ),
        argument("--namespace", type=_namespace, default="trace/load", metavar="NAME"),
        argument(
            "--resource",
            action="append",
            default=[],
            type=_resource,
            metavar="[COLUMN=]KIND:UNIT",
            help="kind and unit, e.g. cpu_usage=cpu:MHz; for a wide table without COLUMN=",
        ),
        argument("--entity", default="", metavar="COLUMN"),
        argument("--time", default="", metavar="COLUMN"),
        argument("--time-unit", choices=tuple(TIME_UNITS), default="", help="of bare numbers"),
        argument(
            "--covers",
            default="",
            metavar="COLUMN",
            help="column of the ms before its time that a row covers",
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
