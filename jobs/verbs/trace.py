"""Real load: make a recording of a table of series, or give away what a cluster has recorded.

import: CSV (also .gz) or Parquet, entity x time x resources, long or wide, becomes a recording that
`simulate` and `backtest` replay; entities are folded into bundles by the hash of their
names. Nothing is written of a file that has a flaw; each is told with its line. export: what
load_history has, names replaced by keyed hashes. docs/traces.md says more.
"""

import argparse
import os
from functools import partial
from pathlib import Path

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, Exit, add_json_option, answer
from jobs.operating.command_words import command_actions
from jobs.operating.durations import parse_duration_ms
from jobs.operating.stack_words import add_stack_arguments, whereabouts
from jobs.operating.trace_files import LAYOUTS, TIME_UNITS, TraceReading
from jobs.operating.tracing import (
    TraceRequest,
    hashed_rows,
    import_trace,
    recording_rows,
    write_recording,
    write_scenario,
)
from jobs.parser import whole_number
from lbcore.model.names import InvalidNameError, parse_bundle
from lbcore.model.times import duration
from lbcore.sim.load.folding import UNITS, TraceColumn
from lbcore.sim.load.series import Gaps
from lbcore.sim.scenario.words import WordError, number

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
    parser.add_argument("--layout", choices=LAYOUTS, default="", help="default: by the header")
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
    parser.epilog = (
        f"the key of the hashes is {KEY}, or the content of {KEY}_FILE; without one it is drawn "
        "and forgotten, and nobody can tell later whether a name is in it"
    )
    add_stack_arguments(parser, with_kafka=False)


def _import(args: argparse.Namespace) -> int:
    how = TraceReading(
        layout=args.layout,
        entity=args.entity,
        time=args.time,
        time_unit=args.time_unit,
        covers=args.covers,
        resources=tuple(args.resource),
        step_ms=args.step,
    )
    wanted = TraceRequest(
        namespace=args.namespace,
        bundles=args.bundles,
        brokers=args.brokers,
        mean_percent=args.load,
        gaps=args.gaps,
        from_ms=args.from_ms,
        for_ms=args.for_ms,
    )
    imported = import_trace(args.file, how, wanted)
    write_recording(args.out, recording_rows(imported, wanted))
    if args.scenario:
        write_scenario(args.scenario, args.out, imported, wanted)
    written = [str(args.out), *([str(args.scenario)] if args.scenario else [])]
    value = {"written": written, "said": imported.said, "length_ms": imported.length_ms}
    answer(args, value, [*imported.said, f"written: {', '.join(written)}"])
    return Exit.DONE


def _export(args: argparse.Namespace) -> int:
    where = whereabouts(args)
    rows = read_history(where.reader().root, where.cluster)
    newest_ms = max((int(row["minute_ms"]) for row in rows), default=0)
    rows = [row for row in rows if not args.last or row["minute_ms"] > newest_ms - args.last]
    if not rows:
        raise CommandError(
            f"{where.tables} has recorded nothing to give away",
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
    except WordError as error:
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
