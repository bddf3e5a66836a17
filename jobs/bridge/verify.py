"""Follow Pulsar's bundle channel and name the first record against its protocol.

Reads each entry of the topic loadbalancer-service-unit-state through the admin interface, from the
oldest kept. Needs Pulsar 4.0 or newer with the extensible load manager, and a super user's
rights. Reads only. Ends with 1 at a violation, else at Ctrl-C, or at the topic's end with --once.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator

from jobs.adapters.processes.signals import on_signals
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, admin_at
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, Exit, answer, note
from jobs.parser import argument, arguments, group
from lbcore.bridge.bundle_channel import (
    TOPIC,
    ChannelChecker,
    ChannelViolation,
    UnreadableEntryError,
    parse_entry,
)

_POLL_S = 1.0
_PROGRESS_S = 30.0

add_options = arguments(
    argument("--admin-url", required=True, metavar="URL", help="of any broker"),
    argument("--once", action="store_true", help="end at the end of the topic"),
    group("Pulsar", add_access_options),
)


def run(args: argparse.Namespace) -> int:
    """Follow the topic until a violation, its end, or a signal."""
    admin = admin_at(args.admin_url, args)
    checker, end = ChannelChecker(), threading.Event()
    stop_listening = on_signals(end.set)
    try:
        violation = _follow(admin, checker, end, is_once=args.once)
    except PulsarAdminError as error:
        raise CommandError(
            "the bundle channel can't be read",
            why=str(error),
            next_step="the extensible load manager of Pulsar 4.0 and newer writes it; give a super"
            " user's token with --auth-token-file",
        ) from None
    except UnreadableEntryError as error:
        raise CommandError(
            "the bundle channel has an entry that is no record",
            why=str(error),
            next_step="look at it with `pulsar-admin topics get-message-by-id`",
        ) from None
    finally:
        stop_listening()
    counts = (
        f"{checker.records} records, {checker.bundles} bundles, {checker.outdated} with an old"
        " version, which brokers skip"
    )
    found = violation.text() if violation else ""
    value = {
        "records": checker.records,
        "bundles": checker.bundles,
        "outdated": checker.outdated,
        "violation": found,
    }
    answer(args, value, [counts, f"not allowed: {found}" if found else "all are allowed"])
    return Exit.FAILED if violation else Exit.DONE


def _follow(
    admin: PulsarAdmin, checker: ChannelChecker, end: threading.Event, *, is_once: bool
) -> ChannelViolation | None:
    last, noted_s = (-1, -1), time.monotonic()
    while not end.is_set():
        for position in _entries(admin.topic_internals(TOPIC), last):
            answered = admin.topic_entry(TOPIC, *position)
            last = position
            name = f"{position[0]}:{position[1]}"
            for record in parse_entry(name, *answered) if answered else ():
                violation = checker.take(record)
                if violation is not None:
                    return violation
            if time.monotonic() - noted_s >= _PROGRESS_S:
                noted_s = time.monotonic()
                note(f"{checker.records} records, at {name}; Ctrl-C ends it")
            if end.is_set():
                return None
        if is_once:
            return None
        end.wait(_POLL_S)
    return None


def _entries(raw: bytes, after: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the positions (ledger, entry) of entries after one, in order."""
    try:
        internals = json.loads(raw)
        newest, count = (int(part) for part in internals["lastConfirmedEntry"].split(":"))
        ledgers = [(int(one["ledgerId"]), int(one["entries"])) for one in internals["ledgers"]]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PulsarAdminError(f"the topic's internal statistics can't be read: {error}") from None
    for ledger, entries in sorted(ledgers):
        last = count + 1 if ledger == newest else entries
        for entry in range(after[1] + 1 if ledger == after[0] else 0, last):
            if (ledger, entry) > after:
                yield ledger, entry
