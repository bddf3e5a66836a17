"""Verbs that send commands: broker, bundle, namespace, pause, policy, resume.

The bundles with the most load and the policies that are set are listed here, too.
"""

import argparse
import json
from collections.abc import Iterable

from jobs.console import CommandError, Exit, MisuseError, answer, json_line, text_table
from jobs.operating.answers import BUNDLE_ORDERS, BUNDLES_MAX, Answers, answers_of, require_known
from jobs.operating.commanding import add_plain_command, command_actions
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.parser import action, actions, argument, arguments, carry_out, whole_number
from jobs.verbs import VERBS
from lbcore.explain.explanation import Row, number, percent
from lbcore.explain.mirrored import NEVER_MS
from lbcore.model.times import instant

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
    rows = [row for row in found if row["kind"] in (_ISOLATION, _GROUP)]
    rows.sort(key=lambda row: (row["kind"], row["name"]))
    value = {
        kind: {row["name"]: json.loads(row["value"]) for row in rows if row["kind"] == kind}
        for kind in (_ISOLATION, _GROUP)
    }
    lines = [f"{row['kind']}  {row['name']}  {json_line(json.loads(row['value']))}" for row in rows]
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
    if verb in ("pause", "resume"):
        add_plain_command(parser)
        return
    listing = [_LISTS[verb]] if verb in _LISTS else []
    actions(*command_actions(verb), *listing)(parser)
