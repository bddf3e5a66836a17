"""Verbs that show a cluster: ownership, lookup, status, explain, and sql.

Each asks the tables, or a service that reads them (--url).
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from jobs.adapters.delta.table_location import TablePlace, spark_uri
from jobs.adapters.delta.table_scan import is_delta
from jobs.adapters.delta.tables import table_path
from jobs.adapters.processes.clocks import wall_ms
from jobs.bridge.rolling_progress import STATE_FILE, rollout_message
from jobs.console import (
    CommandError,
    Exit,
    MisuseError,
    answer,
    format_instant,
    is_terminal,
    text_table,
)
from jobs.local.terminal import live_lines
from jobs.operating.answers import Answers, OwnershipMoment, answers_of, require_known
from jobs.operating.connection_options import (
    TABLES_OPTIONS,
    ConnectionOptions,
    connection_options,
)
from jobs.operating.status import KINDS, WINDOW_MS, ExplainQuestion, status_lines
from jobs.parser import (
    argument,
    arguments,
    by_verb,
    carry_out,
    either,
    parse_duration_ms,
    parse_instant_ms,
    whole_number,
)
from jobs.sql.queries import QUERIES, VIEWS, one_table, whole_table
from lbcore.explain.explanation import brokers_of, number
from lbcore.explain.status import ClusterPhase, ClusterStatus
from lbcore.model.names import did_you_mean
from lbcore.model.tables import ARCHIVES, TABLES
from lbcore.model.times import MINUTE_MS
from lbcore.ownership.changes import OwnershipDifference, parties
from lbcore.route.snapshot import LookupOutcome

Row = Mapping[str, Any]
_LISTED = 20
"""Maximum new or vanished bundles of a namespace listed one by one, without --namespace."""
_DIGITS_MAX = 18  # of a version
_SHOWN = ("bundle", "state", "source", "destination", "version_id", "cause", "at_ms")


def _show(args: argparse.Namespace) -> int:
    """Write the records or differences. Raises CommandError for unknown names."""
    answers = answers_of(connection_options(args))
    if args.diff:
        return _say_differences(args, answers)
    found, records = answers.ownership(_moment_of(args.as_of), args.namespace)
    rows = [row for row in records if args.broker in ("", *parties(row))]
    if not rows:
        require_known(answers, namespace=args.namespace, broker=args.broker)
    value = {**asdict(found), "bundles": [_shown(row) for row in rows]}
    cells = [
        (
            row["bundle"],
            row["state"],
            _way(row),
            str(row["version_id"]),
            row["cause"],
            format_instant(row["at_ms"]),
        )
        for row in rows
    ]
    table = text_table([("bundle", "state", "owner", "version", "cause", "since"), *cells])
    head = _unknown(found) or [f"{len(rows)} bundles at {_at(found)}"]
    answer(args, value, [*head, *table])
    return Exit.DONE


def _look_up(args: argparse.Namespace) -> int:
    results = answers_of(connection_options(args)).lookup(
        args.topics, args.listener, args.timeout_ms
    )
    lines = [
        f"{topic} {result.broker_url or result.outcome.value}"
        f" (broker {result.broker or '-'}, bundle {result.bundle or '-'},"
        f" {result.freshness.age_ms} ms old)"
        for topic, result in results.items()
    ]
    answer(args, [{"topic": topic, **asdict(one)} for topic, one in results.items()], lines)
    is_served = all(result.outcome is LookupOutcome.FOUND for result in results.values())
    return Exit.DONE if is_served else Exit.FAILED


def _moment_of(text: str) -> str:
    """Return a moment in the form that `Answers` takes; raises MisuseError."""
    if not text:
        return ""
    if text.isdecimal() and len(text) <= _DIGITS_MAX:
        return f"v{text}"
    return str(_past_ms(text, wall_ms(), "moment", "a version of ownership_events such as 120"))


def _past_ms(text: str, now_ms: int, word: str, *others: str) -> int:
    """Return an instant of the past, ms since 1970.

    Raises MisuseError, which calls it by the word and names what else may be written.
    """
    try:
        at_ms = parse_instant_ms(text, now_ms)
    except argparse.ArgumentTypeError:
        at_ms = None
    if at_ms is not None and at_ms <= now_ms + MINUTE_MS:  # clocks differ
        return at_ms
    is_read, now = at_ms is not None, format_instant(now_ms)
    raise MisuseError(
        f"{text!r} is {'in the future' if is_read else f'no {word}'}",
        why=f"this machine's clock says {now}" if is_read else "it can't be read as a time",
        next_step="; or ".join(["write 2026-11-21T03:00:00Z, or 5m for five minutes ago", *others]),
    )


def _shown(row: Row) -> Row:
    return {"namespace": row["bundle"].rpartition("/")[0], **{name: row[name] for name in _SHOWN}}


def _at(found: OwnershipMoment) -> str:
    """Format a moment, with the version if its commit is still in the log."""
    at = format_instant(found.at_ms)
    return at if found.version < 0 else f"version {found.version} of ownership_events, {at}"


def _unknown(found: OwnershipMoment) -> list[str]:
    if found.at_ms >= found.known_from_ms:
        return []
    at, known_from = format_instant(found.at_ms), format_instant(found.known_from_ms)
    return [f"nothing is known of {at}: ownership_events reaches back to {known_from}"]


def _way(row: Row) -> str:
    return brokers_of(row) or "-"


def _say_differences(args: argparse.Namespace, answers: Answers) -> int:
    first, last = map(_moment_of, args.diff)
    before, after, found = answers.changes(first, last, args.namespace)
    if before.at_ms > after.at_ms:
        raise MisuseError(
            f"{args.diff[0]} is later than {args.diff[1]}",
            why="the changes are those from an earlier moment to a later one",
            next_step=f"swap them: --diff {args.diff[1]} {args.diff[0]}",
        )
    changes = [
        one
        for one in found
        if any(args.broker in ("", *parties(row)) for row in (one.before, one.after) if row)
    ]
    if not changes:
        require_known(answers, namespace=args.namespace, broker=args.broker)
    value = {
        "from": asdict(before),
        "to": asdict(after),
        "changes": [
            {
                "bundle": change.bundle,
                "before": change.before and _shown(change.before),
                "after": change.after and _shown(change.after),
            }
            for change in changes
        ],
    }
    head = f"{len(changes)} bundles changed from {_at(before)} to {_at(after)}"
    lines = change_lines(changes, _LISTED if not args.namespace else len(changes))
    answer(args, value, [*_unknown(before), *_unknown(after), head, *lines])
    return Exit.DONE


def change_lines(changes: Sequence[OwnershipDifference], most: int) -> Iterable[str]:
    """Yield one line per change.

    More than `most` new (or vanished) bundles of a namespace share one line.
    """
    counts = Counter(map(_kind, changes))
    for (sign, namespace), count in sorted(counts.items()):
        if sign != " " and count > most:
            words = "are new" if sign == "+" else "are gone"
            yield (
                f"{sign} {count} bundles of {namespace} {words}"
                f" (--namespace {namespace} lists them)"
            )
    for change in changes:
        sign, namespace = _kind(change)
        if sign == " " or counts[sign, namespace] <= most:
            before, after = (
                f"{row['state']} {_way(row)}" if row else ""
                for row in (change.before, change.after)
            )
            cause = change.after["cause"] if change.after else ""
            whole = {"+": after, "-": f"was {before}", " ": f"{before}  =>  {after}  ({cause})"}
            yield f"{sign} {change.bundle}  {whole[sign]}"


def _kind(change: OwnershipDifference) -> tuple[str, str]:
    """+ for new, - for gone, blank for changed; and of which namespace."""
    row = change.after or change.before
    sign = "+" if change.before is None else "-" if change.after is None else " "
    return sign, str(row["bundle"]).rpartition("/")[0] if row else ""


def _explain(args: argparse.Namespace) -> int:
    now_ms = wall_ms()
    if bool(args.name) == (args.kind == "cluster"):
        raise MisuseError(
            f"explain {args.kind} takes {'no' if args.name else 'a'} name",
            why="the cluster is named with --cluster, everything else by its name or id",
            next_step="write `ballast explain cluster` or `ballast explain bundle NAME`",
        )
    at_ms = _past_ms(args.at, now_ms, "time") if args.at else 0
    question = ExplainQuestion(
        kind=args.kind, name=args.name, now_ms=now_ms, at_ms=at_ms, window_ms=args.window
    )
    answers = answers_of(connection_options(args))
    found = answers.explain(question)
    if found is None:
        if args.kind == "broker" and not args.at:
            require_known(answers, broker=args.name)
        raise CommandError(
            f"there is no {args.kind} {args.name}" + (f" at {args.at}" if args.at else ""),
            why=f"no row of cluster {answers.cluster} has this name",
            next_step="`ballast status` lists brokers, `ballast ownership` bundles, and "
            "`ballast explain cluster` says what was decided of late",
        )
    answer(args, found.to_json(), found.lines())
    return Exit.DONE


def _status(args: argparse.Namespace) -> int:
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


_BY_NAME = {query.name: query for query in QUERIES}
_SHOWN_ROWS = 1_000


def _query(args: argparse.Namespace) -> int:
    """Write the rows."""
    if args.spark:
        statements = list(spark_statements(connection_options(args).place().absolute()))
        answer(args, statements, [line for one in statements for line in f"{one};".split("\n")])
    elif not args.query:
        listed = [{"name": one.name, "question": one.question} for one in QUERIES]
        cells = [("query", "answers"), *((one.name, one.question) for one in QUERIES)]
        answer(args, listed, text_table(cells))
    elif args.text:
        answer(args, _text(args.query), _text(args.query).split("\n"))
    else:
        names, rows = answers_of(connection_options(args)).query(_text(args.query))
        answer(args, rows, _query_lines(names, rows))
    return Exit.DONE


def spark_statements(tables: TablePlace) -> Iterable[str]:
    """Return the SQL that registers the tables and views in a Spark session.

    The session needs Delta.
    """
    yield "SET spark.sql.session.timeZone = UTC"
    for table in TABLES:
        path = spark_uri(table_path(tables, table.name))
        text = one_table(f"delta.`{path}`")
        archive = ARCHIVES.get(table.name)
        if archive is not None and is_delta(table_path(tables, archive.name)):
            past = spark_uri(table_path(tables, archive.name))
            text = whole_table(archive, f"delta.`{path}`", f"delta.`{past}`")
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS {text}"
    for view in VIEWS:
        select = view.spark or view.datafusion
        yield f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {select}"


def _text(query: str) -> str:
    if query in _BY_NAME:
        return _BY_NAME[query].text.strip()
    if len(query.split()) > 1:
        return query
    raise MisuseError(
        f"there is no ready query {query!r}",
        why=f"there are {', '.join(_BY_NAME)}",
        next_step=f"{did_you_mean(query, _BY_NAME)}take one of them, or write a SELECT",
    )


def _query_lines(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    shown = rows[:_SHOWN_ROWS]
    numbers = {
        at
        for at, name in enumerate(names)
        if any(isinstance(row[name], int | float) for row in shown)
    }
    yield from text_table(
        [names, *([_cell(row[name]) for name in names] for row in shown)], numbers
    )
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} rows more; --json has all"
    elif not rows:
        yield "(no rows)"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


add_arguments = by_verb(
    ownership=arguments(
        argument("--namespace", default="", metavar="NAME", help="only of this namespace"),
        argument(
            "--broker", default="", metavar="NAME", help="only what this broker has, gives or gets"
        ),
        either(
            argument("--as-of", default="", metavar="MOMENT", help="5m, 2026-11-21T03:00Z or 120"),
            argument(
                "--diff",
                nargs=2,
                metavar=("FROM", "TO"),
                help="what changed from one moment to the other",
            ),
        ),
        TABLES_OPTIONS,
        run=_show,
        about="""Show ownership now or at an earlier time or table version, or its changes.

Changes are those between two moments. Read from ownership_events. A moment is an ISO time
(UTC without a zone), a time before now (5m, 2h), or a version of that table, a whole number.
""",
        example="ballast ownership --diff 15m 0s --namespace acme/orders",
    ),
    lookup=arguments(
        argument("topics", nargs="+", metavar="TOPIC", help="persistent://tenant/ns/topic"),
        argument(
            "--listener",
            default="",
            metavar="NAME",
            help="advertised listener whose URLs are wanted",
        ),
        argument(
            "--timeout-ms",
            type=partial(whole_number, least=0),
            default=30_000,
            help="for loading the tables",
        ),
        TABLES_OPTIONS,
        run=_look_up,
        about="""Say which broker serves a topic, from the tables or a service (--url).

It needs no Kafka and no Spark. Fails when a topic has no owner or its namespace doesn't exist.
""",
    ),
    explain=arguments(
        argument("kind", choices=KINDS, help="what is asked about"),
        argument(
            "name",
            nargs="?",
            default="",
            metavar="NAME",
            help="its name or id; none for the cluster",
        ),
        argument(
            "--at", default="", metavar="TIME", help="as it was: 5m ago, or 2026-11-21T03:00Z"
        ),
        argument(
            "--window",
            type=parse_duration_ms,
            default=WINDOW_MS,
            metavar="TIME",
            help="how far back decisions are looked at (default 1h)",
        ),
        TABLES_OPTIONS,
        example="ballast explain broker broker-3:8080 --at 10m",
        run=_explain,
        about="""Explain a bundle, a broker, the cluster or a decision: sentences, then numbers.

From the tables, or a service that reads them (--url): it answers while the job and Kafka are away,
and about an earlier time.
""",
    ),
    status=arguments(
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
        run=_status,
        about="""Show the cluster's state, moves in progress, and problems.

The state is off, ready, late, in progress or stalled. It comes from the tables, or from a service
that reads them (--url), so it is available while the job and Kafka are down. Kafka is asked whether
it answers where its address is known. The exit code is 1 if the cluster is stalled. With --watch it
is redrawn until Ctrl-C; read errors are shown, and the read is repeated.
""",
    ),
    sql=arguments(
        argument(
            "query",
            nargs="?",
            default="",
            metavar="QUERY",
            help="a ready query's name, or a SELECT",
        ),
        argument("--text", action="store_true", help="write the ready query's SQL instead"),
        argument(
            "--spark", action="store_true", help="write the statements that make the views in Spark"
        ),
        TABLES_OPTIONS,
        example="ballast sql most-moved\n"
        'example: ballast sql "SELECT broker, count(*) FROM owners GROUP BY broker"\n'
        "without a query: a list of the ready ones",
        run=_query,
        about="""Ask the tables in SQL: a ready query by its name, or a SELECT of your own.

From the tables in this process, or by a service (--url), which takes an admin's token: it answers
while the job and Kafka are away. Views and queries are in docs/sql.md; --spark writes what makes
the same views in Spark.
""",
    ),
)
run = carry_out
