"""Liveness: the cluster's clocks, and who is dead, from a batch's arrivals.

Decides nothing by itself: `ownership.liveness` judges. The clocks are advanced before anything else
in `balancer`, so that what a batch writes is as old as the batch; brokers are judged after its
reports are in.

The waiting clock measures how long brokers have been kept waiting for, or have kept us waiting:
the time that Kafka's clock and the batches' times agree on, and at most a third of the in-flight
timeout a batch, a thirtieth of a full one, behind which answers may stand unread. An answer to a
record can't come before the second batch after it, however long batches take and however much time
the log of an absence shows: a slow job must not take bundles back from brokers whose answers it has
yet to read.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.balancer.intake.brake import watch_brake
from lbcore.balancer.intake.clock import advance_clock
from lbcore.balancer.intake.eligible_brokers import (
    is_external,
    many_silent,
    note_flapping,
    overdue_ms,
    suspected,
)
from lbcore.balancer.state.work import Work
from lbcore.ownership.liveness import Liveness, Rows
from lbcore.scorer.group_update import TICK, GroupUpdate

BATCHES_PER_WAIT = 3
FULL_BATCHES_PER_WAIT = 30
_FULL = 0.9
SILENCE = "silence"
"""The kind of rows in `decisions` that say who is suspected or dead, and an alarm's name."""
_TOLD_EVERY_MS = 300_000
_NAMED = 10
"""Silent brokers that a row names."""


def watch_clocks(work: Work, updates: Sequence[GroupUpdate]) -> None:
    """Advance the clocks by the batch's arrivals."""
    rows = _rows(updates)
    before = work.liveness
    work.liveness = work.liveness.observe(rows, work.config.ownership.clock_step_max_ms)
    log_ms = work.liveness.elapsed_ms - before.elapsed_ms
    batch_ms = work.wall_ms - work.times.stepped_ms
    is_full = _is_full(work, updates)
    batches = FULL_BATCHES_PER_WAIT if is_full else BATCHES_PER_WAIT
    most_ms = work.config.ownership.in_flight_timeout_ms // batches
    waited_ms = max(0, min(log_ms, batch_ms, most_ms))
    advance_clock(work, before, updates, is_full=is_full)
    _watch_ticks(work, before)
    ticks = rows.timestamp_ms[rows.broker == TICK]
    tick_ms = max(work.times.tick_ms, work.dated(int(ticks.max(initial=0))) if len(ticks) else 0)
    work.is_catching_up = _is_catching_up(work, tick_ms)
    work.note(clock_ms=work.clock_ms + waited_ms, tick_ms=tick_ms)


def _is_full(work: Work, updates: Sequence[GroupUpdate]) -> bool:
    """True if the batch is about full, so that other messages wait."""
    pipeline = work.config.pipeline
    read = sum(sum(update.counts.values()) for update in updates)
    read_bytes = sum(update.read_bytes for update in updates)
    return (
        read >= _FULL * pipeline.max_offsets_per_trigger
        or read_bytes >= _FULL * pipeline.max_bytes_per_trigger
    )


def judge_brokers(work: Work) -> None:
    """Judge who is dead, note in the book who is silent, and look whether too many are."""
    if work.is_catching_up:
        work.counts["judged_later"] += 1
        return
    if is_external(work):
        return  # who is active, the other authority's list says; see `handlers.external`
    timeout_ms = work.config.ownership.broker_timeout_ms
    work.liveness = work.liveness.judge(timeout_ms, overdue_ms(work.config))
    alive = {name for name, entry in work.brokers.items() if not entry.is_silent}
    note_silent(work, work.liveness.dead)
    _tell_silence(work, sorted(alive & work.liveness.dead))


def _tell_silence(work: Work, died: Sequence[str]) -> None:
    """Write who is suspected, heard again or found dead, and raise the alarm when many are silent.

    died: brokers that were found dead in this batch.
    """
    suspects, timeout_ms = suspected(work), work.config.ownership.broker_timeout_ms
    for name in sorted(work.brokers):
        entry, is_suspected = work.brokers[name], name in suspects
        if name in died or entry.is_suspected != is_suspected:
            reason = "Dead" if name in died else "Suspected" if is_suspected else "Heard"
            work.brokers[name] = replace(entry, is_suspected=is_suspected)
            about = {"silent_ms": work.liveness.silence_ms(name), "broker_timeout_ms": timeout_ms}
            work.write_decision(work.next_decision(), SILENCE, reason, about, source=name)
    many = many_silent(work)
    if many:
        work.alarms.add(SILENCE)
    # told again while it lasts: readers look back a few minutes only
    is_due = many and work.now_ms // _TOLD_EVERY_MS != work.times.decided_ms // _TOLD_EVERY_MS
    if is_due or len(many) != work.times.silent_brokers:
        work.note(silent_brokers=len(many))
        silent_ms = max((work.liveness.unheard_ms(name) for name in many), default=0)
        live = sum(not entry.is_silent for entry in work.brokers.values())
        inputs: dict[str, Any] = {
            "silent": list(many[:_NAMED]),
            "count": len(many),
            "brokers": live,
        }
        inputs["silent_ms"] = silent_ms
        reason = "Many" if many else "Over"
        work.write_decision(work.next_decision(), SILENCE, reason, inputs)


def note_silent(work: Work, dead: Collection[str]) -> int:
    """Note in the book who is silent and who is back, and look whether too many are; how many."""
    died, returned = [], []
    for name in sorted(work.brokers):
        entry = work.brokers[name]
        if entry.is_silent == (name in dead):
            continue
        if name in dead:
            died.append(name)
            work.brokers[name] = entry.died(work.clock_ms, work.now_ms)
        else:
            returned.append(name)
            work.brokers[name] = entry.returned(work.now_ms)
    work.counts["died"] += len(died)
    work.counts["returned"] += len(returned)
    watch_brake(work, died)
    note_flapping(work)
    return len(died) + len(returned)


def _watch_ticks(work: Work, before: Liveness) -> None:
    """Raise the alarm while partitions of broker-load get no ticks; write its start and end."""
    alarm_ms = work.config.ownership.tick_alarm_ms
    missing, known = work.liveness.missing_ticks(alarm_ms), before.missing_ticks(alarm_ms)
    if missing:
        work.alarms.add("ticks")
        work.counts["partitions_without_ticks"] += len(missing)
    if bool(missing) != bool(known):
        inputs = {"partitions": missing or known, "tick_alarm_ms": alarm_ms}
        reason = "Missing" if missing else "Back"
        work.write_decision(work.next_decision(), "ticks", reason, inputs)


def _is_catching_up(work: Work, tick_ms: int) -> bool:
    """True if the newest tick read is too old, and its lag has changed in a batch."""
    lag_ms = work.now_ms - tick_ms
    lag_before_ms = work.times.decided_ms - work.times.tick_ms
    is_old = work.times.tick_ms > 0 and lag_ms > work.config.pipeline.plan_lag_max_ms
    return is_old and abs(lag_ms - lag_before_ms) > work.config.ownership.clock_step_max_ms


def _rows(updates: Sequence[GroupUpdate]) -> Rows:
    names: list[str] = []
    columns: list[list[NDArray[np.int64]]] = [[], [], [], []]
    for update in updates:
        arrivals = update.arrivals
        shift = np.where(arrivals.broker == TICK, 0, len(names))
        names += update.brokers
        columns[0].append(arrivals.partition)
        columns[1].append(arrivals.offset)
        columns[2].append(arrivals.timestamp_ms)
        columns[3].append(arrivals.broker + shift)
    empty = np.empty(0, dtype=np.int64)
    partition, offset, timestamp_ms, broker = (np.concatenate([empty, *c]) for c in columns)
    return Rows(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        broker=broker,
        brokers=names,
    )
