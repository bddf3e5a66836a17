"""Show the cluster's state, moves in progress, and problems.

The state is off, ready, late, in progress or stalled. It comes from the tables, or from a service
that reads them (--url), so it is available while the job and Kafka are down. Kafka is asked whether
it answers where its address is known. The exit code is 1 if the cluster is stalled. With --watch it
is redrawn until Ctrl-C; read errors are shown, and the read is repeated.
"""

import argparse
import time

from jobs.adapters.processes.clocks import wall_ms
from jobs.bridge.rolling_progress import STATE_FILE, rollout_message
from jobs.console import CommandError, Exit, MisuseError, answer, format_instant, is_terminal
from jobs.local.terminal import live_lines
from jobs.operating.answers import Answers, answers_of
from jobs.operating.connection_options import (
    TABLES_OPTIONS,
    ConnectionOptions,
    connection_options,
)
from jobs.operating.status import status_lines
from jobs.parser import argument, arguments, parse_duration_ms
from lbcore.explain.status import ClusterPhase, ClusterStatus

add_arguments = arguments(
    argument("--watch", action="store_true", help="draw it again and again"),
    argument(
        "--every",
        type=parse_duration_ms,
        default=2_000,
        metavar="TIME",
        dest="every_ms",
        help="--watch: between two looks (2s)",
    ),
    TABLES_OPTIONS,
    example="ballast status --json | jq .alarms",
)


def run(args: argparse.Namespace) -> int:
    """Write the status; fail when it is stalled.

    --json has `phase` and `alarms` for programs.
    """
    where = connection_options(args)
    if args.watch:
        return _watch(args, where)
    status, restart, lines = _read(where, answers_of(where))
    answer(args, {**status.to_json(), "rolling_restart": restart}, lines)
    return Exit.FAILED if status.phase is ClusterPhase.STALLED else Exit.DONE


def _read(where: ConnectionOptions, answers: Answers) -> tuple[ClusterStatus, str, list[str]]:
    """The status, the rolling restart of this folder ("" = none), and their lines."""
    status = answers.status()
    restart = rollout_message(where.layout.root / STATE_FILE, status.now_ms)
    lines = list(status_lines(status))
    lines[1:1] = [f"  rolling restart: {restart}"] if restart else []
    return status, restart, lines


def _watch(args: argparse.Namespace, where: ConnectionOptions) -> int:
    """Draw the status until Ctrl-C. Raises MisuseError without a terminal."""
    if args.json or not is_terminal():
        raise MisuseError(
            "`status --watch` needs a terminal",
            why="--json was given" if args.json else "standard output is none",
            next_step="leave out --watch: `ballast status` writes one look",
        )
    answers = answers_of(where)
    _read(where, answers)  # what can't be read at all is said before the screen is cleared
    last: list[str] = []
    with live_lines() as draw:
        while True:
            try:
                _, _, last = _read(where, answers)
                draw([*last, "", f"as of {format_instant(wall_ms())}; Ctrl-C ends it"])
            except CommandError as error:
                draw([*error.lines(), "", "as of the last look:", *last])
            time.sleep(args.every_ms / 1_000)
