"""Show ownership now or at an earlier time or table version, or its changes.

Changes are those between two moments. Read from ownership_events alone. A moment is an ISO time
(UTC without a zone), a time before now (5m, 2h), or a version of that table, a whole number.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import AsOf, TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import Exit, MisuseError, answer
from jobs.operating.connection_options import add_stack_arguments, connection_options, require_known
from jobs.operating.text_format import format_instant, parse_instant_ms, text_table
from lbcore.ownership.differences import OwnershipChange, find_differences, parties

Row = Mapping[str, Any]
_LISTED = 20
_DIGITS_MAX = 18  # of a version
"""New or vanished bundles of a namespace that are listed one by one, unless it is asked for."""
_SHOWN = ("namespace", "bundle", "state", "source", "destination", "version_id", "cause", "at_ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: bundles and moment."""
    parser.add_argument("--namespace", default="", metavar="NAME", help="only of this namespace")
    parser.add_argument(
        "--broker", default="", metavar="NAME", help="only what this broker has, gives or gets"
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--as-of", default="", metavar="MOMENT", help="5m, 2026-11-21T03:00Z or 120")
    when.add_argument(
        "--diff", nargs=2, metavar=("FROM", "TO"), help="what changed from one moment to the other"
    )
    parser.epilog = "example: ballast ownership --diff 15m 0s --namespace acme/orders"
    add_stack_arguments(parser, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Write the records or differences. Raises CommandError for unknown names."""
    reader = connection_options(args).reader()
    now_ms = wall_ms()
    if args.diff:
        before, after = (_records(reader, word, args.namespace, now_ms) for word in args.diff)
        if before.at_ms > after.at_ms:
            raise MisuseError(
                f"{args.diff[0]} is later than {args.diff[1]}",
                why="the changes are those from an earlier moment to a later one",
                next_step=f"swap them: --diff {args.diff[1]} {args.diff[0]}",
            )
        if not before.rows and not after.rows:
            require_known(reader, namespace=args.namespace)
        if not any(_is_asked_for(row, args.broker) for row in (*before.rows, *after.rows)):
            require_known(reader, broker=args.broker)
        return _say_differences(args, before, after)
    found = _records(reader, args.as_of, args.namespace, now_ms)
    rows = [row for row in found.rows if _is_asked_for(row, args.broker)]
    if not rows:
        require_known(reader, namespace=args.namespace, broker=args.broker)
    value = {
        "version": found.version,
        "at_ms": found.at_ms,
        "known_from_ms": found.known_from_ms,
        "bundles": [{name: row[name] for name in _SHOWN} for row in rows],
    }
    answer(args, value, [_head(found, len(rows)), *_table(rows)])
    return Exit.DONE


def _records(reader: TableReader, moment: str, namespace: str, now_ms: int) -> AsOf:
    condition = f"namespace = {literal(namespace)}" if namespace else ""
    if not moment:
        return reader.newest(condition)
    if moment.isdecimal() and len(moment) <= _DIGITS_MAX:
        return reader.at_version(int(moment), condition)
    try:
        return reader.at_time(parse_instant_ms(moment, now_ms), condition)
    except argparse.ArgumentTypeError:
        raise MisuseError(
            f"{moment!r} is no moment",
            why="a moment is an ISO time, so long ago, or a version of ownership_events",
            next_step="write 2026-11-21T03:00:00Z, 5m for five minutes ago, or 120",
        ) from None


def _is_asked_for(row: Row | None, broker: str) -> bool:
    return row is not None and (not broker or broker in parties(row))


def _head(found: AsOf, count: int) -> str:
    if not found.is_known:
        return _unknown(found)
    return f"{count} bundles at {_moment(found)}"


def _moment(found: AsOf) -> str:
    if found.version < 0:  # events are kept, the log of their commits is not
        return format_instant(found.at_ms)
    return f"version {found.version} of ownership_events, {format_instant(found.at_ms)}"


def _unknown(found: AsOf) -> str:
    return (
        f"nothing is known of {format_instant(found.at_ms)}: ownership_events reaches back to "
        f"{format_instant(found.known_from_ms)}"
    )


def _table(rows: Sequence[Row]) -> Iterable[str]:
    cells = [("bundle", "state", "owner", "version", "cause", "since")]
    cells += [
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
    return text_table(cells)


def _way(row: Row) -> str:
    return " → ".join(parties(row)) or "-"


def _say_differences(args: argparse.Namespace, before: AsOf, after: AsOf) -> int:
    changes = [
        change
        for change in find_differences(before.rows, after.rows)
        if _is_asked_for(change.before, args.broker) or _is_asked_for(change.after, args.broker)
    ]
    value = {
        "from": _about(before),
        "to": _about(after),
        "changes": [_change_value(change) for change in changes],
    }
    unknown = [_unknown(found) for found in (before, after) if not found.is_known]
    head = f"{len(changes)} bundles changed from {_short(before)} to {_short(after)}"
    lines = change_lines(changes, _LISTED if not args.namespace else len(changes))
    answer(args, value, [*unknown, head, *lines])
    return Exit.DONE


def _about(found: AsOf) -> dict[str, int]:
    return {
        "version": found.version,
        "at_ms": found.at_ms,
        "known_from_ms": found.known_from_ms,
    }


def _short(found: AsOf) -> str:
    at = format_instant(found.at_ms)
    return f"version {found.version} ({at})" if found.version >= 0 else at


def _change_value(change: OwnershipChange) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}
    return {
        "bundle": change.bundle,
        **{
            side: None if row is None else {name: row[name] for name in _SHOWN}
            for side, row in sides.items()
        },
    }


def change_lines(changes: Sequence[OwnershipChange], most: int) -> Iterable[str]:
    """Yield a line a change.

    Where more than `most` came to or left a namespace, one line for these.
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


def _kind(change: OwnershipChange) -> tuple[str, str]:
    """+ for new, - for gone, blank for changed; and of which namespace."""
    row = change.after or change.before
    sign = "+" if change.before is None else "-" if change.after is None else " "
    return sign, str(row["namespace"]) if row else ""


def _change_line(change: OwnershipChange) -> str:
    if change.before is None and change.after is not None:
        return f"+ {change.bundle}  {_state(change.after)}"
    if change.after is None and change.before is not None:
        return f"- {change.bundle}  was {_state(change.before)}"
    before, after = (_state(row) for row in (change.before, change.after) if row is not None)
    cause = change.after["cause"] if change.after else ""
    return f"  {change.bundle}  {before}  =>  {after}  ({cause})"


def _state(row: Row) -> str:
    return f"{row['state']} {_way(row)}"
