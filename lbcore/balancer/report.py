"""The batch's report, and the rows that only show brokers.

Decides nothing. Last phase of `balancer`. Source: ours.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from lbcore.balancer.gauges import make_gauges
from lbcore.balancer.intake.broker_liveness import SILENCE
from lbcore.balancer.state.book import FORGOTTEN, TEXTS, BrokerEntry
from lbcore.balancer.state.effects import to_json
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.ledger import STATE_CODE, STATES
from lbcore.balancer.state.work import Work
from lbcore.model.tables import BROKERS
from lbcore.ownership.records import State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.signals.shown_load import usages_of

FAULTS = "faults"
"""In a report: what was put aside and why; there only when something was."""

GAUGES = "gauges"
"""In a report: what is for the metrics and not for the log."""

CLOCKS = "clocks_ahead_ms"
"""In a report: clock → by how much it is ahead, ms; there only when one is wrong."""

_SHOWN = tuple(name for name in TEXTS if name != "broker_version")


def write_brokers(
    work: Work, before: Mapping[str, BrokerEntry], drained_before: Collection[str]
) -> None:
    """A row of `brokers` for each that is new, is forgotten, or shows otherwise than before.

    drained_before: brokers that were drained by command.
    """
    for name in sorted(work.brokers):
        entry, old = work.brokers[name], before.get(name)
        is_drained, was_drained = name in work.rules.drains, name in drained_before
        if old is entry and is_drained == was_drained:
            continue
        row = broker_row(name, entry, entry.state(is_drained=is_drained))
        if old is None or row != broker_row(name, old, old.state(is_drained=was_drained)):
            work.add_row(BROKERS.name, row)
    for name in sorted(before.keys() - work.brokers.keys()):
        work.add_row(BROKERS.name, broker_row(name, before[name], FORGOTTEN))


def broker_row(name: str, entry: BrokerEntry, state: str) -> dict[str, Any]:
    """A broker as a row of the `brokers` table."""
    return {
        "broker": name,
        "incarnation": entry.incarnation,
        "state": state,
        **{text: entry.texts.get(text, "") for text in _SHOWN},
        "version": entry.texts.get("broker_version", ""),
        "advertised_listeners": to_json(entry.listeners),
        "capacity": entry.capacity,
        "starts": to_json(list(entry.starts_ms)),
    }


def make_report(work: Work) -> dict[str, Any]:
    """What the sink logs and keeps of the batch: counts, brokers, moves, states, ends."""
    ledger = work.ledger
    codes, counts = np.unique(ledger.state, return_counts=True)
    by_state = {
        STATES[code].value: int(n) for code, n in zip(codes.tolist(), counts.tolist(), strict=True)
    }
    owned, usages = _owned_counts(work), _usages(work)
    return {
        "cluster": work.cluster,
        "now_ms": work.now_ms,
        "cycle": work.times.cycle,
        "counts": dict(sorted((k, v) for k, v in work.counts.items() if v)),
        "bundles": by_state,
        "in_flight": sum(by_state.get(state.value, 0) for state in IN_FLIGHT),
        "ends": _ends(work),
        "brokers": {
            name: {
                **_load(entry, usages.get(name)),
                "bundles": owned.get(name, 0),
                "state": entry.state(is_drained=name in work.rules.drains),
            }
            for name, entry in sorted(work.brokers.items())
        },
        "moves": _moves(work),
        "rules": _rules(work),
        "alarms": sorted(work.alarms),
        "without_candidate": dict(sorted(work.without_candidate.items())),
        "is_debugging": work.config.telemetry.debug,
        **_faults(work),
        **_clocks(work),
        **_silence(work),
        GAUGES: make_gauges(work),
    }


def _silence(work: Work) -> dict[str, Any]:
    """Who was suspected, found dead or heard again in this batch; there only when somebody was."""
    rows = [row for row in work.rows.get("decisions", ()) if row["kind"] == SILENCE]
    names = ("decision_id", "kind", "reason", "source", "inputs")
    return {SILENCE: [{name: row[name] for name in names} for row in rows]} if rows else {}


def _usages(work: Work) -> dict[str, float]:
    """Of the brokers that are heard and have reported. O(brokers), as one array."""
    heard = {
        name: entry.percent
        for name, entry in work.brokers.items()
        if not entry.is_silent and entry.reported_ms
    }
    return dict(zip(heard, usages_of([*heard.values()], work.config.signals), strict=True))


def _load(entry: BrokerEntry, usage: float | None) -> dict[str, float | None]:
    """As `shown_load` defines it; None of a broker that is silent or never said anything."""
    if usage is None:
        return {"score": None, "usage": None, "msg_rate": None}
    return {
        "score": entry.weighted_max_ema,
        "usage": usage,
        "msg_rate": entry.traffic[0] + entry.traffic[1],
    }


def bare_report(work: Work) -> dict[str, Any]:
    """What the sink can't do without."""
    return {
        "cluster": work.cluster,
        "now_ms": work.now_ms,
        "cycle": work.times.cycle,
        "counts": dict(sorted((k, v) for k, v in work.counts.items() if v)),
        "ends": _ends(work),
        "bundles": {},
        "in_flight": 0,
        "brokers": {},
        "moves": [],
        "rules": _rules(work),
        "alarms": sorted(work.alarms),
        "is_debugging": False,
        **_faults(work),
        **_clocks(work),
    }


def _faults(work: Work) -> dict[str, Any]:
    return {FAULTS: list(work.faults)} if work.faults else {}


def _clocks(work: Work) -> dict[str, Any]:
    """By how much clocks are ahead at most, of those that are wrong or were lately."""
    apart = work.times.apart
    return {CLOCKS: {name: apart[name][0] for name in sorted(apart)}} if apart else {}


def _ends(work: Work) -> dict[str, dict[str, int]]:
    return {
        topic: {str(p): end for p, end in sorted(ends.items())}
        for topic, ends in sorted(work.ends.items())
    }


def _moves(work: Work) -> list[dict[str, Any]]:
    """Transitions that begin a bundle's way to another broker."""
    return [
        {
            "bundle": after.bundle,
            "from": (before.destination or before.source) if before else "",
            "to": after.destination,
            "cause": after.cause.value,
            "decision_id": after.decision_id,
        }
        for before, after in work.transitions
        if after.state is State.RELEASING or (after.state is State.ASSIGNING and after.is_forced)
    ]


def _rules(work: Work) -> dict[str, Any]:
    """What operators have set, as far as a line of the log needs it."""
    rules = work.rules
    return {
        "paused": sorted(rules.paused),
        "pins": len(rules.pins),
        "excluded": len(rules.excluded),
        "isolation": len(rules.isolation),
        "anti_affinity": len(rules.anti_affinity),
        "drains": {
            name: {"left": drain.left, "total": drain.total, "is_done": drain.is_done}
            for name, drain in sorted(rules.drains.items())
        },
        "brake": sorted(rules.brake.lost) if rules.brake else [],
        "set_aside": dict(rules.set_aside),
    }


def _owned_counts(work: Work) -> dict[str, int]:
    """Broker → how many bundles it serves, as `owner_of` says of each."""
    ledger = work.ledger
    is_open = ledger.state != STATE_CODE[State.ASSIGNING]
    holders = np.where(is_open, ledger.holders(), NOBODY)
    ids, counts = np.unique(holders[holders != NOBODY], return_counts=True)
    found: dict[str, int] = defaultdict(int)
    for instance, count in zip(ids.tolist(), counts.tolist(), strict=True):
        found[ledger.instances.of(instance)[0]] += count
    return found
