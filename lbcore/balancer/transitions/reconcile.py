"""Reconciling: what brokers report that they serve, against what the records say, both ways.

Decides whose record is sent again: that of a bundle which a broker reports and does not hold, and
that of one which it owns and does not report. Gives nobody's bundle away: a record is repeated,
counted, and an alarm raised when that has not helped. A bundle that has no record at all (the
tables were restored from before it was made) is forgotten once more, which closes it. Runs after
all that changes records in `balancer`. Pulsar 4.0.8's monitorOwnerships looks at records alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.intake.eligible_brokers import is_external
from lbcore.balancer.state.effects import RESEND, TOMBSTONE, record_row
from lbcore.balancer.state.ledger import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.ownership.records import State
from lbcore.scorer.group_update import BundleReport, GroupUpdate

_ROWS_MAX = 1_000
"""Most records that one batch sends again; the others come after them."""

Rows = NDArray[np.int64]


def reconcile(work: Work, updates: Sequence[GroupUpdate]) -> None:
    """Send records again where a broker's newest report of this batch does not agree with them.

    Only reports count that are newer than the record by the time in which an agent repeats an
    answer, so that it has been read and obeyed; nothing while the log is old. O(bundles) in a
    batch with reports.
    """
    reports = _newest(work, updates)
    if not reports or work.is_catching_up or is_external(work):
        return
    foreign, missing, unknown = _disagreeing(work, reports)
    work.counts["reported_not_owned"] += len(foreign)
    work.counts["owned_not_reported"] += len(missing)
    rows = np.union1d(foreign, missing)
    _forget_unknown(work, unknown)
    work.counts["disagreement_lasts"] += int(_has_been_resent(work, rows).sum())
    due = rows[_is_due(work, rows)][:_ROWS_MAX].tolist()
    if not due:
        return
    work.counts["resent"] += len(due)
    work.ledger.note_resent(due, work.clock_ms)
    for number, row in enumerate(due):
        work.add_row(RESEND, record_row(work.ledger.record_at(row), number))


def _newest(work: Work, updates: Sequence[GroupUpdate]) -> list[tuple[int, BundleReport]]:
    """Each broker's newest report of its present start, with the start's id in the ledger."""
    newest: dict[str, BundleReport] = {}
    for update in updates:
        for report in update.bundles:
            known = newest.get(report.broker)
            if known is None or known.reported_ms <= report.reported_ms:
                newest[report.broker] = report
    present = {name: entry.incarnation for name, entry in work.brokers.items()}
    return [
        (work.ledger.instances.find(report.broker, report.incarnation), report)
        for _, report in sorted(newest.items())
        if present.get(report.broker) == report.incarnation
    ]


def _disagreeing(
    work: Work, reports: Sequence[tuple[int, BundleReport]]
) -> tuple[Rows, Rows, dict[str, int]]:
    """Rows that are reported and not held, rows that are owned and not reported.

    And bundles that are reported and have no record → time of the report, ms.
    """
    ledger = work.ledger
    holders = ledger.holders()
    contradicted_from_ms = ledger.at_ms + work.config.agent.ack_repeat_ms
    contradicted_from_ms[_changing(work)] = np.iinfo(np.int64).max
    reported_ms = np.zeros(len(ledger.instances.rows) + 1, dtype=np.int64)
    is_seen = np.zeros(len(ledger), dtype=np.bool_)
    foreign: list[Rows] = [np.empty(0, dtype=np.int64)]
    unknown: dict[str, int] = {}
    for sender, report in reports:
        heard_ms = work.dated(report.reported_ms)  # as records are dated
        found = np.array([ledger.index.get(name, NOBODY) for name in report.names], dtype=np.int64)
        unknown.update((report.names[at], heard_ms) for at in np.where(found == NOBODY)[0])
        found = found[found != NOBODY]
        is_own = holders[found] == sender if sender != NOBODY else np.zeros(len(found), np.bool_)
        is_seen[found[is_own]] = True
        others = found[~is_own]
        foreign.append(others[contradicted_from_ms[others] < heard_ms])
        if sender != NOBODY:
            reported_ms[sender] = heard_ms
    owned = ledger.rows_in(State.OWNED)
    is_missing = (contradicted_from_ms[owned] < reported_ms[ledger.destination[owned]]) & ~is_seen[
        owned
    ]
    return np.unique(np.concatenate(foreign)), owned[is_missing], unknown


def _forget_unknown(work: Work, unknown: Mapping[str, int]) -> None:
    """Tombstones for what is open somewhere and is no bundle of ours.

    unknown: name → time of the report. Not where its namespace has just changed: an agent that
    splits a bundle reports the children before they have records, and for a while after the split
    was given up.
    """
    changed_ms: dict[str, int] = {}
    children = {child for names in work.ledger.children.values() for child in names}
    for name in sorted(unknown.keys() - children)[:_ROWS_MAX]:
        namespace = name.rpartition("/")[0]
        if namespace not in changed_ms:
            changed_ms[namespace] = _changed_ms(work, namespace)
        if changed_ms[namespace] + work.config.agent.ack_repeat_ms < unknown[name]:
            work.add_row(TOMBSTONE, {"bundle": name})
            work.counts["reported_unknown"] += 1


def _changed_ms(work: Work, namespace: str) -> int:
    """Return the time of the namespace's last bundle change; 0 without bundles."""
    rows = work.ledger.live_rows(namespace)
    return int(work.ledger.at_ms[rows].max()) if rows else 0


def _changing(work: Work) -> list[int]:
    """Rows that are not judged: changed in this batch, or to be made by a split in flight.

    An agent serves the children of a split before their records come; a Deleted record that an
    earlier life of such a child left behind must not close it.
    """
    ledger = work.ledger
    names = {after.bundle for _, after in work.transitions}
    splitting = (ledger.children[name] for name in sorted(ledger.children))
    names.update(child for children in splitting for child in children)
    return sorted(ledger.index[name] for name in names if name in ledger.index)


def _has_been_resent(work: Work, rows: Rows) -> NDArray[np.bool_]:
    """True per row if resending the record did not help; the wait is just over."""
    ledger = work.ledger
    resent_ms = ledger.resent_clock_ms[rows]
    just_ms = work.config.ownership.in_flight_timeout_ms + work.config.signals.longest_silence_ms
    is_recent = work.clock_ms - resent_ms <= 2 * just_ms
    is_of_this_record = (resent_ms > 0) & (resent_ms >= ledger.clock_ms[rows])
    return np.asarray(is_of_this_record & is_recent & _is_due(work, rows))


def _is_due(work: Work, rows: Rows) -> NDArray[np.bool_]:
    """True per row if a record may be resent now: once in in_flight_timeout_ms."""
    resent_ms = work.ledger.resent_clock_ms[rows]
    waited_ms = work.clock_ms - resent_ms
    is_due = (resent_ms == 0) | (waited_ms >= work.config.ownership.in_flight_timeout_ms)
    return np.asarray(is_due)
