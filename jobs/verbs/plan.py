"""Forecast the next cycles (--dry-run), and manage plans that await approval.

A dry run is the balancer's own code on what the tables say, before and after; nothing is sent. Each
decision says after how many more hits it comes. The forecast lacks what the tables don't have: hits
and averages of most strategies, load of the last moments. Under cluster.approval=ask a
cycle's moves wait as a plan: list, show, approve or reject it, propose one, undo what was done.
"""

import argparse

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, MisuseError, answer, note
from jobs.operating.answers import answers_of
from jobs.operating.commanding import (
    EXIT_CODES,
    arguments_of,
    command_actions,
    send_command,
    sending_options,
)
from jobs.operating.connection_options import STACK_OPTIONS, TABLES_OPTIONS, connection_options
from jobs.operating.plans import known, list_lines, show_lines
from jobs.operating.simulations import STRATEGIES
from jobs.parser import action, actions, argument, arguments, carry_out, parse_duration_ms
from lbcore.foresight.forecast import WhatIf
from lbcore.model.times import duration
from lbcore.packing import to_plain


def _show(args: argparse.Namespace) -> int:
    one = known(answers_of(connection_options(args)).plans(), args.plan)
    answer(args, to_plain(one), show_lines(args.plan, one, wall_ms()))
    return Exit.DONE


def _list(args: argparse.Namespace) -> int:
    found, now_ms = answers_of(connection_options(args)).plans(), wall_ms()
    value = {name: to_plain(one) for name, one in found.items()}
    none = "no plan waits: under cluster.approval=ask each cycle's moves would"
    answer(args, value, list_lines(found, now_ms) if found else none)
    return Exit.DONE


def _undo(args: argparse.Namespace) -> int:
    """Propose moves that undo; note first which ones can't be undone."""
    if sum(map(bool, (args.plan, args.since_ms, args.drain))) != 1:
        raise MisuseError(
            "it is not clear what to undo",
            why="either a plan must be named, or --since or --drain given",
            next_step="for example: ballast plan undo --since 2h",
        )
    answers = answers_of(connection_options(args))
    moves, left = answers.undo_moves(args.plan, args.since_ms, args.drain)
    for line in left:
        note(line)
    what = f"plan {args.plan}" if args.plan else f"the last {duration(args.since_ms)}"
    what = f"the drain of {args.drain}" if args.drain else what
    given = {"moves": moves, "why": f"undo of {what}"}
    return send_command(args, arguments_of("propose_plan", given))


def _look_ahead(args: argparse.Namespace) -> int:
    if not args.dry_run:
        raise MisuseError(
            "`plan` needs --dry-run or an action",
            why="--dry-run shows the next cycles' decisions, an action handles waiting plans",
            next_step="write `ballast plan --dry-run` or `ballast plan list`",
        )
    what_if = WhatIf(
        settings=tuple(args.set),
        add_brokers=args.add_brokers,
        remove_brokers=tuple(args.remove_broker),
    )
    outlook = answers_of(connection_options(args)).look_ahead(args.strategy, what_if)
    answer(args, outlook.to_json(), outlook.lines())
    return Exit.FAILED if outlook.has_faults else Exit.DONE


_UNDO = "ballast plan undo"
add_arguments = arguments(
    argument("--dry-run", action="store_true", help="say what the next cycles would do"),
    argument("--strategy", default="", metavar="S", help=f"as if it were {', '.join(STRATEGIES)}"),
    argument("--set", action="append", default=[], metavar="K=V", help="as if a setting were so"),
    argument("--add-brokers", type=int, default=0, metavar="N", help="as if N idle ones joined"),
    argument(
        "--remove-broker",
        action="append",
        default=[],
        metavar="B",
        help="as if it were drained; may be repeated",
    ),
    TABLES_OPTIONS,
    actions(
        action("list", "Those that wait, and those of the last day.", _list, TABLES_OPTIONS),
        action("show", "One.", _show, argument("plan", help="its name"), TABLES_OPTIONS),
        *command_actions("plan"),
        action(
            "undo",
            "Propose the way back of a plan, of what balancing has moved of late, or of a drain.",
            _undo,
            argument("plan", nargs="?", default="", help="name of the plan whose moves go back"),
            argument(
                "--since",
                type=parse_duration_ms,
                default=0,
                metavar="DURATION",
                dest="since_ms",
                help="instead: all that balancing has moved for so long, such as 2h",
            ),
            argument(
                "--drain",
                default="",
                metavar="BROKER",
                help="instead: fill this broker again with what its last drain took away",
            ),
            sending_options(),
            STACK_OPTIONS,
            arguments(example=f"{_UNDO} t6jnqc, or: {_UNDO} --since 2h\n{EXIT_CODES}"),
        ),
        title="plans that wait",
        required=False,
    ),
    run=_look_ahead,
    example="ballast plan --dry-run --strategy threshold --add-brokers 2",
)
run = carry_out
