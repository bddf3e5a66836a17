"""Look at a Pulsar cluster for some minutes and report what would be better.

Reads only: nothing is written to the cluster, and nothing else needs to run. A page (--html) is
written as soon as there is something to see, and again at the end; Ctrl-C ends early, with what is
known by then. Ends with 1 when part of the cluster could not be read. docs/assess.md explains the
report.
"""

import argparse
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jobs.adapters.processes.settings import load_settings
from jobs.adapters.processes.signals import on_signals
from jobs.assess.page import lines, page
from jobs.assess.watch import ClusterWatch, recorded_report
from jobs.atomic_file import atomic_write
from jobs.bridge.attachment import add_access_options, add_network_option, admin_at
from jobs.bridge.bridge import only_cluster
from jobs.bridge.collector import PollOptions
from jobs.console import CommandError, Exit, MisuseError, answer, note
from jobs.operating.backtesting import (
    PROMETHEUS_OPTIONS,
    RecordedLoad,
    make_replay,
    recorded_row,
    try_strategy,
)
from jobs.operating.simulations import WORKERS_OPTION
from jobs.parser import argument, arguments, group, parse_duration_ms
from lbcore.assess.report import Report
from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.model.times import duration

TRIED = ("none", "ballast", "avg", "threshold", "transfer", "pulsar-threshold", "pulsar-avg")
_INTERVALS_MIN = 6
_BUNDLES_MAX = 20_000


def try_strategies(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return a row a strategy, the recorded one first; or none, and why.

    O(strategies × recording).
    """
    if len({row["minute_ms"] for row in rows}) < _INTERVALS_MIN:
        return [], "too little was recorded to try strategies on: look for some minutes longer"
    if sum(len(row["bundles"]) for row in rows[-len({row["broker"] for row in rows}) :]) > (
        _BUNDLES_MAX
    ):
        return [], f"strategies are tried on up to {_BUNDLES_MAX} bundles"
    try:
        replay = make_replay(RecordedLoad(place=Path(), rows=rows), 0, 1)
    except CommandError as error:
        return [], f"strategies can't be tried: {error.why}"
    return [
        recorded_row(replay),
        *(try_strategy(replay, ((), Config()), name) for name in TRIED),
    ], ""


_PERCENT = 100.0
_PROGRESS_S = 30.0


add_arguments = arguments(
    argument("url", nargs="?", default="", metavar="URL", help="web service of any broker"),
    argument(
        "--for",
        dest="length_ms",
        type=parse_duration_ms,
        default=600_000,
        metavar="TIME",
        help="how long to look (default 10m)",
    ),
    argument(
        "--html",
        type=Path,
        default=Path("ballast-assess.html"),
        metavar="FILE",
        help="the page (default %(default)s)",
    ),
    argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Ballast's"
    ),
    argument("--look-ms", type=int, default=5_000, metavar="N", help="default 5000"),
    argument("--load-ms", type=int, default=10_000, metavar="N", help="default 10000"),
    add_network_option,
    group("Pulsar", add_access_options),
    PROMETHEUS_OPTIONS,
    argument(
        "--strategy", default=",".join(TRIED), metavar="A,B", help="with --prometheus: what to try"
    ),
    WORKERS_OPTION,
)


def run(args: argparse.Namespace) -> int:
    """Look, and write the report."""
    if args.prometheus:
        return _run_recorded(args)
    if not args.url:
        raise MisuseError(
            "there is no cluster to assess",
            why="neither the web service of a broker nor a Prometheus is named",
            next_step="give one: ballast assess http://broker:8080, or --prometheus URL",
        )
    if min(args.length_ms, args.look_ms, args.load_ms) <= 0:
        raise MisuseError(
            "this is no length of time to look for",
            why="--for, --look-ms and --load-ms must be above 0",
            next_step="leave them out, or give for instance --for 10m",
        )
    _try_file(args.html)
    config = load_settings(("pulsar",), args.set)  # observes only, whatever was set
    external = replace(config.cluster, authority=EXTERNAL, observe_only=True)
    admin = admin_at(args.url, args)
    cluster = only_cluster(admin, args.pulsar_cluster)
    polling = PollOptions(
        look_ms=args.look_ms,
        load_ms=args.load_ms,
        network_bytes_per_s=args.network_mbytes * 1e6,
    )
    watch = ClusterWatch(admin, cluster, replace(config, cluster=external), polling)
    try:
        _look(watch, args, args.length_ms / 1_000)
        report = watch.report()
        note("trying strategies on what was recorded")
        rows, why = try_strategies(watch.history())
    finally:
        watch.close()
    notes = (*report.notes, why) if why else report.notes
    return _finish(args, replace(report, strategies=tuple(rows), notes=notes))


def _run_recorded(args: argparse.Namespace) -> int:
    """Report what Prometheus has recorded."""
    _try_file(args.html)
    admin, cluster = None, args.pulsar_cluster
    if args.url:
        admin = admin_at(args.url, args)
        cluster = only_cluster(admin, args.pulsar_cluster)
    return _finish(args, recorded_report(args, admin, cluster))


def _finish(args: argparse.Namespace, report: Report) -> int:
    _write(args.html, report)
    answer(args, asdict(report), [*lines(report), "", f"page: {args.html}"])
    if report.is_whole:
        return Exit.DONE
    text = "no broker's load was read: nothing in this report says that there is no risk"
    if report.unread:
        what, why = next(iter(report.unread.items()))
        more = f", and {len(report.unread) - 1} more" if len(report.unread) > 1 else ""
        text = f"not all could be read, so risks may be missing: {what}{more} ({why})"
    note(text)
    return Exit.FAILED


def _look(watch: ClusterWatch, args: argparse.Namespace, length_s: float) -> None:
    """Look after look until time is over or a signal comes."""
    end = threading.Event()
    restore_signals = on_signals(end.set)
    began_s = time.monotonic()
    drawn, told_s = False, began_s
    try:
        while not end.is_set() and time.monotonic() - began_s < length_s:
            look_s = time.monotonic()
            why = watch.step()
            if why:
                note(f"no look now: {why}")
            if watch.has_loads and not drawn:
                drawn = True
                _write(args.html, watch.report())
                note(f"first picture after {time.monotonic() - began_s:.0f} s: {args.html}")
            if time.monotonic() - told_s >= _PROGRESS_S:
                told_s = time.monotonic()
                left = duration(max(0, round(length_s - told_s + began_s)) * 1_000)
                share = _PERCENT * (told_s - began_s) / length_s
                note(f"{share:.0f} %, {left} left; Ctrl-C gives what is known")
            rest_s = args.look_ms / 1_000 - (time.monotonic() - look_s)
            end.wait(max(0.0, min(rest_s, length_s - (time.monotonic() - began_s))))
    finally:
        restore_signals()
    if end.is_set():
        note("ended early: this is what is known")


def _try_file(path: Path) -> None:
    """Raise MisuseError early if the page can't be written."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise MisuseError(
            f"{path} can't be written",
            why="it is a folder, or its folder is not there or not ours to write to",
            next_step="name another file with --html",
        )


def _write(path: Path, report: Report) -> None:
    """Write the page, or leave the file as it was; raises CommandError."""
    try:
        atomic_write(path, page(report))
    except OSError as error:
        raise CommandError(
            f"{path} can't be written",
            why=str(error),
            next_step="free space on the disk, or name another file with --html",
        ) from None
