"""Brokers: which are alive, silent or dead, the brake, and who may get bundles."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import STARTS_KEPT
from lbcore.balancer.clock import advance_clock
from lbcore.balancer.rules import Brake
from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.ownership.liveness import Rows
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.filter.index import flapping_brokers
from lbcore.scorer.group_update import TICK
from lbcore.wire.messages import Command


def is_external(work: BatchContext) -> bool:
    """True if another authority assigns this cluster's bundles, as told by a bridge."""
    return work.config.cluster.authority == EXTERNAL


def usable_brokers(work: BatchContext) -> list[str]:
    """Brokers that live and have reported their load, in name order."""
    return sorted(
        name for name, entry in work.brokers.items() if not entry.is_dead and entry.reported_ms > 0
    )


def is_draining(work: BatchContext, broker: str) -> bool:
    """True if the broker is draining, by command or because it reports its stop."""
    entry = work.brokers.get(broker)
    return broker in work.rules.drains or (entry is not None and entry.is_draining)


def flapping(work: BatchContext) -> frozenset[str]:
    """The brokers that have started, or come back from silence, too often of late."""
    names = sorted(work.brokers)
    starts_ms = tuple(work.brokers[name].starts_ms for name in names)
    is_flapping = flapping_brokers(starts_ms, work.now_ms, work.config.filters).tolist()
    return frozenset(name for name, flaps in zip(names, is_flapping, strict=True) if flaps)


def suspected(work: BatchContext) -> frozenset[str]:
    """Return live brokers silent for `suspicion_ms`, which get nothing. O(brokers).

    When a rack fails, its brokers are found dead one after the other, within the interval of
    heartbeats: what the first had is not given to the others. A bridge asks all brokers at once
    and rarely: there, most of them silent means that it is late.
    """
    silence_ms, limit_ms = _silence_ms(work), suspicion_ms(work.config)
    silent = frozenset(name for name, of_ms in silence_ms.items() if of_ms > limit_ms)
    is_late = is_external(work) and 2 * len(silent) > len(silence_ms)
    return frozenset() if is_late else silent


def suspicion_ms(config: Config) -> int:
    """Return the silence until a broker is suspected, ms.

    Two heartbeats, or more if broker_timeout_ms is long.
    """
    return max(config.ownership.broker_timeout_ms * 2 // 5, 2 * config.agent.heartbeat_interval_ms)


def overdue(work: BatchContext) -> frozenset[str]:
    """Return live brokers silent for `overdue_ms`. O(brokers).

    Failover gives them nothing. Overdue comes before suspicion, because brokers often fail
    together: one that fell silent after the dead one has not been silent for long when the dead one
    is found.
    """
    limit_ms = overdue_ms(work.config)
    return frozenset(name for name, of_ms in _silence_ms(work).items() if of_ms > limit_ms)


def overdue_ms(config: Config) -> int:
    """Return the silence until a heartbeat is overdue, ms.

    One and a half heartbeat intervals, or more if broker_timeout_ms is long.
    """
    return max(
        config.ownership.broker_timeout_ms * 3 // 10, config.agent.heartbeat_interval_ms * 3 // 2
    )


def many_silent(work: BatchContext) -> tuple[str, ...]:
    """Return the overdue brokers if, with recent deaths, they are half or more.

    Failover waits then: each of them is heard again or found dead within `broker_timeout_ms`, and
    when all are silent, the job itself is the likelier cause. A single dead broker delays nothing.
    O(brokers).
    """
    silent = overdue(work)
    since_ms = work.times.clock_ms - work.config.ownership.brake_window_ms
    dead = [e for e in work.brokers.values() if e.is_dead and e.died_clock_ms >= max(since_ms, 0)]
    is_many = 2 * (len(silent) + len(dead)) >= len(_silence_ms(work)) + len(dead)
    return tuple(sorted(silent)) if silent and is_many else ()


def _silence_ms(work: BatchContext) -> dict[str, int]:
    """Return the silence of each broker that liveness knows and that is not dead, ms."""
    liveness = work.liveness
    return {
        name: liveness.unheard_ms(name)
        for name, entry in work.brokers.items()
        if not entry.is_dead and name in liveness.seen
    }


def unsteady(work: BatchContext) -> frozenset[str]:
    """The brokers that get nothing while there are others: they flap, or may be dead."""
    return flapping(work) | suspected(work)


def held_by(work: BatchContext, broker: str) -> int:
    """Return the number of bundles a broker has or is to open. O(bundles)."""
    ids = [i for i, one in enumerate(work.ledger.instances.rows) if one.broker == broker]
    # prospects: also bundles that another broker still closes for it
    is_held = np.isin(work.ledger.holders(), ids) | np.isin(work.ledger.prospects(), ids)
    return int(is_held.sum())


def is_named(work: BatchContext, broker: str) -> bool:
    """True if a record names the broker: as holder or, in flight, as either party."""
    ledger = work.ledger
    rows = ledger.rows_in(*IN_FLIGHT)
    moving = ledger.count_by_broker(np.append(ledger.source[rows], ledger.destination[rows]))
    return held_by(work, broker) > 0 or broker in moving


def is_open(work: BatchContext, broker: str) -> bool:
    """True if the broker is alive and not draining."""
    entry = work.brokers.get(broker)
    return entry is not None and not entry.is_dead and not is_draining(work, broker)


def reason_not_to_take(work: BatchContext, broker: str) -> str:
    """Return the reason why a broker can't be a destination now; "" if it can.

    Also "" if no broker is named.
    """
    if not broker:
        return ""
    entry = work.brokers.get(broker)
    if entry is None or entry.is_dead or not entry.reported_ms:
        return f"broker {broker} is not active; choose one that is"
    if broker in suspected(work):
        silent_s = work.liveness.unheard_ms(broker) // 1_000
        return (
            f"broker {broker} is silent for {silent_s} s and may be dead; choose another, or wait"
        )
    if entry.is_draining or broker in work.rules.drains:
        return f"broker {broker} is being drained; choose another, or cancel the drain first"
    return ""


ALARM = "brake"


def watch_brake(work: BatchContext, died: Sequence[str]) -> None:
    """Engage, widen or release the brake. died: brokers found dead just now."""
    brake = work.rules.brake
    if brake is None and died:
        since_ms = max(0, work.times.clock_ms - work.config.ownership.brake_window_ms)
        dead = [name for name, entry in sorted(work.brokers.items()) if entry.is_dead]
        lost = tuple(
            name
            for name in dead
            if work.brokers[name].died_clock_ms >= since_ms and _counts(work, name)
        )
        brokers = len(work.brokers) - len(dead) + len(lost)
        if _is_many(work, len(lost), brokers):
            work.change_rules(brake=Brake(since_ms=work.now_ms, lost=lost, brokers=brokers))
            work.set_times(brake_clock_ms=work.times.clock_ms)
            _write_brake(work, "Engaged", lost=list(lost), brokers=brokers)
    elif brake is not None:
        lost = _still_dead(work, {*brake.lost, *(name for name in died if _counts(work, name))})
        if not _is_many(work, len(lost), brake.brokers):
            release(work, brake, "Recovered")
        elif lost != brake.lost:
            work.change_rules(brake=replace(brake, lost=lost))
    if work.rules.brake is not None:
        work.alarms.add(ALARM)


def release(
    work: BatchContext, brake: Brake, reason: str, command: Command | None = None
) -> list[str]:
    """Let balancing go on; return the brokers that are still lost.

    reason: Released (by command) or Recovered.
    """
    work.change_rules(command, brake=None)
    still_lost = list(_still_dead(work, brake.lost))
    _write_brake(work, reason, still_lost=still_lost, since_ms=brake.since_ms)
    return still_lost


def _still_dead(work: BatchContext, lost: Iterable[str]) -> tuple[str, ...]:
    """Return the lost brokers that have neither returned nor been deregistered."""
    known = work.brokers
    return tuple(sorted(name for name in lost if name in known and known[name].is_dead))


def _is_many(work: BatchContext, lost: int, brokers: int) -> bool:
    settings = work.config.ownership
    is_enough = 0 < settings.brake_brokers <= lost
    return is_enough and 100 * lost >= settings.brake_percent * brokers


def _counts(work: BatchContext, broker: str) -> bool:
    """True if the loss counts for the brake; that of an emptied broker does not."""
    return not is_draining(work, broker) or broker in work.ledger.count_by_broker(
        work.ledger.holders()
    )


def _write_brake(work: BatchContext, reason: str, **inputs: Any) -> None:
    """Record a change of the brake, with its settings."""
    names = ("brake_percent", "brake_brokers", "brake_window_ms", "brake_confirm_ms")
    settings = {name: getattr(work.config.ownership, name) for name in names}
    work.write_decision(ALARM, reason, {**settings, **inputs})


BATCHES_PER_WAIT = 3
FULL_BATCHES_PER_WAIT = 30
"""A batch adds at most `in_flight_timeout_ms` / this number to the waiting clock."""
SILENCE = "silence"
"""The kind of rows in `decisions` that say who is suspected or dead, and an alarm's name."""
_ARRIVALS = ("partition", "offset", "timestamp_ms", "broker")
_REPEAT_MS = 300_000
_NAMED = 10
"""Silent brokers that a row names."""


def watch_clocks(work: BatchContext) -> None:
    """Advance the clocks by the batch's arrivals; watch ticks and the lag.

    The batch catches up when its newest tick is too old, unless that lag is about the last batch's.
    The start and the end of missing ticks are recorded.
    """
    names: list[str] = []
    parts = [np.empty((4, 0), dtype=np.int64)]
    for update in work.updates:
        one = update.arrivals
        brokers = np.where(one.broker == TICK, TICK, one.broker + len(names))
        parts.append(np.array([one.partition, one.offset, one.timestamp_ms, brokers]))
        names += update.brokers
    columns = zip(_ARRIVALS, np.concatenate(parts, axis=1), strict=True)
    rows = Rows(**dict(columns), brokers=names)
    before = work.liveness
    work.liveness = work.liveness.observe(rows, work.config.ownership.clock_step_max_ms)
    log_ms = work.liveness.elapsed_ms - before.elapsed_ms
    batch_ms = work.wall_ms - work.times.stepped_ms
    is_full = any(update.is_full for update in work.updates)
    batches = FULL_BATCHES_PER_WAIT if is_full else BATCHES_PER_WAIT
    limit_ms = work.config.ownership.in_flight_timeout_ms // batches
    waited_ms = max(0, min(log_ms, batch_ms, limit_ms))
    advance_clock(work, is_full=is_full)
    alarm_ms = work.config.ownership.tick_alarm_ms
    missing, known = work.liveness.missing_ticks(alarm_ms), before.missing_ticks(alarm_ms)
    if missing:
        work.alarms.add("ticks")
        work.counts["partitions_without_ticks"] += len(missing)
    if bool(missing) != bool(known):
        inputs = {"partitions": missing or known, "tick_alarm_ms": alarm_ms}
        reason = "Missing" if missing else "Back"
        work.write_decision("ticks", reason, inputs)
    ticks = rows.timestamp_ms[rows.broker == TICK]
    tick_ms = max(
        work.times.tick_ms, work.bounded_arrival_ms(int(ticks.max(initial=0))) if len(ticks) else 0
    )
    lag_change_ms = work.now_ms - tick_ms - (work.times.decided_ms - work.times.tick_ms)
    is_old = tick_ms > 0 and work.now_ms - tick_ms > work.config.pipeline.plan_lag_max_ms
    is_changed = abs(lag_change_ms) > work.config.ownership.clock_step_max_ms
    work.is_catching_up = is_old and (is_changed or not work.times.tick_ms)
    work.set_times(clock_ms=work.times.clock_ms + waited_ms, tick_ms=tick_ms)


def judge_brokers(work: BatchContext) -> None:
    """Judge which brokers are dead or silent, unless the batch catches up."""
    if work.is_catching_up:
        work.counts["judged_later"] += 1
        return
    if is_external(work):
        return  # who is active, the other authority's list says; see `policy_commands`
    timeout_ms = work.config.ownership.broker_timeout_ms
    work.liveness = work.liveness.judge(timeout_ms, overdue_ms(work.config))
    alive = {name for name, entry in work.brokers.items() if not entry.is_dead}
    note_silent(work, work.liveness.dead)
    _record_silence(work, sorted(alive & work.liveness.dead))


def _record_silence(work: BatchContext, died: Sequence[str]) -> None:
    """Record suspected, returned and dead brokers; raise the alarm if many are silent.

    died: brokers that were found dead in this batch.
    """
    suspects, timeout_ms = suspected(work), work.config.ownership.broker_timeout_ms
    for name in sorted(work.brokers):
        entry, is_suspected = work.brokers[name], name in suspects
        if name in died or entry.is_suspected != is_suspected:
            reason = "Dead" if name in died else "Suspected" if is_suspected else "Heard"
            work.brokers[name] = replace(entry, is_suspected=is_suspected)
            about = {"silent_ms": work.liveness.silence_ms(name), "broker_timeout_ms": timeout_ms}
            work.write_decision(SILENCE, reason, about, source=name)
    many = many_silent(work)
    if many:
        work.alarms.add(SILENCE)
    # recorded again while it lasts: readers look back a few minutes only
    is_due = many and work.now_ms // _REPEAT_MS != work.times.decided_ms // _REPEAT_MS
    if is_due or len(many) != work.times.silent_brokers:
        work.set_times(silent_brokers=len(many))
        silent_ms = max((work.liveness.unheard_ms(name) for name in many), default=0)
        live = sum(not entry.is_dead for entry in work.brokers.values())
        inputs = {
            "silent": list(many[:_NAMED]),
            "count": len(many),
            "brokers": live,
            "silent_ms": silent_ms,
        }
        reason = "Many" if many else "Over"
        work.write_decision(SILENCE, reason, inputs)


def note_silent(work: BatchContext, dead: Collection[str]) -> int:
    """Note dead and returned brokers; return how many.

    Engages, widens or releases the brake. Raises the alarm for flapping brokers, and records those
    that flap since this batch.
    """
    died, returned = [], []
    for name, entry in sorted(work.brokers.items()):
        if entry.is_dead == (name in dead):
            continue
        if name in dead:
            died.append(name)
            work.brokers[name] = replace(
                entry,
                is_dead=True,
                is_suspected=False,
                died_clock_ms=work.times.clock_ms,
                silent_ms=work.now_ms,
            )
        else:  # in the same start
            returned.append(name)
            work.brokers[name] = replace(
                entry,
                is_dead=False,
                silent_ms=0,
                starts_ms=(*entry.starts_ms, work.now_ms)[-STARTS_KEPT:],
                restarted_ms=work.now_ms,
            )
    work.counts["died"] += len(died)
    work.counts["returned"] += len(returned)
    watch_brake(work, died)
    filters = work.config.filters
    for name in sorted(flapping(work)):
        work.alarms.add(f"flapping:{name}")
        starts_ms = list(work.brokers[name].starts_ms)
        if starts_ms[-1] == work.now_ms:
            limits = {key: getattr(filters, key) for key in ("flap_starts", "flap_window_ms")}
            inputs = {"starts_ms": starts_ms, **limits}
            work.write_decision("back_off", "Flapping", inputs, source=name)
    return len(died) + len(returned)
