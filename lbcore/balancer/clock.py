"""Clock of a batch: the time by which it decides, and the clocks that are wrong.

Three clocks are asked: the driver's; Kafka's, the middle one of what its partitions of broker-load
show; and the state's own, which goes on from the batch before by the time that passed in the
partitions. The middle of the three is right while no two are wrong alike; the driver's is taken
while it is near it. The time never goes back. After a step ahead it goes on at half speed until the
clocks have come up to it. DESIGN.md has the reasons.
A sender's clock is wrong when a message was made after it was read, or more than LATE_MS before.
"""

import calendar
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median_high, median_low
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.wire.messages import Command

PRODUCER, AGENT = "producer", "agent "
"""The clock of a command's sender, whom the decision's inputs name; it begins an agent's."""
LATE_MS = 30_000
"""The delivery timeout of agents' producers; that of command clients is shorter."""

_TIMED_ID = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[0-9a-f]{12}", re.ASCII)


def made_ms(command_id: str) -> int:
    """Return the creation time of a command by its sender's clock; 0 if not in its id.

    Ids of our clients begin with the second: 20261123T045254Z-0123456789ab.
    """
    found = _TIMED_ID.fullmatch(command_id)
    if found is None:
        return 0
    return calendar.timegm((*map(int, found.groups()), 0, 0, 0)) * 1_000


def wrong_senders(work: BatchContext) -> tuple[dict[str, int], list[str]]:
    """Return clock → how far it is ahead, of senders of reports and new commands.

    And the principals of such commands. A command repeated under a known id does not count.
    """
    if not work.before.times.read_ms:
        return {}, []
    envelopes = [report.load.envelope for update in work.updates for report in update.loads]
    # the latest time of each agent
    made = dict(sorted((f"{AGENT}{of.broker}", max(of.reported_at_ms, 0)) for of in envelopes))
    wrong = {
        name: ahead_ms
        for name, at_ms in made.items()
        if at_ms and (ahead_ms := _ahead_ms(work, at_ms, LATE_MS))
    }
    commands = [one.message for one in work.messages if isinstance(one.message, Command)]
    ahead = [
        (ahead_ms, one.principal)
        for one in commands
        if not (one.command_id in work.commands or one.command_id in work.waiting)
        and (at_ms := made_ms(one.command_id))
        and (ahead_ms := _ahead_ms(work, at_ms, LATE_MS))
    ]
    if ahead:
        wrong[PRODUCER] = max((ahead_ms for ahead_ms, _ in ahead), key=abs)
    return wrong, sorted({principal for _, principal in ahead})


def _ahead_ms(work: BatchContext, at_ms: int, late_ms: int = 0) -> int:
    """Return how far the clock that showed at_ms is ahead; 0 = it may be right.

    late_ms: how long before the last batch it may have been read.
    """
    step_ms = work.config.ownership.clock_step_max_ms
    may_be_right = work.before.times.read_ms - late_ms - step_ms <= at_ms <= work.now_ms + step_ms
    return 0 if may_be_right else at_ms - work.now_ms


DRIVER, KAFKA, DECISIONS = "driver", "kafka", "decisions"
"""Clocks; that of the Kafka broker that leads a partition is named after the partition."""

APART, TOGETHER = "Apart", "Together"
KEPT_MS = 60_000
"""A clock is reported for so long after it was last seen to be wrong."""
REPEAT_MS = 300_000
"""While one is wrong, it is written down again after so long."""


def advance_clock(work: BatchContext, *, is_full: bool) -> None:
    """Set the time of the batch by its arrivals; report clocks that differ.

    is_full: other messages may wait behind these. O(brokers + bundles) in the first batch of a
    state, O(partitions) in the others.
    """
    if not work.times.decided_ms:
        _bring_back(work)
    else:
        before = work.before.liveness
        stamps = {
            partition: clock.timestamp_ms
            for partition, clock in work.liveness.clocks.items()
            if clock is not before.clocks.get(partition)
        }
        passed_ms = work.liveness.elapsed_ms - before.elapsed_ms
        _advance(work, None if is_full else stamps, passed_ms)
        seen = {} if is_full else _wrong(work, stamps)
        principals: list[str] = []
        if not is_full and DECISIONS not in seen:
            senders, principals = wrong_senders(work)
            seen |= senders
        _report_skew(work, seen, principals)
    if not is_full:
        work.set_times(read_ms=work.now_ms)


def _advance(work: BatchContext, stamps: Mapping[int, int] | None, passed_ms: int) -> None:
    """Advance the batch's time.

    stamps: partition → its newest row's; None = they are of no use. What stands in a log that is
    not read to its end is old: then the driver's clock says how long it is since the batch before.
    """
    times, step_ms = work.times, work.config.ownership.clock_step_max_ms
    wall_ms, driver_ms = work.wall_ms, max(0, work.wall_ms - times.stepped_ms)
    if wall_ms < times.stepped_ms - step_ms:
        driver_ms = passed_ms  # it has gone back, and can't say: what rows say stands alone
    if stamps is None:
        work.now_ms = times.decided_ms + max(1, driver_ms)
        return
    counted_ms = min(passed_ms, max(step_ms, driver_ms))
    if times.read_ms == times.decided_ms and passed_ms > driver_ms + 2 * step_ms:
        counted_ms = passed_ms  # no backlog, and too many steps for one of Kafka's clocks
    least_ms = times.decided_ms + counted_ms
    unheard_ms = times.decided_ms + min(driver_ms, step_ms)
    kafka_ms = _kafka_ms(stamps, least_ms) if stamps else unheard_ms
    # each step of the counted rows may be cut; while the job was away nobody ticked, and rows came
    # with heartbeats alone: three in the time after which a broker is dead
    heartbeat_ms = work.config.ownership.broker_timeout_ms // 3
    uncut_ms = counted_ms * -(-heartbeat_ms // step_ms) + heartbeat_ms
    most_ms = times.decided_ms + uncut_ms
    possible = [
        told_ms for told_ms in (wall_ms, kafka_ms) if least_ms - step_ms <= told_ms <= most_ms
    ]
    middle_ms = sorted((wall_ms, kafka_ms, min(possible, default=least_ms)))[1]
    earliest_ms = times.decided_ms + max(1, min(counted_ms, step_ms) // 2)
    is_near = abs(wall_ms - middle_ms) <= step_ms
    work.now_ms = max(wall_ms if is_near else middle_ms, earliest_ms)


def _wrong(work: BatchContext, stamps: Mapping[int, int]) -> dict[str, int]:
    """Return clock → how far it is certainly ahead of the batch's time.

    A row of this batch came after the one before: stamped earlier than that, its clock is behind.
    The driver's may have stood still with us, so it must be wrong twice.
    """
    step_ms, times = work.config.ownership.clock_step_max_ms, work.times
    found: dict[str, int] = {}
    ahead_ms, was_ahead_ms = work.wall_ms - work.now_ms, times.stepped_ms - times.decided_ms
    if min(abs(ahead_ms), abs(was_ahead_ms)) > step_ms and ahead_ms * was_ahead_ms > 0:
        found[DRIVER] = ahead_ms
    if not stamps:
        return found
    kafka_ms = _kafka_ms(stamps, work.now_ms)
    if kafka_ahead_ms := _ahead_ms(work, kafka_ms):
        found[KAFKA] = kafka_ahead_ms
    for partition, stamp_ms in sorted(stamps.items()):
        if abs(stamp_ms - kafka_ms) > step_ms and (ahead_ms := _ahead_ms(work, stamp_ms)):
            found[f"broker-load-{partition}"] = ahead_ms
    if found.keys() >= {DRIVER, KAFKA} and abs(found[DRIVER] - found[KAFKA]) <= step_ms:
        return {DECISIONS: -found[KAFKA]}
    return found


def _kafka_ms(stamps: Mapping[int, int], expected_ms: int) -> int:
    """Return the median of the partitions' times; of two, the more expected one."""
    middle = (median_low(stamps.values()), median_high(stamps.values()))
    return min(middle, key=lambda stamp_ms: abs(stamp_ms - expected_ms))


def _report_skew(work: BatchContext, seen: Mapping[str, int], senders: Sequence[str]) -> None:
    """Raise the alarm while a clock is apart, or was lately; write its start and end.

    senders: of commands that were made by a wrong clock.
    """
    known = work.times.apart
    # a sender is heard again only with its next report
    report_ms = work.config.signals.report_max_interval_ms
    apart = {
        name: of
        for name, of in known.items()
        if work.now_ms - of[1] <= KEPT_MS + (report_ms if name.startswith((PRODUCER, AGENT)) else 0)
    }
    apart |= {
        name: (ahead_ms, work.now_ms, known.get(name, (0, 0, 0))[2])
        for name, ahead_ms in seen.items()
    }
    repeated = [name for name, of in apart.items() if work.now_ms - of[2] >= REPEAT_MS]
    for reason, names in ((APART, repeated), (TOGETHER, known.keys() - apart.keys())):
        if names:
            ahead = {name: {**known, **apart}[name][0] for name in sorted(names)}
            inputs: dict[str, Any] = {
                "ahead_ms": ahead,
                "clock_step_max_ms": work.config.ownership.clock_step_max_ms,
            }
            if reason == APART and PRODUCER in ahead and senders:
                inputs["principals"] = list(senders)
            source = ", ".join(ahead)
            work.write_decision("clock", reason, inputs, source=source)
    if apart != known:
        apart |= {name: (*apart[name][:2], work.now_ms) for name in repeated}
        work.set_times(apart=apart)
    if apart:
        work.alarms.add("clock")


def _bring_back(work: BatchContext) -> None:
    """Reset times that a wrong clock set in the future.

    Done in the first batch of a state. Records keep their times: who reads them compares versions.
    """
    now_ms, times = work.now_ms, work.times
    work.set_times(
        tick_ms=min(times.tick_ms, now_ms),
        cycle_ms=min(times.cycle_ms, now_ms),
        shed_ms=min(times.shed_ms, now_ms),
        split_ms=min(times.split_ms, now_ms),
        history_ms=min(times.history_ms, now_ms),
    )
    work.plan = work.plan.without_future_times(now_ms)
    for name, proposal in work.rules.proposals.items():
        early_ms = max(proposal.since_ms - now_ms, 0)
        if early_ms or proposal.rejected_ms > now_ms:
            brought = replace(
                proposal,
                since_ms=proposal.since_ms - early_ms,
                until_ms=proposal.until_ms - early_ms,
                rejected_ms=min(proposal.rejected_ms, now_ms),
            )
            work.set_rule("proposals", name, brought)
    for name, drain in work.rules.drains.items():
        early_ms = drain.since_ms - now_ms
        if early_ms > 0:
            deadline_ms = drain.deadline_ms and drain.deadline_ms - early_ms
            work.set_rule("drains", name, replace(drain, since_ms=now_ms, deadline_ms=deadline_ms))
    work.unmeasured_moves = {
        bundle: replace(
            one, decided_ms=min(one.decided_ms, now_ms), moved_ms=min(one.moved_ms, now_ms)
        )
        for bundle, one in work.unmeasured_moves.items()
    }
    for name, entry in work.brokers.items():
        if max(entry.reported_ms, entry.restarted_ms, entry.silent_ms, *entry.starts_ms) > now_ms:
            work.brokers[name] = replace(
                entry,
                reported_ms=min(entry.reported_ms, now_ms),
                restarted_ms=min(entry.restarted_ms, now_ms),
                silent_ms=min(entry.silent_ms, now_ms),
                starts_ms=tuple(min(at_ms, now_ms) for at_ms in entry.starts_ms),
            )
    late = np.flatnonzero(work.ledger.moved_ms > now_ms)
    if len(late):
        work.ledger.stamp("moved_ms", late.tolist(), now_ms)
