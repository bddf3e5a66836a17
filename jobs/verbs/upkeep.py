"""Verbs that look after what the job needs: Kafka's topics, and the state folder."""

import argparse
from dataclasses import asdict
from pathlib import Path

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
from jobs.adapters.spark.checkpoint import archive_state, hold_folder, restored_mark
from jobs.console import Exit, MisuseError, answer, note, require_consent
from jobs.local.layout import Layout
from jobs.operating.connection_options import CONF_OPTION, KAFKA_OPTION, STATE_DIR
from jobs.parser import argument, arguments, by_verb, carry_out


def _topics(args: argparse.Namespace) -> int:
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
        {"good": is_good, "topics": [asdict(report) for report in reports]},
        [line for report in reports for line in _lines(report)],
    )
    return Exit.DONE if is_good else Exit.FAILED


def _lines(report: TopicReport) -> list[str]:
    lines = [f"{report.name}: {report.status.value.replace('_', ' ')}"]
    lines += [f"  why: {report.detail}"] if report.detail else []
    lines += [f"  {item.key} must be {item.wanted}, is {item.found}" for item in report.differences]
    return lines


_LOCAL = Layout(root=STATE_DIR).job


def _state(args: argparse.Namespace) -> int:
    """Set the checkpoint aside; CommandError while a job uses it."""
    if args.restored and not args.dry_run:
        args.state_dir.mkdir(parents=True, exist_ok=True)
    if not args.state_dir.is_dir():
        raise MisuseError(
            f"there is no state folder {args.state_dir}",
            why="no balance_cluster job was started with it",
            next_step="name the job's folder with --state-dir",
        )
    with hold_folder(args.state_dir):
        moves = archive_state(args.state_dir, dry_run=True)
        if not moves:
            if args.restored and not args.dry_run:
                restored_mark(args.state_dir).touch()
            text = "there is no checkpoint: the next start rebuilds the state from the tables"
            answer(args, {"set_aside": []}, text)
            return Exit.DONE
        if not args.dry_run:
            if not args.yes:
                note(f"The checkpoint in {args.state_dir} is set aside (not deleted).")
                note("The next start rebuilds the state from the tables; averages begin anew.")
                require_consent("start the job as it is, or run this again")
            if args.restored:
                restored_mark(args.state_dir).touch()
            moves = archive_state(args.state_dir)
    where = ", ".join(map(str, moves))
    done = "would be set aside as" if args.dry_run else "was set aside as"
    text = f"the checkpoint {done} {where}; the next start rebuilds the state from the tables"
    answer(args, {"set_aside": [str(path) for path in moves], "dry_run": args.dry_run}, text)
    return Exit.DONE


add_arguments = by_verb(
    topics=arguments(
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
        run=_topics,
        about="""Create or check Ballast's Kafka topics, and show what each process may do.

ensure   makes missing topics, and reports each difference of the others from what they must be
         (--repair sets the configuration keys that differ; partitions are never changed)
acls     prints kafka-acls commands that give a role the rights it needs, and no others
         (--role job|agent|service|operator --principal User:NAME)
""",
    ),
    state=arguments(
        argument("action", choices=("rebuild",)),
        argument(
            "--state-dir", type=Path, default=_LOCAL, help=f"the job's --state-dir ({_LOCAL})"
        ),
        argument("--restored", action="store_true", help="the tables were put back from a backup"),
        argument("--yes", action="store_true", help="don't ask"),
        argument("--dry-run", action="store_true", help="change nothing, say what would be"),
        run=_state,
        about="""Look after the streaming job's state folder while the job is stopped.

rebuild   sets the checkpoint aside (nothing is deleted); the next start of the job rebuilds its
          state from the tables and reads on after the last committed batch. Ownership, brokers,
          namespaces and what operators have set come back exactly; load averages and hit counts
          begin anew. Use it when the job refuses its checkpoint, or when you doubt it.
          --restored: the tables were put back from a backup; every record then gets a new
          version, because brokers have seen newer ones than the backup has
""",
    ),
)
run = carry_out
