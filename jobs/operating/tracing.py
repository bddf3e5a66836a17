"""Traces: what others measured becomes a recording, and what a cluster recorded is given away.

Decides what is written, and that nothing is unless all of it is right; `jobs.operating.trace_files`
reads, `lbcore.sim.load.series` and `lbcore.sim.load.folding` make load of it. A recording is one
Parquet file with rows as `load_history` has them.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from jobs.console import CommandError, MisuseError
from jobs.operating.simulations import write_text
from jobs.operating.trace_files import TraceReading, read_trace, refuse_flaws
from lbcore.model.names import parse_bundle
from lbcore.model.times import duration
from lbcore.sim.load.folding import Folded, FoldingError, dealt, fold
from lbcore.sim.load.series import Gaps, Grid, SpanError, flaws_of, on_grid, step_of
from lbcore.sim.scenario.words import format_ms

_ADVICE = (
    "correct them; times rise within an entity, --gaps hold or --gaps zero says what stands where "
    "a value is missing"
)
_LONG_RUN_MS = 3_600_000
_TRIGGER_MS = 2_000
_NAME_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """Request for the import of a trace.

    from_ms, for_ms: the part of it, 0 = its start, to its end. mean_percent: mean of the load, as a
    percentage of the brokers' capacity.
    """

    namespace: str
    bundles: int
    brokers: int
    mean_percent: float = 45.0
    gaps: Gaps = Gaps.REFUSE
    from_ms: int = 0
    for_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """A trace as load of bundles. said: sentences on what it came to."""

    folded: Folded
    said: tuple[str, ...]

    @property
    def length_ms(self) -> int:
        """Length of the imported trace, ms."""
        return len(self.folded.rates) * self.folded.step_ms


def import_trace(path: Path, how: TraceReading, wanted: TraceRequest) -> ImportedTrace:
    """A file's load, folded; raises MisuseError, which names every flaw with its line."""
    found = read_trace(path, how)
    series = found.series
    step_ms = how.step_ms or step_of(series)
    if not found.flaws and step_ms < 1:
        raise MisuseError(
            f"{path} has one time only",
            why="nothing says how long an interval is",
            next_step="say --step TIME, e.g. --step 5m",
        )
    refuse_flaws(path, [*found.flaws, *flaws_of(series, max(1, step_ms), wanted.gaps)], _ADVICE)
    try:
        grid = _part(path, on_grid(series, step_ms, wanted.gaps), wanted)
        folded = fold(grid, series.entities, found.resources, (wanted.namespace, wanted.bundles))
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
        f"{duration(step_ms)}, folded into {wanted.bundles} bundles"
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


def recording_rows(imported: ImportedTrace, wanted: TraceRequest) -> Iterable[Mapping[str, Any]]:
    """The recording's rows: bundles dealt in turn to the brokers."""
    return dealt(imported.folded, wanted.brokers, wanted.mean_percent)


def write_scenario(
    path: Path, recording: Path, imported: ImportedTrace, wanted: TraceRequest
) -> None:
    """A scenario that replays the recording."""
    where = os.path.relpath(recording.absolute(), path.absolute().parent)
    long = imported.length_ms >= _LONG_RUN_MS
    lines = [
        f"title {recording.stem}: recorded load on {wanted.brokers} brokers",
        f"# {imported.said[0]}.",
        f"brokers {wanted.brokers}",
        f"namespace {wanted.namespace} bundles={wanted.bundles} topics=1",
        f"own {wanted.namespace} all all",
        f"load {wanted.namespace} replay {wanted.mean_percent:g}% file={where}",
        *([f"set pipeline.trigger_ms={_TRIGGER_MS}"] if long else []),
        f"run {format_ms(imported.length_ms)} sample={'1m' if long else '10s'}",
        "expect doubles == 0",
        "expect unsettled == 0",
    ]
    write_text(path, "\n".join([*lines, ""]))


def hashed_rows(rows: Iterable[Mapping[str, Any]], key: bytes) -> list[dict[str, Any]]:
    """Rows of `load_history` without a name: clusters, brokers, tenants, namespaces are hashes.

    key: whoever has it can tell whether a name is in it; the same key gives the same hashes. Hash
    ranges, times and loads stay.
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


def _part(path: Path, grid: Grid, wanted: TraceRequest) -> Grid:
    """The part of the trace that is asked for."""
    first = wanted.from_ms // grid.step_ms
    count = max(1, wanted.for_ms // grid.step_ms) if wanted.for_ms else len(grid.values)
    values = grid.values[first : first + count]
    if not len(values):
        raise MisuseError(
            f"{path} has nothing there",
            why=f"it is {duration(len(grid.values) * grid.step_ms)} long",
            next_step="choose an earlier --from",
        )
    start_ms = grid.start_ms + first * grid.step_ms
    return Grid(start_ms=start_ms, step_ms=grid.step_ms, values=values, partly=grid.partly)
