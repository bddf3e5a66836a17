"""Say which broker serves a topic, from the tables or a service (--url).

It needs no Kafka and no Spark. Fails when a topic has no owner or its namespace doesn't exist.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict

from jobs.console import Exit, answer
from jobs.lookup_client import LookupResult
from jobs.operating.connection_options import add_stack_arguments, connection_options
from jobs.operating.service_answers import answers_of
from lbcore.route.snapshot import LookupOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The topics, and where the cluster is."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="persistent://tenant/ns/topic")
    parser.add_argument(
        "--listener", default="", metavar="NAME", help="advertised listener whose URLs are wanted"
    )
    parser.add_argument("--timeout-ms", type=int, default=30_000, help="for loading the tables")
    add_stack_arguments(parser, with_kafka=False)


def run(args: argparse.Namespace) -> int:
    """Write a line for each topic."""
    results = answers_of(connection_options(args)).lookup(
        args.topics, args.listener, args.timeout_ms
    )
    answer(
        args, [{"topic": topic, **asdict(one)} for topic, one in results.items()], _lines(results)
    )
    is_served = all(result.outcome is LookupOutcome.FOUND for result in results.values())
    return Exit.DONE if is_served else Exit.FAILED


def _lines(results: Mapping[str, LookupResult]) -> list[str]:
    return [
        f"{topic} {result.broker_url or result.outcome.value}"
        f" (broker {result.broker or '-'}, bundle {result.bundle or '-'},"
        f" {result.freshness.age_ms} ms old)"
        for topic, result in results.items()
    ]
