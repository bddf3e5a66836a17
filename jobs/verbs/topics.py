"""Make the topics of the wire, or check those that are there.

ensure   makes missing topics, and reports each difference of the others from what they must be
         (--repair sets the configuration keys that differ; partitions are never changed)
"""

import argparse
from collections.abc import Mapping
from typing import Any

from jobs.adapters.kafka_settings import kafka_address
from jobs.adapters.settings import load_settings
from jobs.adapters.topics import TopicReport, ensure_topics, wanted_topics
from jobs.console import Exit, answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The one action, where Kafka is, and the settings that say what topics must be."""
    parser.add_argument("action", choices=("ensure",))
    parser.add_argument("--bootstrap", default="", metavar="HOST:PORT", help="Kafka's address")
    parser.add_argument(
        "--conf", action="append", metavar="NAME", help="overlay, by name or path; may be repeated"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="e.g. topics.min_insync_replicas=2",
    )
    parser.add_argument("--repair", action="store_true", help="set configuration keys that differ")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be")


def run(args: argparse.Namespace) -> int:
    """Ensure the topics; fails when one differs or could not be made."""
    config = load_settings(args.conf, args.set)
    reports = ensure_topics(
        kafka_address(config, args.bootstrap),
        wanted_topics(config),
        repair=args.repair,
        dry_run=args.dry_run,
        timeout_ms=config.kafka.request_timeout_ms,
    )
    is_good = all(report.is_good for report in reports)
    value = {"good": is_good, "topics": [_row(report) for report in reports]}
    answer(args, value, "\n".join(_lines(report) for report in reports))
    return Exit.DONE if is_good else Exit.FAILED


def _lines(report: TopicReport) -> str:
    lines = [f"{report.name}: {report.status.value.replace('_', ' ')}"]
    lines += [f"  why: {report.detail}"] if report.detail else []
    lines += [f"  {item.key} must be {item.wanted}, is {item.found}" for item in report.differences]
    return "\n".join(lines)


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
