"""Comparison of other strategies on the load that a real run has recorded.

Reads load_history and brokers of a run's tables; the first line is what really happened, the others
are runs of the simulator on the production balancer, judged as `simulate --compare` judges. as-set:
the cluster's own settings, changes by commands included.
"""

import argparse
import base64
import http.client
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from jobs.adapters.delta.recordings import Row, read_history
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.http.client import HttpRequest, connection_to, exchange
from jobs.adapters.processes.clocks import wall_ms
from jobs.atomic_file import read_text_file
from jobs.console import CommandError, Exit, MisuseError, answer, format_instant, note
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.operating.simulations import (
    CONTESTANTS,
    WORKERS_OPTION,
    ManyRuns,
    config_of,
    note_wrong,
)
from jobs.operating.status import changed_settings
from jobs.parser import argument, arguments, group, parse_duration_ms
from lbcore.assess.prometheus import RATES, UNLOADS, USAGES, Counters, PrometheusFold
from lbcore.config.cluster import AUTO, BALLAST
from lbcore.config.tree import Config
from lbcore.model.bundles import even_boundaries
from lbcore.model.times import DAY_MS, MINUTE_MS, duration
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.bounds import BAR, BoundComparison, compare_run_with_bound
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.load.recording import Recording, RecordingError, make_recording
from lbcore.sim.reports.backtest import (
    MOVE_PRICE,
    History,
    backtest_scenario,
    compare_history_with_bound,
    make_history,
    recorded_metrics,
    run_cost,
)
from lbcore.sim.reports.report import format_value
from lbcore.sim.scenario.model import Scenario

EdgesOf = Callable[[str], Sequence[int]]
_ANSWER_BYTES = 256 * 1_048_576
_STEPS = 360
_TIMEOUT_S = 60.0
_SHOWN = 200
_SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("broker", pa.string()),
        ("minute_ms", pa.int64()),
        ("percent", pa.list_(pa.float64())),
        ("bundles", pa.list_(pa.string())),
        *((name, pa.list_(pa.float64())) for name in ("msg_rate_in", "msg_rate_out")),
        *((name, pa.list_(pa.float64())) for name in ("msg_throughput_in", "msg_throughput_out")),
        ("topics", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOfPrometheus:
    """Trace that was read.

    unloads: bundles that Pulsar's own load manager unloaded meanwhile.
    """

    path: Path
    rows: int
    series: int
    skipped: int
    unloads: float


PROMETHEUS_OPTIONS = group(
    "Prometheus",
    argument("--prometheus", default="", metavar="URL", help="that scraped the brokers"),
    argument(
        "--since", type=parse_duration_ms, default=7 * DAY_MS, metavar="TIME", help="default 7d"
    ),
    argument("--step", type=parse_duration_ms, default=0, metavar="TIME"),
    argument(
        "--selector", default="", metavar="LABELS", help='of the cluster, e.g. cluster="east"'
    ),
    argument(
        "--namespace-bundles", type=int, default=4, metavar="N", help="of a namespace (default 4)"
    ),
    argument(
        "--trace", type=Path, default=Path("ballast-prometheus.parquet"), metavar="FILE.parquet"
    ),
    argument("--prometheus-auth-file", type=Path, metavar="FILE", help="user:password, or a token"),
)
"""Prometheus as the source of the load."""


def write_trace(
    args: argparse.Namespace, now_ms: int = 0, edges_of: EdgesOf | None = None
) -> TraceOfPrometheus:
    """Write the trace that the options name. Raises CommandError and MisuseError.

    Asks /api/v1/query_range, a day at a time, so that memory does not grow with the length. Nothing
    follows a redirect: credentials go to the given address only. The trace is a recording as
    `ballast trace` writes it, and can be used again with --recording.

    edges_of: a namespace's bundle boundaries, () = not known; None: of none.
    """
    if min(args.since, args.namespace_bundles) <= 0:
        raise MisuseError(
            "nothing to read from Prometheus",
            why="--since and --namespace-bundles must be above 0",
            next_step="give for instance --since 7d --namespace-bundles 16",
        )
    step_ms = args.step or max(MINUTE_MS, -(-args.since // _STEPS // MINUTE_MS) * MINUTE_MS)
    end_ms = (now_ms or wall_ms()) // step_ms * step_ms
    begin_ms = end_ms - args.since // step_ms * step_ms
    even = even_boundaries(args.namespace_bundles)
    edges = cache(lambda namespace: (edges_of and edges_of(namespace)) or even)
    chunk_ms = max(step_ms, DAY_MS // step_ms * step_ms)  # one grid for all
    counted: Counters = {}
    rows = series = skipped = 0
    unloads = 0.0
    part = args.trace.with_name(f".{args.trace.name}.part")
    try:
        with pyarrow.parquet.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
            for first_ms in range(begin_ms, end_ms, chunk_ms):
                last_ms = min(first_ms + chunk_ms, end_ms + step_ms) - step_ms
                fold = PrometheusFold(edges_of=edges, counters=counted)
                _read_into(fold, args, (first_ms, last_ms, step_ms))
                counted = fold.last_counted()
                found = list(fold.history_rows(""))
                writer.write_table(pa.Table.from_pylist(found, schema=_SCHEMA))
                rows, series = rows + len(found), max(series, fold.series)
                skipped, unloads = max(skipped, fold.skipped), unloads + fold.unloads()
                left = duration(end_ms - last_ms)
                note(f"Prometheus: {len(found)} rows, {fold.series} series; {left} left")
        if rows:
            part.replace(args.trace)
    except OSError as error:
        raise CommandError(
            f"{args.trace} can't be written", why=str(error), next_step="name another --trace"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    if not rows:
        raise CommandError(
            f"{args.prometheus} has no load of Pulsar's brokers",
            why=f"no series of {RATES[0]} in the last {duration(args.since)}"
            + (f" with {args.selector}" if args.selector else ""),
            next_step="scrape the brokers' /metrics/ with exposeTopicLevelMetricsInPrometheus=true,"
            " or correct --since and --selector",
        )
    return TraceOfPrometheus(
        path=args.trace, rows=rows, series=series, skipped=skipped, unloads=unloads
    )


def _read_into(fold: PrometheusFold, args: argparse.Namespace, span: tuple[int, int, int]) -> None:
    clusters: set[str] = set()
    for name in (*RATES, *USAGES, UNLOADS):
        for labels, samples in _series(args, f"{name}{{{args.selector}}}", span):
            clusters.add(labels.get("cluster", ""))
            fold.take({**labels, "__name__": name}, samples)
    if len(clusters) > 1:
        raise MisuseError(
            f"{args.prometheus} has the load of several clusters",
            why=f"there are {', '.join(sorted(clusters))}",
            next_step="say which with --selector 'cluster=\"NAME\"'",
        )


def _series(
    args: argparse.Namespace, query: str, span: tuple[int, int, int]
) -> Iterator[tuple[dict[str, str], list[tuple[int, float]]]]:
    start, end, step = (ms / 1_000 for ms in span)
    asked = urlencode({"query": query, "start": start, "end": end, "step": step})
    answer = _asked(args, f"/api/v1/query_range?{asked}")
    try:
        for one in json.loads(answer)["data"]["result"]:
            values = [(round(at * 1_000), float(value)) for at, value in one["values"]]
            yield {str(key): str(text) for key, text in one["metric"].items()}, values
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_prometheus(args.prometheus, f"{type(error).__name__}: {error}") from None


def _asked(args: argparse.Namespace, path: str) -> bytes:
    url = args.prometheus.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise MisuseError(
            f"{url} is no address of Prometheus",
            why="it must be like http://prometheus:9090",
            next_step="give the address of its API without /api/v1",
        )
    headers = {"Accept": "application/json"}
    if args.prometheus_auth_file is not None:
        try:
            text = read_text_file(args.prometheus_auth_file).strip()
        except (OSError, ValueError) as error:
            raise CommandError(
                "the credentials can't be read", why=str(error), next_step="correct the file"
            ) from None
        basic = f"Basic {base64.b64encode(text.encode()).decode()}"
        headers["Authorization"] = basic if ":" in text else f"Bearer {text}"
    asked = HttpRequest(target=parts.path + path, headers=headers)
    try:
        answer = exchange(connection_to(url, _TIMEOUT_S), asked, _ANSWER_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CommandError(
            f"{url} does not answer",
            why=str(error) or type(error).__name__,
            next_step="check the address; a longer --step makes answers smaller",
        ) from None
    if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise CommandError(
            f"{url} does not let us in",
            why=f"HTTP {answer.status}",
            next_step="give user:password or a token with --prometheus-auth-file",
        )
    if answer.status != http.client.OK or "json" not in answer.kind:
        said = answer.content[:_SHOWN].decode("utf-8", "replace")
        where = f", a redirect to {answer.location}" if answer.location else ""
        raise _no_prometheus(url, f"HTTP {answer.status} {answer.kind}{where}: {said}")
    return answer.content


def _no_prometheus(url: str, why: str) -> CommandError:
    return CommandError(
        f"{url} does not answer as Prometheus does",
        why=why,
        next_step="give the address of its API; behind a login page, the one that takes a token"
        " with --prometheus-auth-file",
    )


def trace_lines(found: TraceOfPrometheus) -> Iterator[str]:
    """Yield what was read, and what the cluster's load manager did meanwhile."""
    yield f"trace: {found.path}, {found.rows} rows of {found.series} series"
    if found.skipped:
        yield f"{found.skipped} series were left out: Pulsar's own, or without a broker or topic"
    yield f"Pulsar's own load manager unloaded {found.unloads:.0f} bundles meanwhile"


RECORDED = "recorded"
AS_SET = "as-set"
BIAS = """\
open loop: load is attributed to bundles as it was recorded and goes with a bundle to its new owner;
what clients would have done otherwise is not in it. Rates are the balancer's averages of 10
reports, once an interval: peaks were higher, and moves that were undone within one are missing
from the first line. Capacities and failure domains are today's: what they were is not kept."""
COST_LEGEND = f"""\
cost: by how many percent the most loaded broker exceeds what nobody can avoid, in the mean, and
{MOVE_PRICE:g} a percent of the bundles that moves in an hour; bound: the least imbalance
(imb, highest over mean) that whole bundles could have had, over: the imbalance over it; above:
how long it was above {BAR:g}, nobody: of that, how long nobody could have been below."""
STEP_MAX_MS = 300_000
"""A longer step of a recording is played in this time; load is constant within a step."""
COARSE = (
    "pipeline.trigger_ms=10000",
    "ownership.broker_timeout_ms=60000",
    "ownership.in_flight_timeout_ms=60000",
    "agent.heartbeat_interval_ms=15000",
    "signals.report_check_ms=10000",
)
"""Settings of a run that is played faster than it was: a batch and a report each ten seconds."""
NOTHING = "none"
"""Shown as the shedding strategy where shedding is off."""
_FLOOR = "floor_adjusted.mean"
_WIDE = 18
_COST_TITLES = ("cost", "imb mean", "bound", "over", "above", "nobody")
_RATIOS = ("imbalance.mean", "bound.mean", "over_bound.mean")
COLUMNS: Mapping[str, tuple[str, str]] = {
    "floor p50": ("floor_adjusted.p50", ""),
    "floor p95": ("floor_adjusted.p95", ""),
    "imb p50": ("imbalance.p50", ""),
    "imb p95": ("imbalance.p95", ""),
    "balanced": ("balanced", f"{BAR}"),
    "moves": ("moves", ""),
    "thrash": ("thrash", ""),
    "splits": ("splits", ""),
    "unserved": ("unserved", ""),
}
"""Title → metric and its argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Recorded run, ready to be balanced again. missing_ms: asked for, not recorded.

    pace: recorded time over played time, at least 1.
    """

    history: History
    recording: Recording
    scenario: Scenario
    missing_ms: int = 0
    pace: float = 1.0

    def settings(self, given: Sequence[str]) -> tuple[str, ...]:
        """Settings of its runs: COARSE where it is played faster, then the given."""
        return (*(COARSE if self.pace > 1.0 else ()), *given)


def read_recorded(reader: TableReader) -> tuple[list[Row], Sequence[Row]]:
    """Read the load that the tables recorded, and its brokers. Raises CommandError."""
    known = reader.rows("brokers", ("broker", "capacity", "failure_domain"))
    return read_history(reader.root, reader.cluster), known


def make_replay(
    place: TablePlace,
    recorded: Sequence[Row],
    *,
    brokers: Sequence[Row] = (),
    last_ms: int = 0,
    seed: int = 1,
) -> Replay:
    """Return a run to balance again. Raises CommandError.

    recorded: rows of load_history, read from `place`. brokers: what is known of them. last_ms: only
    the end, so long; 0 = all.
    """
    times = [int(row["minute_ms"]) for row in recorded] or [0]
    oldest_ms, newest_ms = min(times), max(times)
    missing_ms = max(0, oldest_ms - (newest_ms - last_ms + MINUTE_MS)) if last_ms else 0
    rows, pace = _at_pace(
        [row for row in recorded if not last_ms or row["minute_ms"] > newest_ms - last_ms]
    )
    if any(not row["broker"] for row in rows):
        raise CommandError(
            f"{place} can't be backtested",
            why="it does not say which broker had which bundle",
            next_step="replay it in a scenario, or import it anew with `ballast trace import`",
        )
    try:
        recording = make_recording(rows)
    except RecordingError as error:
        raise CommandError(
            f"{place} has recorded nothing to test on",
            why=str(error),
            next_step="let the job run for some minutes: it writes load_history each minute",
        ) from None
    history = make_history(rows, {row["broker"]: row["capacity"] for row in brokers})
    if not any(interval.there for interval in history.intervals):
        raise CommandError(
            f"{place} has recorded no broker that was there",
            why="every row says the same as the one before, about brokers without bundles",
            next_step="choose a longer stretch with --last",
        )
    domains = {row["broker"]: row["failure_domain"] for row in brokers}
    return Replay(
        history=history,
        recording=recording,
        scenario=backtest_scenario(history, recording, domains, seed),
        missing_ms=missing_ms,
        pace=pace,
    )


def _at_pace(rows: Sequence[Row]) -> tuple[Sequence[Row], float]:
    """Return rows with steps of at most STEP_MAX_MS; and recorded over played time."""
    times = sorted({int(row["minute_ms"]) for row in rows})
    step_ms = int(np.median(np.diff(times))) if times[1:] else 0
    if step_ms <= STEP_MAX_MS:
        return rows, 1.0
    pace = step_ms / STEP_MAX_MS
    first_ms = times[0]
    played = {at_ms: first_ms + round((at_ms - first_ms) / pace) for at_ms in times}
    return [{**row, "minute_ms": played[row["minute_ms"]]} for row in rows], pace


def acting(config: Config) -> Config:
    """Return the configuration of a cluster that carries its decisions out.

    Without what keeps them from it, as another authority does, or a person who approves. Quiet
    hours are by the time of the day, which a run does not have.
    """
    cluster = replace(
        config.cluster, authority=BALLAST, observe_only=False, approval=AUTO, quiet_hours=()
    )
    return replace(config, cluster=cluster)


def strategy_runs(
    replay: Replay, assignments: Sequence[str], base: Config, workers: int
) -> ManyRuns[dict[str, Any]]:
    """Return the runs of strategies on recorded load, by name as in `try_strategy`.

    Each with these settings upon the base. A strategy of the user's own is loaded where it runs.
    """
    bare = replace(base, own={})
    return ManyRuns(
        partial(try_strategy, replay, (tuple(assignments), bare)), workers, "strategies"
    )


def try_strategy(
    replay: Replay, upon: tuple[Sequence[str], Config], strategy: str
) -> dict[str, Any]:
    """Return one strategy's figures on the recording.

    strategy: a name, "" = as it was set.
    """
    config = config_of(replay.scenario, strategy, *upon)
    done = note_wrong(run_scenario(replay.scenario, config))
    found = {metric: measure_named(done, metric, about) for metric, about in COLUMNS.values()}
    floor, moves = measure_named(done, _FLOOR), found["moves"]
    return {
        "strategy": strategy or AS_SET,
        "hash": done.recorder.hash(),
        **found,
        "shedding": config.shedding.strategy if config.shedding.is_shedding else NOTHING,
        **_cost_columns(replay, floor, moves, compare_run_with_bound(done)),
    }


def recorded_row(replay: Replay) -> dict[str, Any]:
    """Return the run's own figures with the lower bound; None where unknown."""
    found = recorded_metrics(replay.history)
    return {
        "strategy": RECORDED,
        **{metric: found.get(metric) for metric, _ in COLUMNS.values()},
        "shedding": "",
        **_cost_columns(
            replay, found[_FLOOR], found["moves"], compare_history_with_bound(replay.history)
        ),
    }


def _cost_columns(
    replay: Replay, floor: float | None, moves: float | None, comparison: BoundComparison
) -> dict[str, Any]:
    """Return what a run cost, and its distance from the most even assignment."""
    length_ms = replay.recording.length_ms * replay.pace
    bundles = sum(space.bundles for space in replay.scenario.namespaces)
    return {
        "cost": run_cost(floor, moves or 0.0, bundles, length_ms),
        _FLOOR: floor,
        "imbalance.mean": comparison.imbalance,
        "bound.mean": comparison.bound,
        "over_bound.mean": comparison.over,
        "above_ms": round(comparison.above_ms * replay.pace),
        "nobody_ms": round(comparison.nobody_ms * replay.pace),
    }


def lines(replay: Replay, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For people: what was recorded, a line a strategy, and what to make of it."""
    intervals = replay.history.intervals
    bundles = len({name for interval in intervals for name in interval.owners})
    yield (
        f"{len(replay.scenario.brokers)} brokers, {bundles} bundles, "
        f"{duration(round(replay.recording.length_ms * replay.pace))} "
        f"from {format_instant(intervals[0].at_ms)}"
    )
    if replay.pace > 1.0:
        yield (
            f"each step of {duration(round(STEP_MAX_MS * replay.pace))} is played in "
            f"{duration(STEP_MAX_MS)}: `balanced` and `unserved` are played time"
        )
    if replay.missing_ms:
        yield (
            f"{duration(replay.missing_ms)} less than was asked for: load_history reaches "
            "back no further"
        )
    fit = replay.history.fit
    yield (
        f"100 % of a broker is taken for {fit.full_rate:.0f} msg/s, idle {fit.idle:.1f} %"
        + (f": fitted to {fit.rows} rows" if fit.rows else ": no row says how load makes usage")
    )
    yield f"{'':{_WIDE}}" + "".join(f"{title:>11}" for title in COLUMNS)
    for row in rows:
        cells = [format_value(metric, row[metric]) for metric, _ in COLUMNS.values()]
        yield f"{row['strategy']:{_WIDE}}" + "".join(f"{cell:>11}" for cell in cells)
    yield ""
    yield f"{'cheapest first':{_WIDE}}" + "".join(f"{title:>11}" for title in _COST_TITLES)
    for row in sorted(rows, key=_by_cost):
        cells = [
            f"{row['cost']:.2f}",
            *(format_value("imbalance", row[name]) for name in _RATIOS),
            *(duration(row[name]) for name in ("above_ms", "nobody_ms")),
        ]
        yield f"{row['strategy']:{_WIDE}}" + "".join(f"{cell:>11}" for cell in cells)
    yield from (*COST_LEGEND.splitlines(), *BIAS.splitlines())


def _by_cost(row: Mapping[str, Any]) -> tuple[float, float, str]:
    """Return the order of strategies: cost, moves, name; unknown figures last."""
    cost, moves = (math.inf if row[name] is None else row[name] for name in ("cost", "moves"))
    return cost, moves, row["strategy"]


_DEFAULT = ",".join((AS_SET, *CONTESTANTS))
add_arguments = arguments(
    argument("--strategy", default=_DEFAULT, metavar="A,B", help=f"default: {_DEFAULT}"),
    argument("--seed", type=int, default=1, metavar="N", help="of the simulator's noise"),
    argument(
        "--last", type=parse_duration_ms, default=0, metavar="TIME", help="only the last so much"
    ),
    argument(
        "--recording", type=Path, metavar="FILE", help="that `ballast trace` wrote, not the tables"
    ),
    argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all of them"
    ),
    WORKERS_OPTION,
    TABLES_OPTIONS,
    PROMETHEUS_OPTIONS,
    example="ballast backtest --tables var/tables --last 24h --strategy avg,transfer",
)


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    read: list[str] = []
    if args.prometheus:
        found = write_trace(args)
        read, args.recording = list(trace_lines(found)), found.path
    where = connection_options(args)
    place: TablePlace | None = args.recording
    brokers: Sequence[Row] = ()
    if place:
        recorded = read_history(place)
        base = where.config.for_cluster(where.cluster)
    else:
        reader = where.reader()
        place = reader.root
        recorded, brokers = read_recorded(reader)
        changes = reader.rows("config_versions")
        base, _ = changed_settings(where.started(), changes)
    base = acting(base)
    replay = make_replay(place, recorded, brokers=brokers, last_ms=args.last, seed=args.seed)
    settings = replay.settings(args.set)
    names = ["" if name == AS_SET else name for name in args.strategy.split(",")]
    for name in names:
        config_of(replay.scenario, name, settings, base)  # what can't be used is refused first
    runs = strategy_runs(replay, settings, base, args.workers)
    rows = [recorded_row(replay), *runs.results(names)]
    answer(args, rows, chain(read, lines(replay, rows)))
    return Exit.CUT if runs.is_cut else Exit.DONE
