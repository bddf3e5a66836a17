"""A cluster's status and explanations: their rows, and the status for people.

`lbcore.explain` makes both of the rows. Of an explanation those of a window before the moment that
is asked about are read, and the decisions that a bundle's own records name. The rows of an overview
and of a rehearsal are read here, too.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from time import monotonic
from typing import Any

import pyarrow.compute as pc

from jobs.adapters.delta.rows import is_one_of, literal
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_reader import PastRows, Row, TableReader
from jobs.adapters.delta.table_upkeep import KEPT_DAYS, STAYS
from jobs.adapters.http.tls import certificate_ends_ms
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError, format_instant
from jobs.sql.engine import SqlEngine
from lbcore.balancer.candidate_rows import BLOCKED
from lbcore.balancer.cycle import FULL
from lbcore.balancer.placement import ALARM as NO_CANDIDATE
from lbcore.config.cluster import EXTERNAL
from lbcore.config.lookup import LookupConfig
from lbcore.config.tree import Config
from lbcore.explain.broker import explain_broker
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.cluster import explain_cluster, explain_decision
from lbcore.explain.explanation import (
    ExplainRows,
    Explanation,
    TableGap,
    brokers_of,
    unknown,
    with_unknown,
)
from lbcore.explain.job_state import JobContext
from lbcore.explain.mirrored import with_findings
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
from lbcore.model.tables import (
    BROKERS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    LOAD_HISTORY,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
    Table,
)
from lbcore.model.times import DAY_MS, HOUR_MS, duration, time_ago
from lbcore.ownership.records import State
from lbcore.signals.shown_load import SHOWN_MS, groups_line
from lbcore.validation.check import in_force

KINDS = ("bundle", "broker", "cluster", "decision")
WINDOW_MS = 3_600_000
_LOAD_MS = 600_000
_NAMED_MAX = 200
_GROWING = tuple(
    table.name
    for table in (OWNERSHIP_EVENTS, DECISIONS, DECISION_CANDIDATES, DECISION_EFFECTS, LOAD_HISTORY)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuestion:
    """Question to explain. name: bundle, broker or decision; "" for the cluster.

    at_ms: 0 = now, which is now_ms.
    """

    kind: str
    name: str
    now_ms: int
    at_ms: int = 0
    window_ms: int = WINDOW_MS


def explain(reader: TableReader, config: Config, question: ExplainQuestion) -> Explanation | None:
    """Return the explanation; None without the subject.

    config: what the job was started with.
    """
    rows = read_rows(reader, config, question)
    found = _EXPLAINERS[question.kind](rows, question.name)
    found = found and with_unknown(rows, found)
    if found is None:
        return unknown(rows, question.kind, question.name)
    if config.cluster.authority != EXTERNAL:
        return found
    commands = reader.rows(
        "commands",
        ("status", "result", "at_ms"),
        f"kind = 'observe_ownership' AND {_between('at_ms', rows.at_ms, RECENT_MS)}",
    )
    return with_findings(found, commands, config)


_EXPLAINERS: Mapping[str, Callable[[ExplainRows, str], Explanation | None]] = {
    "bundle": explain_bundle,
    "broker": explain_broker,
    "cluster": lambda rows, _: explain_cluster(rows),
    "decision": explain_decision,
}


def read_rows(reader: TableReader, config: Config, question: ExplainQuestion) -> ExplainRows:
    """Return the explanation's rows, none newer than the requested moment."""
    at_ms = question.at_ms or question.now_ms
    kept = {
        table: reader.rows_at(table, question.at_ms)
        if question.at_ms
        else PastRows(rows=reader.rows(table.name))
        for table in (BROKERS, POLICIES, PINS)
    }
    is_there = "state <> 'Deleted' AND state <> 'Init'"
    rows = ExplainRows(
        cluster=reader.cluster,
        at_ms=at_ms,
        window_ms=question.window_ms,
        config=changed_settings(
            config, reader.rows("config_versions", condition=f"at_ms <= {at_ms}")
        )[0],
        records=reader.at_time(question.at_ms).rows
        if question.at_ms
        else reader.rows("bundle_ownership", condition=is_there),
        brokers=kept[BROKERS].rows,
        policies=kept[POLICIES].rows,
        pins=kept[PINS].rows,
        load=reader.rows("load_history", condition=_between("minute_ms", at_ms, _LOAD_MS)),
        gaps=list(_gaps(reader, question, kept)),
        is_past=bool(question.at_ms),
    )
    recent = _between("at_ms", at_ms, question.window_ms)
    by_then = f" AND at_ms <= {at_ms}" if question.at_ms else ""
    if question.kind == "decision":
        recent = is_one_of("decision_id", [question.name]) + by_then
    events: Sequence[Row] = ()
    if question.kind == "bundle":
        events = reader.rows(
            "ownership_events",
            condition=f"{is_one_of('bundle', [question.name])} AND at_ms <= {at_ms}",
        )
        named = sorted({row["decision_id"] for row in events} - {""})[-_NAMED_MAX:]
        if named:
            recent = f"({recent}) OR ({is_one_of('decision_id', named)}{by_then})"
    decisions = reader.rows("decisions", condition=recent)
    of_candidates = recent
    if question.kind == "decision" and decisions:
        of_candidates = f"at_ms = {decisions[0]['at_ms']}"
    return replace(
        rows,
        events=events,
        decisions=decisions,
        candidates=reader.rows("decision_candidates", condition=of_candidates),
        effects=reader.rows("decision_effects", condition=recent),
    )


def changed_settings(config: Config, changes: Iterable[Row]) -> tuple[Config, Mapping[str, str]]:
    """The configuration with the newest of these rows, and what is set aside and why.

    changes: rows of config_versions, each with all that commands had changed by then.
    """
    return in_force(config, settings_by_command(changes))


def settings_by_command(changes: Iterable[Row]) -> Mapping[str, Any]:
    """Return what commands have changed, by the newest row of config_versions."""
    newest = max(changes, key=lambda row: int(row["number"]), default={"settings": "{}"})
    found: Mapping[str, Any] = json.loads(newest["settings"])
    return found


def _gaps(
    reader: TableReader, question: ExplainQuestion, kept: Mapping[Table, PastRows]
) -> Iterator[TableGap]:
    """Yield what is not known of the moment.

    Things whose rows don't reach back to it, and tables whose rows don't reach back to it, or to
    the window where rows are removed.
    """
    for table, past in kept.items():
        if past.unknown:
            yield TableGap(
                table=table.name,
                reach_ms=past.reach_ms,
                names=tuple(" ".join(filter(None, key)) for key in past.unknown),
            )
    at_ms = question.at_ms or question.now_ms
    for name in _GROWING:
        is_events = name == OWNERSHIP_EVENTS.name
        oldest_ms = reader.known_from_ms() if is_events else reader.oldest_ms(name)
        days = KEPT_DAYS.get(name)
        if name in STAYS and days and (oldest_ms or 0) < question.now_ms - days * DAY_MS:
            oldest_ms = reader.oldest_ms(name, f"NOT ({STAYS[name]})")
        may_be_gone = (
            days is not None and at_ms - question.window_ms < question.now_ms - days * DAY_MS
        )
        since_ms = at_ms - question.window_ms if may_be_gone else at_ms
        if oldest_ms is not None and since_ms < oldest_ms:
            yield TableGap(table=name, reach_ms=oldest_ms)


def _between(column: str, at_ms: int, span_ms: int) -> str:
    return f"{column} >= {at_ms - span_ms} AND {column} <= {at_ms}"


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
        age = duration(max(0, status.now_ms - row["at_ms"]))
        yield f"  {row['bundle']}  {row['state']} {brokers_of(row)}  {row['cause']}, for {age}"
    yield from _more(len(status.in_flight))


def _more(count: int) -> Iterable[str]:
    if count > _SHOWN:
        yield f"  and {count - _SHOWN} more (--json has all)"


def _counts(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
