"""Forecast the next cycles (--dry-run), and manage plans that await approval.

A dry run is the balancer's own code on what the tables say, before and after; nothing is sent. Each
decision says after how many more hits it comes. The forecast ends at data that the tables don't
have (hits and averages of most strategies, load of the last moments). Under cluster.approval=ask a
cycle's moves wait as a plan: list, show, approve or reject it, propose one, undo what was done.
"""

import argparse
from typing import Any

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, MisuseError, add_json_option, answer, note
from jobs.operating.commanding import (
    EXIT_CODES,
    add_commands,
    add_sending,
    arguments_of,
    commands_of,
    run_command,
    send_command,
)
from jobs.operating.connection_options import add_stack_arguments, connection_options
from jobs.operating.plans import known, list_lines, show_lines
from jobs.operating.service_answers import answers_of
from jobs.operating.simulations import STRATEGIES
from jobs.operating.text_format import parse_duration_ms
from lbcore.foresight.forecast import WhatIf
from lbcore.model.times import duration
from lbcore.packing import to_plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a hypothetical change and the actions on plans."""
    parser.add_argument("--dry-run", action="store_true", help="say what the next cycles would do")
    parser.add_argument(
        "--strategy", default="", metavar="S", help=f"as if it were {', '.join(STRATEGIES)}"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="as if a setting were so"
    )
    parser.add_argument(
        "--add-brokers", type=int, default=0, metavar="N", help="as if N idle ones joined"
    )
    parser.add_argument(
        "--remove-broker",
        action="append",
        default=[],
        metavar="B",
        help="as if it were drained; may be repeated",
    )
    parser.epilog = "example: ballast plan --dry-run --strategy threshold --add-brokers 2"
    add_stack_arguments(parser, with_kafka=False)
    actions = parser.add_subparsers(title="plans that wait", metavar="ACTION", dest="action")
    for name, about in (("list", "Those that wait, and those of the last day."), ("show", "One.")):
        one = actions.add_parser(name, help=about, description=about)
        if name == "show":
            one.add_argument("plan", help="its name")
        add_json_option(one, default=argparse.SUPPRESS)
        add_stack_arguments(one, with_kafka=False)
    add_commands(actions, commands_of("plan"))
    _add_undo(actions)


def _add_undo(actions: Any) -> None:
    about = "Propose the way back of a plan, of what balancing has moved of late, or of a drain."
    undo = actions.add_parser("undo", help=about, description=about)
    undo.add_argument("plan", nargs="?", default="", help="name of the plan whose moves go back")
    undo.add_argument(
        "--since",
        type=parse_duration_ms,
        default=0,
        metavar="DURATION",
        dest="since_ms",
        help="instead: all that balancing has moved for so long, such as 2h",
    )
    undo.add_argument(
        "--drain",
        default="",
        metavar="BROKER",
        help="instead: fill this broker again with what its last drain took away",
    )
    undo.epilog = f"example: {undo.prog} t6jnqc, or: {undo.prog} --since 2h\n{EXIT_CODES}"
    undo.formatter_class = argparse.RawDescriptionHelpFormatter
    add_json_option(undo, default=argparse.SUPPRESS)
    add_sending(undo)
    add_stack_arguments(undo)


def run(args: argparse.Namespace) -> int:
    """Write what would happen, or what waits, or send what is asked for."""
    if args.action in ("list", "show"):
        return _look(args)
    if args.action == "undo":
        return _undo(args)
    return run_command(args) if args.action else _look_ahead(args)


def _look(args: argparse.Namespace) -> int:
    found, now_ms = answers_of(connection_options(args)).plans(), wall_ms()
    if args.action == "show":
        one = known(found, args.plan)
        answer(args, to_plain(one), show_lines(args.plan, one, now_ms))
        return Exit.DONE
    value = {name: to_plain(one) for name, one in found.items()}
    none = "no plan waits: under cluster.approval=ask each cycle's moves would"
    answer(args, value, list_lines(found, now_ms) if found else none)
    return Exit.DONE


def _undo(args: argparse.Namespace) -> int:
    """Propose the way back; what can't go back is said first."""
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
