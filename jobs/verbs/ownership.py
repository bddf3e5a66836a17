"""Show ownership now or at an earlier time or table version, or its changes.

Changes are those between two moments. Read from ownership_events. A moment is an ISO time
(UTC without a zone), a time before now (5m, 2h), or a version of that table, a whole number.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, MisuseError, answer, format_instant, text_table
from jobs.operating.answers import Answers, OwnershipMoment, answers_of, require_known
from jobs.operating.connection_options import TABLES_OPTIONS, connection_options
from jobs.parser import (
    argument,
    arguments,
    by_verb,
    carry_out,
    either,
    parse_instant_ms,
    whole_number,
)
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
    head = _unknown(found) or [f"{len(rows)} bundles at {_at(found)}"]
    answer(args, value, [*head, *_table(rows)])
    return Exit.DONE


def _look_up(args: argparse.Namespace) -> int:
    """Write a line for each topic."""
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
    try:
        return str(parse_instant_ms(text, wall_ms()))
    except argparse.ArgumentTypeError:
        raise MisuseError(
            f"{text!r} is no moment",
            why="a moment is an ISO time, so long ago, or a version of ownership_events",
            next_step="write 2026-11-21T03:00:00Z, 5m for five minutes ago, or 120",
        ) from None


def _shown(row: Row) -> Row:
    return {"namespace": row["bundle"].rpartition("/")[0], **{name: row[name] for name in _SHOWN}}


def _at(found: OwnershipMoment) -> str:
    """Format a moment, with the version if its commit is still in the log."""
    at = format_instant(found.at_ms)
    return at if found.version < 0 else f"version {found.version} of ownership_events, {at}"


def _unknown(found: OwnershipMoment) -> list[str]:
    at, known_from = format_instant(found.at_ms), format_instant(found.known_from_ms)
    text = f"nothing is known of {at}: ownership_events reaches back to {known_from}"
    return [] if found.is_known else [text]


def _table(rows: Sequence[Row]) -> Iterable[str]:
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
    return text_table([("bundle", "state", "owner", "version", "cause", "since"), *cells])


def _way(row: Row) -> str:
    return " → ".join(parties(row)) or "-"


def _say_differences(args: argparse.Namespace, answers: Answers) -> int:
    first, last = map(_moment_of, args.diff)
    before, after, found = answers.changes(first, last, args.namespace)
    if before.at_ms > after.at_ms:
        raise MisuseError(
            f"{args.diff[0]} is later than {args.diff[1]}",
            why="the changes are those from an earlier moment to a later one",
            next_step=f"swap them: --diff {args.diff[1]} {args.diff[0]}",
        )
    changes = [one for one in found if args.broker in ("", *_parties(one))]
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
    unknown = [*_unknown(before), *_unknown(after)]
    head = f"{len(changes)} bundles changed from {_at(before)} to {_at(after)}"
    lines = change_lines(changes, _LISTED if not args.namespace else len(changes))
    answer(args, value, [*unknown, head, *lines])
    return Exit.DONE


def _parties(change: OwnershipDifference) -> list[str]:
    return [name for row in (change.before, change.after) if row for name in parties(row)]


def change_lines(changes: Sequence[OwnershipDifference], most: int) -> Iterable[str]:
    """Yield one line per change.

    More than `most` new (or vanished) bundles of a namespace share one line.
    """
    counts = Counter(_kind(change) for change in changes)
    for sign, namespace in sorted(counts):
        count = counts[sign, namespace]
        if sign != " " and count > most:
            words = "are new" if sign == "+" else "are gone"
            listed = f"(--namespace {namespace} lists them)"
            yield f"{sign} {count} bundles of {namespace} {words} {listed}"
    for change in changes:
        sign, namespace = _kind(change)
        if sign == " " or counts[sign, namespace] <= most:
            yield _change_line(change)


def _kind(change: OwnershipDifference) -> tuple[str, str]:
    """+ for new, - for gone, blank for changed; and of which namespace."""
    row = change.after or change.before
    sign = "+" if change.before is None else "-" if change.after is None else " "
    return sign, str(row["bundle"]).rpartition("/")[0] if row else ""


def _change_line(change: OwnershipDifference) -> str:
    if change.before is None and change.after is not None:
        return f"+ {change.bundle}  {_state(change.after)}"
    if change.after is None and change.before is not None:
        return f"- {change.bundle}  was {_state(change.before)}"
    before, after = (_state(row) for row in (change.before, change.after) if row is not None)
    cause = change.after["cause"] if change.after else ""
    return f"  {change.bundle}  {before}  =>  {after}  ({cause})"


def _state(row: Row) -> str:
    return f"{row['state']} {_way(row)}"


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
)
run = carry_out
