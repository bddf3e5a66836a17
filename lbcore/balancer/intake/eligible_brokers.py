"""Eligible brokers: which brokers may be given bundles, as far as it depends on the brokers alone.

Decides who drains, who flaps, who may be dead, and why one can't be a destination now. Placing,
commands, repairs and the cycle ask. Part of `balancer`. Source: ours; a broker that starts again
and again would drop what it is given again and again. To suspect before judging is how failure
detectors put it (Chandra and Toueg 1996).
"""

from lbcore.balancer.state.work import Work
from lbcore.plan.filter.index import flapping_brokers


def is_draining(work: Work, broker: str) -> bool:
    """Whether the broker is being emptied, by command or because it says that it stops."""
    entry = work.brokers.get(broker)
    return broker in work.rules.drains or (entry is not None and entry.is_draining)


def flapping(work: Work) -> frozenset[str]:
    """The brokers that have started, or come back from silence, too often of late."""
    names = sorted(work.brokers)
    starts_ms = tuple(work.brokers[name].starts_ms for name in names)
    is_flapping = flapping_brokers(starts_ms, work.now_ms, work.config.filters).tolist()
    return frozenset(name for name, flaps in zip(names, is_flapping, strict=True) if flaps)


def suspected(work: Work) -> frozenset[str]:
    """The live brokers that have been silent for half the time after which they are taken for dead.

    And for two heartbeats, where these are rare. When a rack fails, its brokers are found dead one
    after the other, within the interval of heartbeats: what the first had is not given to the
    others. None where it is most of the brokers: then the reports are late. O(brokers).
    """
    config = work.config
    limit_ms = max(config.ownership.broker_timeout_ms // 2, 2 * config.agent.heartbeat_interval_ms)
    seen = work.liveness.seen
    live = [name for name, entry in work.brokers.items() if not entry.is_silent and name in seen]
    silent = [name for name in live if work.liveness.silence_ms(name) > limit_ms]
    return frozenset(silent if 2 * len(silent) <= len(live) else ())


def unsteady(work: Work) -> frozenset[str]:
    """The brokers that get nothing while there are others: they flap, or may be dead."""
    return flapping(work) | suspected(work)


def is_open(work: Work, broker: str) -> bool:
    """Whether the broker lives and is not being emptied."""
    entry = work.brokers.get(broker)
    return entry is not None and not entry.is_silent and not is_draining(work, broker)


def reason_not_to_take(work: Work, broker: str) -> str:
    """Why a broker can't be a destination now; "" when it can, or when none is named."""
    if not broker:
        return ""
    entry = work.brokers.get(broker)
    if entry is None or entry.is_silent or not entry.reported_ms:
        return f"broker {broker} is not active; choose one that is"
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
