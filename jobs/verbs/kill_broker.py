"""Crash a simulated broker of a running `ballast run-local` at once.

Watch its bundles find new owners; `--start` brings it back as a new incarnation.
"""

import argparse
from pathlib import Path

from jobs.console import Exit, answer
from jobs.local.fleet_watch import crash_broker, fleet_client
from jobs.local.layout import Layout
from jobs.operating.connection_options import STATE_DIR, STATE_DIR_HELP
from jobs.parser import argument, arguments

add_arguments = arguments(
    argument("broker", help="its name, such as broker-3"),
    argument("--start", action="store_true", help="start it again instead"),
    argument("--state-dir", type=Path, default=STATE_DIR, help=STATE_DIR_HELP),
)


def run(args: argparse.Namespace) -> int:
    """Do it; raises CommandError when there is no such run or broker."""
    layout = Layout(root=args.state_dir.absolute())
    if args.start:
        fleet_client(layout).act("start", args.broker)
        answer(args, {"broker": args.broker}, f"started {args.broker}")
        return Exit.DONE
    crash = crash_broker(layout, args.broker)
    value = {"broker": crash.broker, "bundles": len(crash.bundles)}
    answer(args, value, f"killed {crash.broker}, which served {len(crash.bundles)} bundles")
    return Exit.DONE
