"""Brokers that may be given bundles now, and clusters whose ownership another authority decides."""

from lbcore.balancer.state.work import Work
from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.plan.filter.index import flapping_brokers


def is_external(work: Work) -> bool:
    """True if another authority assigns this cluster's bundles, as told by a bridge."""
    return work.config.cluster.authority == EXTERNAL


def is_draining(work: Work, broker: str) -> bool:
    """True if the broker is draining, by command or because it reports its stop."""
    entry = work.brokers.get(broker)
    return broker in work.rules.drains or (entry is not None and entry.is_draining)


def flapping(work: Work) -> frozenset[str]:
    """The brokers that have started, or come back from silence, too often of late."""
    names = sorted(work.brokers)
    starts_ms = tuple(work.brokers[name].starts_ms for name in names)
    is_flapping = flapping_brokers(starts_ms, work.now_ms, work.config.filters).tolist()
    return frozenset(name for name, flaps in zip(names, is_flapping, strict=True) if flaps)


def suspected(work: Work) -> frozenset[str]:
    """Live brokers that are silent for `suspicion_ms`: perhaps dead, and given nothing. O(brokers).

    When a rack fails, its brokers are found dead one after the other, within the interval of
    heartbeats: what the first had is not given to the others. A bridge asks all brokers at once
    and rarely: there, most of them silent means that it is late.
    """
    silent = _silent(work, suspicion_ms(work.config))
    is_late = is_external(work) and 2 * len(silent) > len(_watched(work))
    return frozenset() if is_late else silent


def suspicion_ms(config: Config) -> int:
    """Return the silence until a broker is suspected, ms.

    Two heartbeats, or more if broker_timeout_ms is long.
    """
    return max(config.ownership.broker_timeout_ms * 2 // 5, 2 * config.agent.heartbeat_interval_ms)


def overdue(work: Work) -> frozenset[str]:
    """Live brokers that are silent for `overdue_ms`: failover gives them nothing. O(brokers).

    Stricter than suspicion, because brokers often fail together: one that fell silent after the
    dead one has not been silent for long when the dead one is found.
    """
    return _silent(work, overdue_ms(work.config))


def overdue_ms(config: Config) -> int:
    """Return the silence until a heartbeat is overdue, ms.

    One and a half heartbeat intervals, or more if broker_timeout_ms is long.
    """
    return max(
        config.ownership.broker_timeout_ms * 3 // 10, config.agent.heartbeat_interval_ms * 3 // 2
    )


def many_silent(work: Work) -> tuple[str, ...]:
    """The overdue brokers, when they and those found dead of late are half of all or more.

    Failover waits then: each of them is heard again or found dead within `broker_timeout_ms`, and
    when all are silent, more likely it is us. A single dead broker delays nothing. O(brokers).
    """
    silent = overdue(work)
    since_ms = work.clock_ms - work.config.ownership.brake_window_ms
    dead = [e for e in work.brokers.values() if e.is_silent and e.died_clock_ms >= max(since_ms, 0)]
    is_many = 2 * (len(silent) + len(dead)) >= len(_watched(work)) + len(dead)
    return tuple(sorted(silent)) if silent and is_many else ()


def _silent(work: Work, limit_ms: int) -> frozenset[str]:
    unheard_ms = work.liveness.unheard_ms
    return frozenset(name for name in _watched(work) if unheard_ms(name) > limit_ms)


def _watched(work: Work) -> list[str]:
    """The brokers that are not dead."""
    seen = work.liveness.seen
    return [name for name, entry in work.brokers.items() if not entry.is_silent and name in seen]


def unsteady(work: Work) -> frozenset[str]:
    """The brokers that get nothing while there are others: they flap, or may be dead."""
    return flapping(work) | suspected(work)


def is_open(work: Work, broker: str) -> bool:
    """True if the broker is alive and not draining."""
    entry = work.brokers.get(broker)
    return entry is not None and not entry.is_silent and not is_draining(work, broker)


def reason_not_to_take(work: Work, broker: str) -> str:
    """Return the reason why a broker can't be a destination now; "" if it can.

    Also "" if no broker is named.
    """
    if not broker:
        return ""
    entry = work.brokers.get(broker)
    if entry is None or entry.is_silent or not entry.reported_ms:
        return f"broker {broker} is not active; choose one that is"
    if broker in suspected(work):
        silent_s = work.liveness.unheard_ms(broker) // 1_000
        return (
            f"broker {broker} is silent for {silent_s} s and may be dead; choose another, or wait"
        )
    if entry.is_draining or broker in work.rules.drains:
        return f"broker {broker} is being drained; choose another, or cancel the drain first"
    return ""


def note_flapping(work: Work) -> None:
    """Write down who is held off from now on because of a start in this batch."""
    for name in sorted(flapping(work)):
        work.alarms.add(f"flapping:{name}")
        entry = work.brokers[name]
        if entry.starts_ms[-1] != work.now_ms:
            continue
        filters = work.config.filters
        inputs = {
            "starts_ms": list(entry.starts_ms),
            "flap_starts": filters.flap_starts,
            "flap_window_ms": filters.flap_window_ms,
        }
        work.write_decision(work.next_decision(), "back_off", "Flapping", inputs, source=name)
