"""Everything on this machine: Kafka, job, lookup service, simulated brokers.

Starts them in order, crashes brokers as asked, and shows the run: a live view in a terminal, one
JSON line a second without one, and a summary at the end. A process that dies is started again. A
second run with the same folder goes on with its tables. Seconds count from the first batch of the
streaming job.
"""

import argparse
import json
import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from jobs.adapters.processes.signals import STOPPING, on_signals
from jobs.atomic_file import atomic_write
from jobs.console import Exit, MisuseError, answer, is_terminal, note
from jobs.extras import require
from jobs.local.fleet_watch import crash_broker, fleet_client
from jobs.local.layout import CLUSTER, Layout, Size
from jobs.local.run import LocalRun
from jobs.local.stack import Kill, RunOptions, RunProcesses
from jobs.local.terminal import JsonLines, Show, hints, live_lines, run_lines
from jobs.operating.connection_options import STATE_DIR_OPTION
from jobs.operating.status import StatusView
from jobs.parser import argument, arguments, by_verb, carry_out, group, port_number
from lbcore.sim.load.load import LoadShape

_SHAPES = tuple(shape.value for shape in LoadShape)


def _run(args: argparse.Namespace) -> int:
    """Run until the time is over or it is stopped; 1 when a lookup was wrong."""
    require("run-local", "pyspark", "uvicorn")
    options = options_from(args)
    layout = Layout(root=args.state_dir.absolute())
    with layout.exclusive():
        size = layout.settle_size(
            {name: getattr(args, name) for name in ("brokers", "namespaces", "bundles")}
        )
        check_kills(options.kills, size)
        local = LocalRun(layout, size, options)
        display = partial(_display, is_headless=options.is_headless)
        summary = local.run(_stop_on_signals(local), display)
    if args.summary is not None:
        atomic_write(args.summary, json.dumps(summary, indent=2, sort_keys=True) + "\n")
        note(f"summary: {args.summary}")
    wrong = summary["lookups"]["wrong"] if summary["lookups"] else 0
    return Exit.FAILED if wrong else Exit.DONE


def _kill_broker(args: argparse.Namespace) -> int:
    """Crash or start a broker; raises CommandError without such a run or broker."""
    layout = Layout(root=args.state_dir.absolute())
    if args.start:
        fleet_client(layout).act("start", args.broker)
        answer(args, {"broker": args.broker}, f"started {args.broker}")
        return Exit.DONE
    crash = crash_broker(layout, args.broker)
    value = {"broker": crash.broker, "bundles": len(crash.bundles)}
    answer(args, value, f"killed {crash.broker}, which served {len(crash.bundles)} bundles")
    return Exit.DONE


@contextmanager
def _display(processes: RunProcesses, *, is_headless: bool) -> Iterator[Show]:
    """Show a run: a live view, or one JSON line a status."""
    if is_headless:
        yield JsonLines().show
        return
    config = processes.config.for_cluster(CLUSTER)
    view = StatusView(processes.layout.tables, CLUSTER, config)
    with live_lines() as draw:
        yield lambda run: draw([*run_lines(run), "", *view.lines(), "", *hints(processes)])


def _stop_on_signals(local: LocalRun) -> threading.Event:
    """Set the event at the first signal after the start.

    Before, and from the second on: at once.
    """
    stop = threading.Event()
    is_first = True

    def notice(*_: object) -> None:
        nonlocal is_first
        if not (is_first and local.is_started):
            raise KeyboardInterrupt
        is_first = False

    on_signals(stop.set, (*STOPPING, signal.SIGHUP), handler=notice)
    return stop


def options_from(args: argparse.Namespace) -> RunOptions:
    """The options; raises MisuseError for numbers that make no sense."""
    numbers = (
        ("--speed", args.speed),
        ("--lookups-per-s", args.lookups_per_s),
        ("--for", 1.0 if args.for_s is None else args.for_s),
    )
    for name, value in numbers:
        if not 0 < value < math.inf:
            raise MisuseError(
                f"{name} must be above 0, got {value}",
                why="it is a finite number",
                next_step="correct it",
            )
    return RunOptions(
        load=LoadShape(args.load),
        speed=args.speed,
        kills=tuple(sorted(args.kill, key=lambda kill: kill.after_ms)),
        for_ms=None if args.for_s is None else int(args.for_s * 1000),
        is_headless=args.headless or args.json or not is_terminal(),
        lookup_port=args.port,
        overlays=tuple(args.conf) or ("demo",),
        assignments=tuple(args.set),
        lookups_per_s=args.lookups_per_s,
    )


def parse_kill(text: str) -> Kill:
    """Parse `broker-3@60`: crash broker-3 after 60 s.

    Raises ArgumentTypeError for anything else.
    """
    broker, _, seconds = text.rpartition("@")
    try:
        after_ms = int(float(seconds) * 1000)
    except (ValueError, OverflowError):
        after_ms = -1
    if not broker or after_ms < 0:
        message = f"{text!r} is not BROKER@SECONDS, for example broker-3@60"
        raise argparse.ArgumentTypeError(message)
    return Kill(broker=broker, after_ms=after_ms)


def check_kills(kills: Sequence[Kill], size: Size) -> None:
    """Raise MisuseError for a broker that the run does not have."""
    names = [f"broker-{number}" for number in range(1, size.brokers + 1)]
    for kill in kills:
        if kill.broker not in names:
            raise MisuseError(
                f"{kill.broker} can't be killed: this run has no such broker",
                why=f"its {len(names)} brokers are {names[0]} to {names[-1]}",
                next_step="name one of them in --kill, or give --brokers a larger number",
            )


add_arguments = by_verb(
    run_local=arguments(
        group(
            "the cluster (kept from the first run with a state folder)",
            argument("--brokers", type=int, metavar="N", help="simulated brokers (6)"),
            argument("--namespaces", type=int, metavar="N", help="namespaces, at least 2 (2)"),
            argument("--bundles", type=int, metavar="N", help="bundles of all namespaces (60)"),
        ),
        group(
            "its load and faults",
            argument("--load", choices=_SHAPES, default="moving-hotspot", help="shape of the load"),
            argument("--speed", type=float, default=1.0, help="load's time, as a multiple of ours"),
            argument(
                "--kill",
                action="append",
                default=[],
                type=parse_kill,
                metavar="BROKER@S",
                help="crash a broker after so many seconds (repeat)",
            ),
        ),
        group(
            "the run",
            argument("--for", type=float, dest="for_s", metavar="S", help="end after S seconds"),
            argument("--headless", action="store_true", help="one JSON line a second, no view"),
            argument("--summary", type=Path, metavar="FILE", help="write the run's numbers here"),
            STATE_DIR_OPTION,
            argument(
                "--port",
                type=port_number,
                help="port of the lookup service (the last run's, or 8080; another one if it is"
                " taken)",
            ),
            argument("--conf", action="append", default=[], help="overlay or file (demo)"),
            argument("--set", action="append", default=[], help="section.name=value (repeat)"),
            argument("--lookups-per-s", type=float, default=50.0, help="lookups asked and judged"),
        ),
        run=_run,
    ),
    kill_broker=arguments(
        argument("broker", help="its name, such as broker-3"),
        argument("--start", action="store_true", help="start it again instead"),
        STATE_DIR_OPTION,
        run=_kill_broker,
        about="""Crash a simulated broker of a running `ballast run-local` at once.

Watch its bundles find new owners; `--start` brings it back as a new incarnation.
""",
    ),
)
run = carry_out
