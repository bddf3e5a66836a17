"""A cluster's status: its rows in the tables, and its lines for people.

The rows of an overview and of a rehearsal are read here, too.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from time import monotonic
from typing import Any

import pyarrow.compute as pc

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_reader import Row, TableReader
from jobs.adapters.http.tls import certificate_ends_ms
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, format_instant
from jobs.operating.explaining import settings_by_command
from jobs.sql.engine import SqlEngine
from lbcore.balancer.candidate_rows import BLOCKED
from lbcore.balancer.cycle import FULL
from lbcore.balancer.placement import ALARM as NO_CANDIDATE
from lbcore.config.lookup import LookupConfig
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows
from lbcore.explain.job_state import JobContext
from lbcore.explain.reasons import skip_message
from lbcore.explain.recent_findings import RECENT_MS
from lbcore.explain.status import (
    HISTORY_MS,
    ClusterStatus,
    DrainStatus,
    Moment,
    Overview,
    StatusRows,
    last_decisions,
    make_status,
    moments,
)
from lbcore.foresight.planning_memory import REMEMBERED_MS
from lbcore.foresight.rehearse import RehearsalRows
from lbcore.model.tables import DECISIONS, LOAD_HISTORY
from lbcore.model.times import HOUR_MS, duration, time_ago
from lbcore.ownership.records import State
from lbcore.signals.shown_load import SHOWN_MS, groups_line

_LOAD = (
    *("broker", "minute_ms", "reported_ms", "usage", "score", "percent", "traffic"),
    "broker_group",
)

RECORD = ("bundle", "state", "source", "destination", "cause", "version_id", "at_ms")
"""What is read of a bundle's record."""


def read_status_rows(
    reader: TableReader,
    now_ms: int,
    own: LookupConfig | None = None,
    around: JobContext | None = None,
) -> StatusRows:
    """Read the rows of a status, as the tables have them now.

    own: the service's settings, if known. around: the job's state from outside the tables.

    A certificate that this process may not read, as on another machine, is left out.
    """
    writer = reader.writer()
    written_ms = writer.now_ms if writer else now_ms
    recent = f"at_ms >= {written_ms - RECENT_MS}"
    history = f"at_ms >= {written_ms - HISTORY_MS}"
    mirrored = f"kind = 'observe_ownership' AND {recent}"
    at_rest, bundles = _bundles(reader)
    path = own.certificate_file if own is not None else ""
    ends_ms = certificate_ends_ms(path)
    return StatusRows(
        mirror_commands=reader.rows("commands", ("status", "result", "at_ms"), mirrored),
        writer_ms=writer.now_ms if writer else None,
        bundles=bundles,
        at_rest=at_rest,
        brokers=reader.rows("brokers", ("broker", "state", "version")),
        decisions=reader.rows("decisions", ("cycle", "kind", "reason", "source", "at_ms"), history),
        blocked=reader.rows(
            "decisions",
            ("kind", "reason", "source", "at_ms", "inputs"),
            f"kind IN ('{FULL}', '{BLOCKED}', '{NO_CANDIDATE}') AND {recent}",
        ),
        silence=reader.rows(
            "decisions",
            ("decision_id", "kind", "reason", "source", "at_ms", "inputs"),
            f"kind IN ('failover', 'silence') AND {recent}",
        ),
        around=around or JobContext(),
        policies=reader.rows("policies"),
        pins=reader.rows("pins"),
        load=reader.rows("load_history", _LOAD, f"minute_ms >= {now_ms - SHOWN_MS}"),
        certificates={f"the service ({path})": ends_ms} if ends_ms else {},
        rejected=reader.rejected(now_ms - RECENT_MS),
        settings=settings_by_command(reader.rows("config_versions", ("number", "settings"))),
    )


def _bundles(reader: TableReader) -> tuple[dict[str, int], list[Row]]:
    """Return broker → number of owned bundles, and records of bundles not at rest.

    Counted by Arrow: nearly all of a hundred thousand are at rest. O(bundles).
    """
    records = reader.table("bundle_ownership", RECORD)
    is_at_rest = pc.equal(records["state"], State.OWNED.value)
    owned = records.filter(is_at_rest).group_by("destination").aggregate([([], "count_all")])
    counts = zip(owned["destination"].to_pylist(), owned["count_all"].to_pylist(), strict=True)
    return dict(counts), records.filter(pc.invert(is_at_rest)).to_pylist()


def read_rehearsal_rows(reader: TableReader) -> RehearsalRows:
    """Read the rows that a rehearsal needs; of load and decisions only recent ones."""
    writer = reader.writer()
    written_ms = writer.now_ms if writer else wall_ms()
    since_ms = {
        LOAD_HISTORY.name: written_ms - RECENT_MS,
        DECISIONS.name: written_ms - REMEMBERED_MS,
    }
    return RehearsalRows.read(
        lambda name: reader.rows(
            name, condition=f"at_ms >= {since_ms[name]}" if name in since_ms else ""
        )
    )


def read_overview(
    reader: TableReader, config: Config, now_ms: int, around: JobContext | None = None
) -> Overview:
    """The cluster at one glance, as the tables have it now; config: the cluster's.

    around: what is known of the job beside the tables.
    """
    rows = read_status_rows(reader, now_ms, config.lookup, around)
    status = make_status(reader.cluster, rows, config, now_ms)
    recent = f"at_ms >= {now_ms - HOUR_MS}"
    explained = ExplainRows(
        cluster=reader.cluster,
        at_ms=now_ms,
        window_ms=HOUR_MS,
        config=config,
        decisions=reader.rows("decisions", condition=recent),
        effects=reader.rows("decision_effects", condition=recent),
    )
    return Overview(
        status=status, balance=_balance(reader, now_ms), decisions=last_decisions(explained)
    )


def _balance(reader: TableReader, now_ms: int) -> tuple[Moment, ...]:
    """Return the balance of load, a moment an interval of load_history.

    The engine aggregates it.
    """
    found = SqlEngine(reader.root, (LOAD_HISTORY.name,)).query(
        "SELECT minute_ms, COALESCE(broker_group, '') AS broker_group, COUNT(*) AS brokers,"  # noqa: S608 (a number and a quoted name)
        " AVG(msg_rate) AS mean, MAX(msg_rate) AS most"
        f" FROM broker_loads WHERE cluster = {literal(reader.cluster)}"
        f" AND minute_ms >= {now_ms - HOUR_MS} GROUP BY minute_ms, broker_group"
    )
    return moments(zip(*(column.to_pylist() for column in found.columns), strict=True))


_SHOWN, _GAPS_SHOWN = 10, 3
_EVERY_S = 3.0


class StatusView:
    """Status of a cluster whose tables are here, read again every three seconds."""

    def __init__(self, tables: TablePlace, cluster: str, config: Config) -> None:
        self._tables, self._cluster, self._config = tables, cluster, config
        self._due_s = 0.0
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        """Return the lines of the newest reading, or why there is none."""
        if monotonic() >= self._due_s:
            self._due_s = monotonic() + _EVERY_S
            try:
                now_ms, reader = wall_ms(), TableReader(self._tables, self._cluster)
                rows = read_status_rows(reader, now_ms)
                status = make_status(self._cluster, rows, self._config, now_ms)
                self._lines = list(status_lines(status))
            except CommandError as error:
                self._lines = [f"{error.what}: {error.why}"]
        return self._lines


def status_lines(status: ClusterStatus) -> Iterable[str]:
    """The status for people, the most important first."""
    yield f"{status.cluster}: {status.headline} – {status.why}"
    for alarm, section in zip_longest(status.alarms, status.alarm_sections):
        named = f" (runbook: {section})" if section and section not in alarm else ""
        yield f"  ALARM  {alarm}{named}"
    yield from (f"  warning {warning}" for warning in status.warnings)
    yield f"  job     {status.job_message}"
    yield from (f"  gap     {gap.message()}" for gap in status.gaps[-_GAPS_SHOWN:])
    if not status.job.is_present and status.writer_silent_ms >= 0:
        yield f"  as of   {time_ago(status.writer_silent_ms)}, by the job's last commit:"
    what = f": {_cycle(status.last_cycle)}" if status.last_cycle else ""
    yield f"  cycle   {status.cycle}, {time_ago(status.cycle_age_ms)}{what}"
    yield f"  brokers {_counts(status.brokers)}"
    yield f"  bundles {_counts(status.bundles)}"
    if status.imbalance is not None:
        worst = ", worst group" if status.groups else ""
        yield (
            f"  imbalance {status.imbalance:.2f}"
            f" (message rates of live brokers, highest over mean{worst})"
        )
    if status.groups:
        yield f"  groups  {groups_line(status.groups)}"
    mirror = status.mirror
    if mirror is not None:
        yield (
            f"  mirror  told {time_ago(mirror.heard_ago_ms)}, {mirror.differences} differ, "
            f"{mirror.taken_over_lately} owners taken over in 10 min, "
            f"decisions are {'only observed' if mirror.observe_only else 'carried out'}"
        )
    yield from _rules(status)
    yield from _broker_table(status)
    yield from _flight(status)


def _cycle(decided: str) -> str:
    """Return a cycle's decisions; of one without moves the reason."""
    skipped = re.fullmatch(r"1 skip \((\w+)\)", decided)
    return f"nothing moved, because {skip_message(skipped[1])}" if skipped else decided


def _rules(status: ClusterStatus) -> Iterable[str]:
    yield from (f"  drain   {_drain(drain, status.now_ms)}" for drain in status.drains)
    for namespace, value in status.pauses.items():
        since = format_instant(value["since_ms"])
        about = " ".join(filter(None, (value.get("by"), value.get("reason"))))
        yield f"  pause   {namespace or 'the whole cluster'} since {since}  {about}".rstrip()
    if status.brake is not None:
        yield f"  brake   on since {format_instant(status.brake['since_ms'])}"
    for pin in status.pins[:_SHOWN]:
        until = format_instant(pin["until_ms"]) if pin["until_ms"] else "unpinned"
        about = " ".join(filter(None, (pin["owner"], pin["reason"])))
        yield f"  pin     {pin['bundle']} to {pin['broker']} until {until}  {about}".rstrip()
    yield from _more(len(status.pins))
    if status.excluded:
        yield f"  not shed: {', '.join(status.excluded)}"


def _drain(drain: DrainStatus, now_ms: int) -> str:
    gone = drain.total - drain.left
    if drain.is_done:
        return f"{drain.broker} is empty: it may be stopped ({drain.total} bundles moved away)"
    words = [
        f"{drain.broker}: {gone} of {drain.total} bundles gone, {drain.left} left",
        f"for {duration(max(0, now_ms - drain.since_ms))}",
    ]
    if drain.estimated_end_ms > now_ms:
        words.append(f"about {duration(drain.estimated_end_ms - now_ms)} to go")
    if drain.deadline_ms:
        words.append(f"deadline {format_instant(drain.deadline_ms)}")
    return ", ".join(words)


def _broker_table(status: ClusterStatus) -> Iterable[str]:
    if not status.broker_rows:
        return
    width = max(len(row.broker) for row in status.broker_rows)
    yield ""
    yield (
        f"  {'broker':<{width}}  {'state':<8}  {'bundles':>7}  {'usage':>6}  {'score':>6}"
        f"  {'msg/s':>10}  {'reported':>9}"
    )
    for row in status.broker_rows:
        usage, score = ("" if x is None else f"{x:.0%}" for x in (row.usage, row.score))
        rate = "" if row.msg_rate is None else f"{row.msg_rate:,.0f}"
        age = f"{duration(row.load_age_ms)} ago" if row.load_age_ms >= 0 else "not known"
        yield (
            f"  {row.broker:<{width}}  {row.state:<8}  {row.bundles:>7}  {usage:>6}  {score:>6}"
            f"  {rate:>10}  {age:>9}"
        )


def _flight(status: ClusterStatus) -> Iterable[str]:
    if not status.in_flight:
        return
    yield ""
    yield "  in flight, the oldest first"
    for row in status.in_flight[:_SHOWN]:
        way = " → ".join(filter(None, (row["source"], row["destination"])))
        age = duration(max(0, status.now_ms - row["at_ms"]))
        yield f"  {row['bundle']}  {row['state']} {way}  {row['cause']}, for {age}"
    yield from _more(len(status.in_flight))


def _more(count: int) -> Iterable[str]:
    if count > _SHOWN:
        yield f"  and {count - _SHOWN} more (--json has all)"


def _counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
