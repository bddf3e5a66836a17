"""Make a recording of a table of series, or export what a cluster has recorded.

import: CSV (also .gz) or Parquet, entity x time x resources, long or wide, becomes a recording that
`simulate` and `backtest` replay; entities are folded into bundles by the hash of their
names. Nothing is written of a file that has a flaw; each is told with its line. export: what
load_history has, names replaced by keyed hashes. docs/traces.md says more.
"""

import argparse
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, Exit, MisuseError, add_json_option, answer
from jobs.operating.commanding import command_actions
from jobs.operating.connection_options import add_stack_arguments, connection_options
from jobs.operating.simulations import write_text
from jobs.operating.text_format import parse_duration_ms
from jobs.operating.trace_files import TIME_UNITS, TraceReading, read_trace, refuse_flaws
from jobs.parser import whole_number
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.model.times import duration
from lbcore.sim.load.recording import (
    UNITS,
    Folded,
    FoldingError,
    Gaps,
    Grid,
    SpanError,
    TraceColumn,
    dealt,
    flaws_of,
    fold,
    on_grid,
    step_of,
)
from lbcore.sim.scenario.tokens import ScenarioTokenError, format_ms, number

_ADVICE = (
    "correct them; times rise within an entity, --gaps hold or --gaps zero says what stands where "
    "a value is missing"
)
_LONG_RUN_MS = 3_600_000
_TRIGGER_MS = 2_000
_NAME_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """A trace as load of bundles. said: sentences on what it came to."""

    folded: Folded
    said: tuple[str, ...]

    @property
    def length_ms(self) -> int:
        """Length of the imported trace, ms."""
        return len(self.folded.rates) * self.folded.step_ms


def import_trace(args: argparse.Namespace, how: TraceReading) -> ImportedTrace:
    """Return the file's load, folded; raises MisuseError, with the line of every flaw."""
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
    return ImportedTrace(folded=folded, said=tuple(said))


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
    path: Path, recording: Path, imported: ImportedTrace, args: argparse.Namespace
) -> None:
    """A scenario that replays the recording."""
    where = os.path.relpath(recording.absolute(), path.absolute().parent)
    long = imported.length_ms >= _LONG_RUN_MS
    lines = [
        f"title {recording.stem}: recorded load on {args.brokers} brokers",
        f"# {imported.said[0]}.",
        f"brokers {args.brokers}",
        f"namespace {args.namespace} bundles={args.bundles} topics=1",
        f"own {args.namespace} all all",
        f"load {args.namespace} replay {args.load:g}% file={where}",
        *([f"set pipeline.trigger_ms={_TRIGGER_MS}"] if long else []),
        f"run {format_ms(imported.length_ms)} sample={'1m' if long else '10s'}",
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action each."""
    actions = command_actions(parser)
    _add_import(actions.add_parser("import", help="a table of series becomes a recording"))
    _add_export(actions.add_parser("export", help="what a cluster recorded, without its names"))


def run(args: argparse.Namespace) -> int:
    """Import or export."""
    return int(args.carry_out(args))


def _add_import(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser, default=argparse.SUPPRESS)
    parser.set_defaults(carry_out=_import)
    parser.add_argument("file", type=Path, metavar="FILE", help=".csv, .csv.gz or .parquet")
    parser.add_argument(
        "--out", type=_parquet, required=True, metavar="FILE.parquet", help="the recording"
    )
    parser.add_argument("--bundles", type=_COUNT, required=True, metavar="N", help="fold into N")
    parser.add_argument(
        "--brokers", type=_COUNT, default=10, metavar="N", help="who owns them at first, in turn"
    )
    parser.add_argument("--namespace", type=_namespace, default="trace/load", metavar="NAME")
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        type=_resource,
        metavar="[COLUMN=]KIND:UNIT",
        help="what a column is, e.g. cpu_usage=cpu:MHz; of a wide table without a column",
    )
    parser.add_argument("--entity", default="", metavar="COLUMN")
    parser.add_argument("--time", default="", metavar="COLUMN")
    parser.add_argument(
        "--time-unit", choices=tuple(TIME_UNITS), default="", help="of bare numbers"
    )
    parser.add_argument(
        "--covers", default="", metavar="COLUMN", help="ms before its time that a row stands for"
    )
    parser.add_argument("--step", type=parse_duration_ms, default=0, metavar="TIME")
    parser.add_argument(
        "--gaps", type=Gaps, choices=tuple(Gaps), default=Gaps.REFUSE, metavar="refuse|hold|zero"
    )
    parser.add_argument("--from", type=parse_duration_ms, default=0, dest="from_ms", metavar="TIME")
    parser.add_argument("--for", type=parse_duration_ms, default=0, dest="for_ms", metavar="TIME")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="write one that replays it")
    parser.add_argument(
        "--load",
        type=_load,
        default=45.0,
        metavar="PERCENT",
        help="its mean, of what the brokers can carry (default 45%%)",
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser, default=argparse.SUPPRESS)
    parser.set_defaults(carry_out=_export)
    parser.add_argument("--out", type=_parquet, required=True, metavar="FILE.parquet")
    parser.add_argument("--last", type=parse_duration_ms, default=0, metavar="TIME")
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="a trace's file, not the tables"
    )
    parser.epilog = (
        f"the key of the hashes is {KEY}, or the content of {KEY}_FILE; without one it is drawn "
        "and forgotten, and nobody can tell later whether a name is in it"
    )
    add_stack_arguments(parser, with_kafka=False)


def _import(args: argparse.Namespace) -> int:
    how = TraceReading(
        entity=args.entity,
        time=args.time,
        time_unit=args.time_unit,
        covers=args.covers,
        resources=tuple(args.resource),
        step_ms=args.step,
    )
    imported = import_trace(args, how)
    write_recording(args.out, dealt(imported.folded, args.brokers, args.load))
    if args.scenario:
        write_scenario(args.scenario, args.out, imported, args)
    written = [str(args.out), *([str(args.scenario)] if args.scenario else [])]
    value = {"written": written, "said": imported.said, "length_ms": imported.length_ms}
    answer(args, value, [*imported.said, f"written: {', '.join(written)}"])
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
