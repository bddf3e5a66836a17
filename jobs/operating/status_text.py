"""A cluster's status as lines: of `status`, of attached and of local runs.

The most important line is first.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from time import monotonic
from typing import Any

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.console import CommandError
from jobs.operating.status_rows import read_status_rows
from jobs.operating.text_format import format_instant
from lbcore.config.tree import Config
from lbcore.explain.reasons import skip_message
from lbcore.explain.status import ClusterStatus, DrainStatus, make_status
from lbcore.model.times import duration
from lbcore.signals.shown_load import groups_line

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
        yield f"  as of   {_ago(status.writer_silent_ms)}, by the job's last commit:"
    what = f": {_cycle(status.last_cycle)}" if status.last_cycle else ""
    yield f"  cycle   {status.cycle}, {_ago(status.cycle_age_ms)}{what}"
    yield f"  brokers {_counts(status.brokers)}"
    yield f"  bundles {_counts(status.bundles)}"
    if status.imbalance is not None:
        worst = ", worst group" if status.groups else ""
        uneven = f"{status.imbalance:.2f} (message rates of live brokers, highest over mean{worst})"
        yield f"  imbalance {uneven}"
    if status.groups:
        yield f"  groups  {groups_line(status.groups)}"
    yield from _mirror(status)
    yield from _rules(status)
    yield from _broker_table(status)
    yield from _flight(status)


def _cycle(decided: str) -> str:
    """Return a cycle's decisions; of one without moves the reason."""
    skipped = re.fullmatch(r"1 skip \((\w+)\)", decided)
    return f"nothing moved, because {skip_message(skipped[1])}" if skipped else decided


def _mirror(status: ClusterStatus) -> Iterable[str]:
    mirror = status.mirror
    if mirror is None:
        return
    words = [f"told {_ago(mirror.heard_ago_ms)}", f"{mirror.differences} differ"]
    words += [f"{mirror.taken_over_lately} owners taken over in 10 min"]
    words += ["decisions are only observed" if mirror.observe_only else "decisions are carried out"]
    yield f"  mirror  {', '.join(words)}"


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
    words = [f"{drain.broker}: {gone} of {drain.total} bundles gone, {drain.left} left"]
    words += [f"for {duration(max(0, now_ms - drain.since_ms))}"]
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
        known = row.load_age_ms >= 0
        age = f"{duration(row.load_age_ms)} ago" if known else "not known"
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


def _ago(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{duration(age_ms)} ago"
