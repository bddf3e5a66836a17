"""Verbs that send commands, from broker to resume, and the dry run of plan.

The bundles with the most load, the policies that are set and the plans that wait are listed here,
too, and the next cycles are foreseen.
"""

import argparse
import json
from collections.abc import Iterable

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, Exit, MisuseError, answer, json_line, note, text_table
from jobs.operating.answers import BUNDLE_ORDERS, BUNDLES_MAX, Answers, answers_of, require_known
from jobs.operating.commanding import (
    EXIT_CODES,
    add_plain_command,
    arguments_of,
    command_actions,
    send_command,
    sending_options,
)
from jobs.operating.connection_options import STACK_OPTIONS, TABLES_OPTIONS, connection_options
from jobs.operating.plans import known, list_lines, show_lines
from jobs.operating.simulations import STRATEGIES
from jobs.parser import (
    action,
    actions,
    argument,
    arguments,
    carry_out,
    parse_duration_ms,
    whole_number,
)
from jobs.verbs import VERBS
from lbcore.explain.explanation import Row, number, percent
from lbcore.explain.mirrored import NEVER_MS
from lbcore.foresight.forecast import WhatIf
from lbcore.model.times import duration, instant
from lbcore.packing import to_plain

PARTITIONS = "partitions"
_MIB = 1 << 20
_ISOLATION, _GROUP = "isolation", "anti_affinity"
_ABOUT = {
    "bundle": """Lists the bundles with the most load; moves, splits and pins single bundles.

Load is that of the newest minute of load_history of each broker,
as its broker reported it.
""",
    "policy": """Rules on where namespaces may be: isolation policies and anti-affinity groups.

An isolation policy keeps namespaces on brokers of their own. A group spreads its namespaces over
brokers and failure domains.
""",
}


def _list_policies(args: argparse.Namespace) -> int:
    found = answers_of(connection_options(args)).policies()
    value = {
        kind: {row["name"]: json.loads(row["value"]) for row in found if row["kind"] == kind}
        for kind in (_GROUP, _ISOLATION)
    }
    lines = [
        f"{kind}  {name}  {json_line(one)}"
        for kind, named in value.items()
        for name, one in sorted(named.items())
    ]
    answer(args, value, lines or "no policy is set")
    return Exit.DONE


def _list_bundles(args: argparse.Namespace) -> int:
    if not 1 <= args.limit <= BUNDLES_MAX:
        raise MisuseError(
            f"--limit must be from 1 to {BUNDLES_MAX}, got {args.limit}",
            why="it is a number of rows",
            next_step="correct it",
        )
    answers = answers_of(connection_options(args))
    if args.by == PARTITIONS:
        topics = narrow_topics(answers, args.broker, args.limit)
        cells = [(one["subject"], instant(one["since_ms"]), one["evidence"]) for one in topics]
        none = "no topic has its partitions on too few brokers"
        table = text_table([("topic", "since", "partitions"), *cells])
        answer(args, topics, table if topics else none)
        return Exit.DONE
    rows = answers.bundles(args.by, args.broker, args.limit)
    if not rows:
        require_known(answers, broker=args.broker)
        about = f" of {args.broker}" if args.broker else ""
        raise CommandError(
            f"no load is known of any bundle{about} in cluster {answers.cluster}",
            why="load_history has no row that fits; the job writes one a broker and minute",
            next_step="`ballast status` lists the brokers and says how the job is",
        )
    answer(args, rows, _lines(rows))
    return Exit.DONE


def narrow_topics(answers: Answers, broker: str, limit: int) -> list[Row]:
    """Return topics with partitions on too few brokers, by name.

    As the bridge reported last. Raises CommandError where no bridge tells.
    """
    mirror = answers.status().mirror
    if mirror is None or mirror.heard_ago_ms == NEVER_MS:
        raise CommandError(
            f"nobody tells of the partitions of cluster {answers.cluster}",
            why="the bridge to a Pulsar cluster does, and none was heard in ten minutes",
            next_step="start `ballast bridge pulsar`, and give --conf pulsar here",
        )
    narrow = [one for one in mirror.findings if one["trouble"] == "narrow"]
    if broker:  # the evidence ends with what each has: ...: 5 on broker-1, 3 on broker-2
        narrow = [one for one in narrow if f" on {broker}, " in f"{one['evidence']}, "]
    return sorted(narrow, key=lambda one: str(one["subject"]))[:limit]


def _lines(rows: Iterable[Row]) -> Iterable[str]:
    cells = [("bundle", "owner", "state", "topics", "sessions", "msg/s", "MiB/s", "of its broker")]
    cells += [
        (
            row["bundle"],
            row["broker"] or "-",
            row["state"],
            number(row["topics"]),
            number(row["sessions"]),
            number(row["msg_rate"]),
            number(row["bytes_per_s"] / _MIB),
            "-" if row["share"] is None else percent(row["share"]),
        )
        for row in rows
    ]
    yield from text_table(cells, right=range(3, len(cells[0])))


def _show_plan(args: argparse.Namespace) -> int:
    one = known(answers_of(connection_options(args)).plans(), args.plan)
    answer(args, to_plain(one), show_lines(args.plan, one, wall_ms()))
    return Exit.DONE


def _list_plans(args: argparse.Namespace) -> int:
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


_PLAN = arguments(
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
        action("list", "Those that wait, and those of the last day.", _list_plans, TABLES_OPTIONS),
        action("show", "One.", _show_plan, argument("plan", help="its name"), TABLES_OPTIONS),
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
    about="""Forecast the next cycles (--dry-run), and manage plans that await approval.

A dry run is the balancer's own code on what the tables say, before and after; nothing is sent. Each
decision says after how many more hits it comes. The forecast lacks what the tables don't have: hits
and averages of most strategies, load of the last moments. Under cluster.approval=ask a
cycle's moves wait as a plan: list, show, approve or reject it, propose one, undo what was done.
""",
)


_LISTS = {
    "bundle": action(
        "list",
        "The bundles with the most load.",
        _list_bundles,
        argument(
            "--by",
            choices=(*BUNDLE_ORDERS, PARTITIONS),
            default="rate",
            help="what they are ordered by (rate); partitions: topics that are on too few brokers",
        ),
        argument("--broker", default="", metavar="NAME", help="only those it has now"),
        argument("--limit", type=whole_number, default=20, metavar="N", help="(20)"),
        arguments(
            TABLES_OPTIONS, example="ballast bundle list --by bandwidth --broker broker-3 --limit 5"
        ),
    ),
    "policy": action("list", "What is set now.", _list_policies, TABLES_OPTIONS),
}
run = carry_out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb that the parser is of."""
    verb = parser.prog.split()[1]
    parser.description = _ABOUT.get(verb, VERBS[verb].summary)
    if verb == "plan":
        _PLAN(parser)
        return
    if verb in ("pause", "resume"):
        add_plain_command(parser)
        return
    listing = [_LISTS[verb]] if verb in _LISTS else []
    actions(*command_actions(verb), *listing)(parser)
