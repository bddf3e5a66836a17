"""Say which broker serves a topic, from the tables alone.

It needs no service, no Kafka and no Spark. Fails when a topic has no owner or its namespace doesn't
exist.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError, Exit, MisuseError, answer
from jobs.local.layout import Layout
from jobs.lookup_client import LookupClient, LookupResult
from jobs.operating.connection_options import (
    STATE_DIR,
    STATE_DIR_HELP,
    add_cluster_option,
    add_tables_option,
)
from lbcore.model.names import InvalidNameError
from lbcore.route.snapshot import LookupOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The topics, and where the tables are."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="persistent://tenant/ns/topic")
    parser.add_argument(
        "--state-dir", type=Path, default=STATE_DIR, metavar="DIR", help=STATE_DIR_HELP
    )
    add_tables_option(parser)
    add_cluster_option(parser)
    parser.add_argument("--listener", default="", help="advertised listener whose URLs are wanted")
    parser.add_argument("--timeout-ms", type=int, default=30_000, help="for loading the tables")


def run(args: argparse.Namespace) -> int:
    """Write a line for each topic. Raises CommandError for unreadable tables."""
    tables = args.tables or Layout(root=args.state_dir).tables
    TableReader(tables, args.cluster)  # without tables there is nothing to wait for
    with LookupClient(tables, args.cluster) as client:
        if not client.wait_ready(args.timeout_ms):
            raise CommandError(
                f"the tables in {tables} could not be loaded within {args.timeout_ms} ms",
                why=client.last_error or "they are not all there",
                next_step="name the folder that balance_cluster writes to with --tables",
            )
        results = {topic: _look_up(client, topic, args.listener) for topic in args.topics}
    answer(args, [_fields(*pair) for pair in results.items()], _lines(results))
    is_served = all(result.outcome is LookupOutcome.FOUND for result in results.values())
    return Exit.DONE if is_served else Exit.FAILED


def _look_up(client: LookupClient, topic: str, listener: str) -> LookupResult:
    try:
        return client.lookup(topic, listener)
    except InvalidNameError as error:
        raise MisuseError(
            f"{topic} is no topic's name",
            why=str(error),
            next_step="write it as persistent://tenant/namespace/topic",
        ) from error


def _fields(topic: str, result: LookupResult) -> dict[str, Any]:
    return {"topic": topic, **asdict(result)}


def _lines(results: dict[str, LookupResult]) -> list[str]:
    return [
        f"{topic} {result.broker_url or result.outcome.value}"
        f" (broker {result.broker or '-'}, bundle {result.bundle or '-'},"
        f" {result.freshness.age_ms} ms old)"
        for topic, result in results.items()
    ]
