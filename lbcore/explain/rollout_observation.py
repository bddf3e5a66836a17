"""Input of a rolling restart's state machine, from the tables.

Decides which sentence of a status is a complaint, and how long it may last. A bridge only observes
for a moment whenever a restarting broker does not tell its configuration.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lbcore.balancer.state.rules import PROPOSAL, PlanProposal
from lbcore.bridge.anomalies import Trouble
from lbcore.bridge.rollout import GO_ON, Complaint, DrainState
from lbcore.config.reported_settings import newest_reported
from lbcore.explain.explanation import Row
from lbcore.explain.job_state import JobWord, job_alarms
from lbcore.explain.mirrored import NEVER_MS, finding_message
from lbcore.explain.status import ClusterStatus

_IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
_BRIDGE_SILENT_MS = 120_000
"""It tells something once a minute, if only that it looks."""
_OBSERVES_MS, _FOUND_MS, _JOB_MS = 120_000, 30_000, 60_000
_NO_FAULT = (Trouble.NARROW.value, Trouble.EXPIRING.value, Trouble.EXPIRING_SOON.value)


def from_status(status: ClusterStatus) -> dict[str, Any]:
    """The parts of `RolloutObservation` that a status tells."""
    return {
        "drains": {
            one.broker: DrainState(left=one.left, is_done=one.is_done) for one in status.drains
        },
        "imbalance": status.imbalance,
        "complaints": tuple(_complaints(status)),
    }


def from_records(rows: Iterable[Row], began_ms: int, now_ms: int) -> dict[str, Any]:
    """The parts that records of bundles tell. began_ms: what was free before has no part in it."""
    owners: dict[str, str] = {}
    freed: dict[str, int] = {}
    moving: dict[str, int] = {}
    for row in rows:
        if row["state"] == "Owned":
            owners[row["bundle"]] = row["destination"]
        elif row["state"] == "Free" and row["at_ms"] >= began_ms:
            freed[row["bundle"]] = row["at_ms"]
        elif row["state"] in _IN_FLIGHT:
            moving[row["bundle"]] = row["at_ms"]
    oldest_ms = max((now_ms - at_ms for at_ms in moving.values()), default=0)
    return {
        "owners": owners,
        "freed": freed,
        "moving": frozenset(moving),
        "oldest_move_ms": max(0, oldest_ms),
    }


def open_plans(policies: Iterable[Row], prefix: str) -> dict[str, str]:
    """Name → station of the plans that may still move something, of those named so."""
    rows = [one for one in policies if one["kind"] == PROPOSAL and one["is_set"]]
    found = {
        str(one["name"]): PlanProposal.from_json(json.loads(one["value"])).station
        for one in rows
        if str(one["name"]).startswith(prefix)
    }
    return {name: how.value for name, how in sorted(found.items()) if how.is_open}


def settings_of(rows: Sequence[Row]) -> dict[str, str]:
    """Setting → its value in force, as JSON; {} where the job doesn't tell."""
    return {str(row["setting"]): str(row["value"]) for row in newest_reported(rows)}


def usage_without(broker: str, status: ClusterStatus) -> float | None:
    """The mean usage of the others if they had what it has; None where one doesn't tell."""
    rows = [row for row in status.broker_rows if row.state != "silent"]
    usages = {row.broker: row.usage for row in rows}
    known = [one for one in usages.values() if one is not None]
    if broker not in usages or len(known) < len(usages) or len(known) < 2:  # noqa: PLR2004 (others)
        return None
    return sum(known) / (len(known) - 1)


def rates_of(status: ClusterStatus) -> Mapping[str, float]:
    """Broker → messages a second, of those that tell."""
    return {row.broker: row.msg_rate for row in status.broker_rows if row.msg_rate is not None}


def _complaints(status: ClusterStatus) -> Iterable[Complaint]:
    if status.job.word in (JobWord.AWAY, JobWord.NEVER_STARTED) or status.job.is_stalled:
        why = next(iter(job_alarms(status.job)), status.job.why())
        yield Complaint(
            key="job", why=why, next_step=f"start the job, {GO_ON}", patience_ms=_JOB_MS
        )
    yield from _of_the_bridge(status)
    for name, value in sorted(status.pauses.items()):
        who = f"{name or 'the whole cluster'} is paused by {value.get('by') or 'somebody'}"
        yield Complaint(key=f"pause {name}", why=who, next_step=f"`ballast resume`, {GO_ON}")
    if status.brake is not None:
        why = "the brake is on: many brokers had vanished at once"
        yield Complaint(
            key="brake", why=why, next_step=f"`ballast resume --release-brake`, {GO_ON}"
        )


def _of_the_bridge(status: ClusterStatus) -> Iterable[Complaint]:
    mirror = status.mirror
    if mirror is None or status.job.word in (JobWord.AWAY, JobWord.NEVER_STARTED):
        return
    lag_ms = max(0, status.job.wrote_ago_ms)
    if mirror.heard_ago_ms == NEVER_MS or mirror.heard_ago_ms - lag_ms > _BRIDGE_SILENT_MS:
        why = "the bridge tells nothing"
        yield Complaint(key="bridge", why=why, next_step=f"start it with --act, {GO_ON}")
    elif mirror.observe_only:
        yield Complaint(
            key="observes",
            why="the bridge only observes: nothing is carried out",
            next_step=f"its log says why (`observing`); start it with --act, {GO_ON}",
            patience_ms=_OBSERVES_MS,
        )
    for one in mirror.findings:
        if one["trouble"] not in _NO_FAULT:
            is_poison = one["trouble"] == Trouble.POISON.value
            yield Complaint(
                key=f"{one['trouble']} {one['subject']}",
                why=f"the guardian has found that {finding_message(one)}",
                next_step=f"see docs/runbook.md, {GO_ON}",
                patience_ms=0 if is_poison else _FOUND_MS,
            )
