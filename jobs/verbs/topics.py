"""Create or check Ballast's Kafka topics, and show what each process may do.

ensure   makes missing topics, and reports each difference of the others from what they must be
         (--repair sets the configuration keys that differ; partitions are never changed)
acls     prints kafka-acls commands that give a role the rights it needs, and no others
         (--role job|agent|service|operator --principal User:NAME)
"""

import argparse
from collections.abc import Mapping
from typing import Any

from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.kafka.topics import (
    ROLES,
    TopicReport,
    ensure_topics,
    kafka_acls_commands,
    rights_of,
    wanted_topics,
)
from jobs.adapters.processes.settings import load_settings
from jobs.console import Exit, answer
from jobs.operating.connection_options import CONF_OPTION, KAFKA_OPTION
from jobs.parser import argument, arguments

add_arguments = arguments(
    argument("action", choices=("ensure", "acls")),
    KAFKA_OPTION,
    CONF_OPTION,
    argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="e.g. topics.replication_factor=3",
    ),
    argument("--repair", action="store_true", help="set configuration keys that differ"),
    argument("--role", choices=sorted(ROLES), default="job", help="acls: who"),
    argument("--principal", default="", help="acls: default User:ballast-ROLE"),
    argument("--dry-run", action="store_true", help="change nothing, say what would be"),
)


def run(args: argparse.Namespace) -> int:
    """Ensure the topics, or print the ACLs; 1 if a topic is missing or differs."""
    config = load_settings(args.conf, args.set)
    if args.action == "acls":
        commands = kafka_acls_commands(
            rights_of(args.role, config.pipeline.topic_prefix),
            args.principal or f"User:ballast-{args.role}",
            args.bootstrap or ",".join(config.kafka.bootstrap_servers) or "HOST:PORT",
        )
        answer(args, {"role": args.role, "commands": commands}, commands)
        return Exit.DONE
    reports = ensure_topics(
        kafka_address(config, args.bootstrap),
        wanted_topics(config),
        repair=args.repair,
        dry_run=args.dry_run,
        timeout_ms=config.kafka.request_timeout_ms,
    )
    is_good = all(report.is_good for report in reports)
    answer(
        args,
        {"good": is_good, "topics": list(map(_row, reports))},
        [line for report in reports for line in _lines(report)],
    )
    return Exit.DONE if is_good else Exit.FAILED


def _lines(report: TopicReport) -> list[str]:
    lines = [f"{report.name}: {report.status.value.replace('_', ' ')}"]
    lines += [f"  why: {report.detail}"] if report.detail else []
    lines += [f"  {item.key} must be {item.wanted}, is {item.found}" for item in report.differences]
    return lines


def _row(report: TopicReport) -> Mapping[str, Any]:
    return {
        "name": report.name,
        "status": report.status.value,
        "detail": report.detail,
        "differences": [
            {"key": item.key, "wanted": item.wanted, "found": item.found}
            for item in report.differences
        ],
    }
