"""Check everything around a cluster: versions, disk, rights, tables, topics, job.

Each line is ok, warn or fail, with what to do next. Exit code 1 when something fails. Nothing is
changed. With --url: this machine's Python, the service, and what the service says of the job.
"""

import argparse
import os
import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from jobs.adapters.delta.table_location import StorePath, TablePlace
from jobs.adapters.delta.table_log import (
    DamagedTableError,
    checkpoint_version,
    last_writer_commit,
    newest_version,
    written_ms,
)
from jobs.adapters.delta.table_scan import is_delta, open_delta
from jobs.adapters.delta.tables import TableSchemaError, check_columns, table_path
from jobs.adapters.kafka.topics import (
    TopicStatus,
    ensure_topics,
    newest_record_ms,
    wanted_topics,
)
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.jars import absent_jars, jars_folder
from jobs.adapters.processes.preflight import check_python, find_java
from jobs.adapters.spark.checkpoint import code_version
from jobs.console import CommandError, Exit, answer
from jobs.operating.answers import answers_of
from jobs.operating.connection_options import (
    STACK_OPTIONS,
    ConnectionOptions,
    connection_options,
)
from jobs.operating.status import read_status_rows
from jobs.parser import argument, arguments
from lbcore.explain.job_state import JobContext
from lbcore.explain.mirrored import certificates_ending
from lbcore.explain.recent_findings import (
    ADVICE,
    counted_versions,
    several_versions,
)
from lbcore.explain.status import ClusterPhase, ClusterStatus, make_status
from lbcore.model.tables import OWNERSHIP_EVENTS, TABLES, Table
from lbcore.model.times import CertificateEnd, duration
from lbcore.signals.shown_load import SHOWN_MS


class FindingVerdict(str, Enum):
    """Verdict of a finding: fine, not urgent, or an obstacle to work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the output. next_step: "" where nothing is to be done."""

    verdict: FindingVerdict
    subject: str
    what: str
    next_step: str = ""


ok, warn, fail = (partial(DoctorFinding, verdict) for verdict in FindingVerdict)


_GB = 1_000_000_000
_DISK_FAIL_BYTES, _DISK_WARN_BYTES = _GB, 5 * _GB
_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 10_000
_TICKS_OLD_MS = 30_000
_LOG_LENGTH_WARN = 2_000
_KAFKA_TIMEOUT_MS = 10_000
_NAMED = 10
PACKAGES: Mapping[str, tuple[str, str]] = {
    "deltalake": ("1.6.6", "2"),
    "kafka-python": ("3.0.12", "4"),
    "pandas": ("2.2", "3"),
    "protobuf": ("6.33", "7"),
    "pyarrow": ("19", ""),
    "pyspark": ("4.0.2", "4.4"),
}
"""Package → the first version that works, and the first later one that does not ("" = none)."""
EXCLUDED: Mapping[str, str] = {"pyspark": "4.2.0"}
"""Package → a version between them that does not work."""


def examine(where: ConnectionOptions, now_ms: int, *, with_kafka: bool) -> list[DoctorFinding]:
    """Return all findings, each after those that it depends on.

    A check that can't be made is a finding, too. with_kafka: ask Kafka, too.
    """
    found: list[DoctorFinding] = []
    checks: dict[str, Callable[[], Iterable[DoctorFinding]]] = {"python": lambda: [_python()]}
    if where.service is not None:
        checks["service"] = lambda: _service(where)
    else:
        around = where.around(asks_kafka=with_kafka)
        if around.kafka_trouble:  # first: most of what else is wrong follows from it
            found.append(
                fail(
                    "kafka",
                    f"{around.kafka_trouble}, asked from this machine",
                    "start it, or mend the way to it; brokers can't report and nothing is decided "
                    "without it",
                )
            )
        checks |= {
            "packages": _packages,
            "java": _java,
            "jars": lambda: [_jars()],
            "disk": lambda: [_disk(where)],
            "tables": lambda: _tables(where),
            "clock": lambda: _job_clock(where),
            "job": lambda: _job(where, now_ms, around),
        }
        if with_kafka and not around.kafka_trouble:
            checks |= {
                "topics": lambda: _topics(where),
                "kafka clock": lambda: _kafka_clock(where),
            }
    for subject, check in checks.items():
        try:
            found.extend(check())
        except CommandError as error:  # noqa: PERF203 (ten checks)
            found.append(fail(subject, f"{error.what}: {error.why}", error.next_step))
    return found


# -- this machine


def _python() -> DoctorFinding:
    check_python()
    return ok("python", platform.python_version())


def _packages() -> list[DoctorFinding]:
    wrong = []
    for name, (first, until) in PACKAGES.items():
        excluded = EXCLUDED.get(name, "")
        below, but = f", below {until}" if until else "", f", not {excluded}" if excluded else ""
        step = f"install {name} {first} or newer{below}{but}: `make setup`, or pip"
        try:
            there = version(name)
        except PackageNotFoundError:
            wrong.append(fail(name, "is not installed", step))
            continue
        is_outside = _parts(there) < _parts(first) or (until and _parts(there) >= _parts(until))
        if is_outside or there == excluded:
            wrong.append(fail(name, f"{there} is installed", step))
    return wrong or [ok("packages", ", ".join(f"{name} {version(name)}" for name in PACKAGES))]


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("+")[0].split(".") if part.isdigit())


def _java() -> list[DoctorFinding]:
    java = find_java()
    return [ok("java", f"{java.major} ({java.command})")]


def _jars() -> DoctorFinding:
    absent = absent_jars(jars_folder())
    if not absent:
        return ok("jars", "those of the embedded Kafka are there")
    return warn(
        "jars",
        f"{len(absent)} are missing: what needs them fetches them at first need (50 MB)",
        "`make setup` fetches them now, and so does `ballast run-local`",
    )


def _disk(where: ConnectionOptions) -> DoctorFinding:
    place = where.tables.absolute()
    if isinstance(place, StorePath):
        return ok("disk", f"none is needed: the tables are in {place}")
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / _GB:.1f} GB free at {place}"
    if free >= _DISK_WARN_BYTES:
        return ok("disk", text)
    return (fail if free < _DISK_FAIL_BYTES else warn)(
        "disk", text, "free some space, or move the tables to another disk"
    )


# -- the tables


def _tables(where: ConnectionOptions) -> Iterator[DoctorFinding]:
    where.reader()  # raises when there are none
    found = [finding for table in TABLES for finding in _table(where.tables, table)]
    fine = ok("tables", f"all {len(TABLES)} are there, with the columns of this version")
    yield from found or [fine]
    if isinstance(where.tables, StorePath):
        yield ok("rights", f"this user may read {where.tables}; the job says if it can't write")
    elif os.access(where.tables, os.W_OK):
        yield ok("rights", f"this user may write {where.tables}, as the job must")
    else:
        yield warn(
            "rights",
            f"this user may only read {where.tables}",
            "enough for lookups and verbs; the job needs a user that may write there",
        )


def _table(root: TablePlace, table: Table) -> Iterator[DoctorFinding]:
    name, path = table.name, table_path(root, table.name)
    if not is_delta(path):
        yield warn(name, "is not there", "the job makes it at its next start")
        return
    try:
        handle = open_delta(path)
        lacking = ", ".join(field.name for field in check_columns(handle, table))
        if lacking:
            yield warn(name, f"lacks {lacking}", "this version's job adds it at its next start")
        known = {column.name for column in table.columns}
        newer = ", ".join(f.name for f in handle.schema().fields if f.name not in known)
        if newer:
            words = f"{newer} was added by a newer version; this one leaves it null"
            yield warn(name, words, "use the newer version for the job and for this command")
    except TableSchemaError as error:
        yield fail(name, error.difference, "run the version that made it, or with new tables")
    except DamagedTableError as error:
        yield fail(name, error.why, error.next_step)
        return
    length = newest_version(path) - max(0, checkpoint_version(path))
    if length > _LOG_LENGTH_WARN:
        yield warn(
            name,
            f"{length} commits since the last checkpoint of its log: slow to open",
            "read the job's log: maintenance does not get through",
        )


# -- the job and what it knows


def _job_clock(where: ConnectionOptions) -> Iterator[DoctorFinding]:
    """The job's clock against this machine's, and against that of the tables' disk."""
    events = table_path(where.tables, OWNERSHIP_EVENTS.name)
    newest = newest_version(events)
    commit = last_writer_commit(events, newest, steps=1)
    writer = commit or last_writer_commit(events, newest)
    if writer is None:
        yield warn(
            "clock",
            "the job has never written",
            "start it: `ballast run-local`, or balance_cluster",
        )
        return
    ahead_ms = writer.now_ms - wall_ms()
    if commit is not None:
        ahead_ms = max(ahead_ms, writer.now_ms - written_ms(events, newest))
    yield _skew("clock", "the job's clock", ahead_ms)
    if writer.code_version and writer.code_version != code_version():
        yield warn(
            "version",
            "the job runs other code than this command",
            "use the same version for both; predictions (`plan`, --dry-run) may differ",
        )
    elif writer.code_version:
        yield ok("version", f"the job runs this code ({writer.code_version})")


def _skew(subject: str, whose: str, ahead_ms: int) -> DoctorFinding:
    if ahead_ms <= _SKEW_WARN_MS:
        return ok(subject, f"{whose} is not ahead of this machine's")
    return (fail if ahead_ms > _SKEW_FAIL_MS else warn)(
        subject,
        f"{whose} is {duration(ahead_ms)} ahead",
        "synchronise both machines' clocks (chrony, ntpd): ages and as-of answers are wrong",
    )


def _job(where: ConnectionOptions, now_ms: int, around: JobContext) -> Iterator[DoctorFinding]:
    config = where.started()
    rows = read_status_rows(where.reader(), now_ms, config.lookup, around)
    status = make_status(where.cluster, rows, config, now_ms)
    yield from _job_findings(status, around)
    near = CertificateEnd.EXPIRING
    for words in certificates_ending(rows.certificates, status.mirror, near, now_ms):
        what, _, step = words.partition(": ")
        yield warn("certificate", what, step)


def _service(where: ConnectionOptions) -> Iterator[DoctorFinding]:
    """Findings of a service; this machine needs neither tables nor Kafka."""
    answers = answers_of(where)
    yield ok("service", f"it answers for cluster {answers.cluster}")
    status = answers.status()
    yield from _job_findings(status, status.job.around)


def _job_findings(status: ClusterStatus, around: JobContext) -> Iterator[DoctorFinding]:
    text = f"{status.phase.value}: {status.why}"
    if status.phase is ClusterPhase.STALLED or status.writer_silent_ms < 0:
        step = "mend Kafka first" if around.kafka_trouble else around.read_log
        yield fail("job", text, f"{step}; `ballast status` says more")
    elif status.phase is ClusterPhase.OFF:
        yield warn(
            "job", text, "`ballast resume` or `ballast resume --release-brake` when that is right"
        )
    else:
        yield ok("job", f"{text}; last heartbeat {duration(status.writer_silent_ms)} ago")
    trouble = around.kafka_trouble
    for alarm in (words for words in status.alarms if not (trouble and trouble in words)):
        what, _, step = alarm.partition(": ")
        yield warn("alarm", what, step or "`ballast status` says more")
    yield _load(status, around)
    several = several_versions(status.versions)
    if several:
        yield warn("versions", several, ADVICE)
    elif status.versions:
        yield ok("versions", f"all active brokers run {counted_versions(status.versions)}")


def _load(status: ClusterStatus, around: JobContext) -> DoctorFinding:
    """Return the finding on brokers without recent load, as far as it is known."""
    if not status.job.is_present or around.kafka_trouble:
        age = "the job has never written"
        if status.writer_silent_ms >= 0:
            age = f"the job's last commit is {duration(status.writer_silent_ms)} old"
        return warn("load", f"not known now: {age}", "mend what is said above first")
    active = [row for row in status.broker_rows if row.state == "active"]
    stale = [row.broker for row in active if row.load_age_ms < 0]
    if not active:
        return warn("load", "no broker is active", "start agents: docs/agent.md")
    if stale:
        more = f" and {len(stale) - _NAMED} more" if len(stale) > _NAMED else ""
        return warn(
            "load",
            f"no load for {duration(SHOWN_MS)} of {', '.join(stale[:_NAMED])}{more}",
            "read these agents' logs; `ballast status` says whether they are heard",
        )
    return ok("load", f"of all {len(active)} active brokers")


# -- Kafka


def _topics(where: ConnectionOptions) -> list[DoctorFinding]:
    specs, wrong = wanted_topics(where.config), list[DoctorFinding]()
    for report in ensure_topics(where.address(), specs, dry_run=True, timeout_ms=_KAFKA_TIMEOUT_MS):
        if report.status is TopicStatus.WOULD_MAKE:
            wrong.append(fail(report.name, "is not in Kafka", "`ballast topics ensure` makes it"))
        elif not report.is_good:
            words = "; ".join(f"{d.key} is {d.found}, not {d.wanted}" for d in report.differences)
            step = "`ballast topics ensure --repair` sets what can be set"
            wrong.append(warn(report.name, words or report.detail, step))
    return wrong or [ok("topics", f"all {len(specs)} are as the settings say")]


def _kafka_clock(where: ConnectionOptions) -> Iterator[DoctorFinding]:
    newest_ms = newest_record_ms(where.address(), _KAFKA_TIMEOUT_MS)
    now_ms = wall_ms()  # asking takes a while, in which Kafka's clock goes on
    if newest_ms is None:
        yield warn("ticks", "broker-load is empty", "start the job and the brokers' agents")
        return
    yield _skew("kafka clock", "Kafka's clock", newest_ms - now_ms)
    age_ms = max(0, now_ms - newest_ms)
    text = f"the newest message on broker-load is {duration(age_ms)} old"
    step = "the job sends one a second: start it, or read its log; or Kafka's clock is behind"
    yield fail("ticks", text, step) if age_ms > _TICKS_OLD_MS else ok("ticks", text)


add_arguments = arguments(
    argument("--no-kafka", action="store_true", help="leave Kafka out"),
    STACK_OPTIONS,
    example="ballast doctor --conf production --tables /srv/ballast/tables",
)


def run(args: argparse.Namespace) -> int:
    """Write what is found."""
    found = examine(connection_options(args), wall_ms(), with_kafka=not args.no_kafka)
    verdict = max((one.verdict for one in found), key=list(FindingVerdict).index)
    answer(args, {"verdict": verdict, "findings": list(map(asdict, found))}, _lines(found))
    return Exit.FAILED if verdict is FindingVerdict.FAIL else Exit.DONE


def _lines(found: Sequence[DoctorFinding]) -> Iterable[str]:
    width = max(len(one.subject) for one in found)
    for one in found:
        yield f"{one.verdict.value:<4}  {one.subject:<{width}}  {one.what}"
        if one.next_step:
            yield f"      {'':<{width}}  next: {one.next_step}"
    counts = Counter(one.verdict.value for one in found)
    yield ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in FindingVerdict)
