"""Reader of a Pulsar cluster's last weeks from Prometheus into a trace file.

Speaks /api/v1/query_range, a day at a time, so that memory does not grow with the length. Nothing
follows a redirect: credentials go to the given address only. The trace is a recording as `ballast
trace` writes it, and can be used again with --recording.
"""

import argparse
import base64
import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pyarrow.parquet

from jobs.adapters.http.client import HttpRequest, connection_to, exchange
from jobs.adapters.processes.clocks import wall_ms
from jobs.atomic_file import read_text_file
from jobs.console import CommandError, MisuseError, note
from jobs.parser import argument, group, parse_duration_ms
from lbcore.assess.prometheus import RATES, UNLOADS, USAGES, Counters, PrometheusFold
from lbcore.model.bundles import even_boundaries
from lbcore.model.times import DAY_MS, MINUTE_MS, duration

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
