"""Restraint: why no plan is made now, or one that only carries out what operators want.

Decides when balancing stands still: no brokers, reports that are old by now because the job is
behind, a pause, the brake; and when nothing is shed or split because too many reports are stale or
too many brokers have just restarted, so that loads say little, while a plan is open, and in quiet
hours. Asked by the cycle. Source: ours.
"""

from typing import Any

from lbcore.balancer.decisions.placing import usable_brokers
from lbcore.balancer.state.proposals import Station
from lbcore.balancer.state.rules import WHOLE_CLUSTER
from lbcore.balancer.state.work import Work

PLAN_WAITS = "PlanWaits"

Reason = tuple[str, dict[str, Any]]
"""A label, "" = there is none, and the numbers behind it."""


def reason_to_stand_still(work: Work) -> Reason:
    """Why nothing is moved, split or drained now."""
    rules, behind_ms = work.rules, work.now_ms - work.times.tick_ms
    if rules.brake is not None:
        brake = rules.brake
        since = {"since_ms": brake.since_ms, "lost": list(brake.lost), "brokers": brake.brokers}
        return "Brake", since
    if WHOLE_CLUSTER in rules.paused:
        paused = rules.paused[WHOLE_CLUSTER]
        return "Paused", {"since_ms": paused.since_ms, "by": paused.by, "why": paused.reason}
    if not usable_brokers(work):
        return "NoBrokers", {"behind_ms": behind_ms}
    limit_ms = work.config.pipeline.plan_lag_max_ms
    if behind_ms > limit_ms:
        return "OutDatedData", {"behind_ms": behind_ms, "plan_lag_max_ms": limit_ms}
    return "", {}


def reason_not_to_balance(work: Work) -> Reason:
    """Why nothing is shed or split now, though what operators want is carried out."""
    rhythm, names = work.config.pipeline, usable_brokers(work)
    live = [entry for entry in work.brokers.values() if not entry.is_silent]
    stale_ms = work.times.tick_ms - rhythm.report_age_max_ms
    stale = sum(work.brokers[name].reported_ms < stale_ms for name in names)
    restarted_ms = work.now_ms - rhythm.restart_settle_ms
    restarted = sum(entry.restarted_ms > restarted_ms for entry in live)
    inputs = {
        "brokers": len(live),
        "stale": stale,
        "restarted": restarted,
        "report_age_max_ms": rhythm.report_age_max_ms,
        "restart_settle_ms": rhythm.restart_settle_ms,
        "unsettled_max_percent": rhythm.unsettled_max_percent,
    }
    if 100 * stale > rhythm.unsettled_max_percent * len(names):
        return "StaleReports", inputs
    if 100 * restarted > rhythm.unsettled_max_percent * len(live):
        return "JustRestarted", inputs
    name = open_proposal(work)
    if name:
        proposal = work.rules.proposals[name]
        told = {"plan": name, "station": proposal.station.value, "until_ms": proposal.until_ms}
        return PLAN_WAITS, told
    quiet_until_ms = work.config.cluster.quiet_until_ms(work.now_ms)
    if quiet_until_ms:
        return "QuietHours", {"until_ms": quiet_until_ms}
    return "", {}


def open_proposal(work: Work) -> str:
    """The plan that is carried out for a person, or of a cycle and waits; "" = there is none.

    What a person proposes holds no cycle up while it waits.
    """
    return next(
        (
            name
            for name, one in sorted(work.rules.proposals.items())
            if one.station is Station.APPROVED or (one.station is Station.WAITS and not one.by)
        ),
        "",
    )
