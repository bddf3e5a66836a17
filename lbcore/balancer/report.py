"""Rows and figures that a batch writes besides decisions.

The batch's report with its gauges; rows of brokers, load history, settings in force, and what
planning remembers.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import FORGOTTEN, TEXTS, BrokerEntry, completed, remembered
from lbcore.balancer.brokers import SILENCE, usable_brokers
from lbcore.balancer.candidate_rows import is_believed
from lbcore.balancer.effects import to_json
from lbcore.balancer.ledger import NOBODY, STATE_CODE, STATES
from lbcore.config.load import reported_digest, reported_rows
from lbcore.model.resources import COUNT
from lbcore.model.tables import BROKERS, LOAD_HISTORY, PLANNING_MEMORY, SETTINGS_IN_FORCE
from lbcore.ownership.records import State
from lbcore.ownership.repair import stuck_after_ms
from lbcore.ownership.states import IN_FLIGHT
from lbcore.packing import from_plain, plain_of
from lbcore.plan.decision import PlanState
from lbcore.plan.groups import members_by_group
from lbcore.plan.registry import shedding_strategy
from lbcore.plan.snapshot import Ints
from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance, usage_of, usages_of
from lbcore.signals.usage import max_usage_reported


def write_settings(work: BatchContext) -> None:
    """Write the rows of settings in force if they have changed. O(settings) a change."""
    started, present = work.base_config, work.config

    def compute() -> tuple[list[dict[str, str]], str]:
        rows = reported_rows(started, present, work.config_version)
        return rows, reported_digest(rows)

    inputs = (started, present, started.origins, present.origins)
    rows, digest = remembered(work.before.packed, "told", inputs, compute)
    if digest != work.told:
        work.told = digest
        for row in rows:
            work.add_row(SETTINGS_IN_FORCE.name, dict(row))


_MEMORY_PARTS: Mapping[str, tuple[str, ...]] = {
    "shedding": ("strategy", "shed", "transfer", "own"),
    "placement": ("placement",),
    "split": ("split",),
    "unseen": ("unseen",),
    "hot": ("hot",),
    "hourly": ("hourly",),
}
"""Part → fields of `PlanState`. A part is written when one of them changes."""

_HINTS = get_type_hints(PlanState)


def write_memory(work: BatchContext) -> None:
    """Write a row of `planning_memory` for each part that has changed. O(brokers)."""
    before = work.before.plan
    if work.plan is before:
        return
    for part, names in _MEMORY_PARTS.items():
        if any(getattr(work.plan, name) != getattr(before, name) for name in names):
            memory = {name: plain_of(_HINTS[name]).to(getattr(work.plan, name)) for name in names}
            row = {"part": part, "strategy": work.plan.strategy, "memory": to_json(memory)}
            work.add_row(PLANNING_MEMORY.name, row)


def remembered_plan(rows: Iterable[Mapping[str, Any]]) -> PlanState:
    """Return the plan's memory from its rows, one per part; missing parts are empty.

    Raises KeyError, TypeError, ValueError for a row that another version wrote.
    """
    found: dict[str, Any] = {}
    for row in rows:
        plain = json.loads(row["memory"])
        found |= {name: plain[name] for name in _MEMORY_PARTS[row["part"]]}
    return completed(from_plain(PlanState, found))


_WHOLE_MAX = 100_000
"""Maximum bundles of a cluster whose load history one batch writes as a whole."""
_PARTS = 8
"""Batches over which the load history of more bundles is spread."""


def write_history(work: BatchContext) -> None:
    """Write a row of `load_history` per broker and interval: newest load and averages.

    None of a silent broker: its load is not known. A batch with a cycle leaves rows to the next
    batch, so that decisions don't wait for them, unless the first rows are late by a cycle, or
    later ones by half an interval. After the interval all remaining rows are written at once; after
    another interval they are dropped. O(bundles), in numpy; O(bundles written).
    """
    pipeline, times = work.config.pipeline, work.times
    interval_ms, late_ms = pipeline.load_history_interval_ms, pipeline.decision_interval_ms
    start_ms, after = times.history_ms, times.history_after
    if work.now_ms >= start_ms + 2 * interval_ms:
        after = ""  # the rest is of an interval long over, whose load is not known now
    if after:
        late_ms = max(late_ms, interval_ms // 2)
    else:
        start_ms = work.now_ms - work.now_ms % interval_ms
        if start_ms <= times.history_ms:
            return
    if times.cycle_ms == work.now_ms and work.now_ms < start_ms + late_ms:
        return
    rows_of = _rows_by_broker(work)
    names = left = [name for name in usable_brokers(work) if name > after]
    if len(work.ledger) > _WHOLE_MAX and work.now_ms < start_ms + interval_ms:
        bundles = np.cumsum([len(rows_of[name]) for name in left])
        names = left[: int(np.searchsorted(bundles, -(-len(work.ledger) // _PARTS))) + 1]
    work.set_times(history_ms=start_ms, history_after=names[-1] if len(names) < len(left) else "")
    for name in names:
        work.add_row(LOAD_HISTORY.name, _history_row(work, name, start_ms, rows_of[name]))


def _rows_by_broker(work: BatchContext) -> dict[str, Ints]:
    """Broker → rows of the ledger, ascending; none of a broker that has none."""
    instances, holders = work.ledger.instances, work.ledger.holders()
    order = np.argsort(holders, kind="stable")
    ids, starts = np.unique(holders[order], return_index=True)
    found: dict[str, Ints] = defaultdict(lambda: np.zeros(0, dtype=np.int64))
    for instance, rows in zip(ids.tolist(), np.split(order, starts)[1:], strict=True):
        if instance != NOBODY:
            name = instances.of(instance)[0]
            found[name] = np.sort(np.concatenate([found[name], rows]))
    return found


def _history_row(work: BatchContext, name: str, start_ms: int, rows: Ints) -> dict[str, Any]:
    entry, ledger = work.brokers[name], work.ledger
    short = ledger.short[rows]
    return {
        "broker": name,
        "minute_ms": start_ms,
        "score": entry.weighted_max_ema,
        "percent": list(entry.percent),
        "traffic": list(entry.traffic),
        "bundles": [ledger.names[row] for row in rows.tolist()],
        "msg_rate_in": short[:, 0].tolist(),
        "msg_rate_out": short[:, 1].tolist(),
        "msg_throughput_in": short[:, 2].tolist(),
        "msg_throughput_out": short[:, 3].tolist(),
        "topics": ledger.topics[rows].astype(float).tolist(),
        "sessions": ledger.sessions[rows].astype(float).tolist(),
        "reported_ms": entry.reported_ms,
        "usage": usage_of(entry.percent, work.config.signals),
        "broker_group": work.plan.groups.get(name, ""),
    }


LOW, HIGH = "low", "high"
_STATES_SHOWN = sorted({*IN_FLIGHT, State.FREE}, key=lambda state: state.value)


def make_gauges(work: BatchContext) -> dict[str, Any]:
    """Return numbers for the metrics: brokers, states, balance, hits. O(bundles).

    brokers: columns of equal length, in name order; percent: a number a
    resource; max_usage: Pulsar's, unweighted; ages in ms, None = never. states:
    state → how many, the oldest's age, how many are stuck. topics: numbers of known topics, and of
    bundles that they are in.
    """
    low, high = shedding_strategy(work.config).hits_needed(work.config)
    names, hits = sorted(work.brokers), work.plan.shed
    entries = [work.brokers[name] for name in names]
    percent = np.array([entry.percent for entry in entries], dtype=np.float64).reshape(-1, COUNT)
    brokers = {
        "name": names,
        "is_up": [not entry.is_dead for entry in entries],
        "percent": [list(entry.percent) for entry in entries],
        "max_usage": max_usage_reported(percent).tolist(),
        "throughput": [entry.traffic[2] + entry.traffic[3] for entry in entries],
        "topics": [entry.topic_count for entry in entries],
        "report_age_ms": [
            max(0, work.now_ms - entry.reported_ms) if entry.reported_ms else None
            for entry in entries
        ],
        LOW: [abs(hits.hits_low.get(name, 0)) for name in names],
        HIGH: [abs(hits.hits_high.get(name, 0)) for name in names],
    }
    return {
        "brokers": brokers,
        "states": {state.value: _ages(work, state) for state in _STATES_SHOWN},
        "balance": _balance(work),
        "hits_needed": {LOW: low, HIGH: high},
        "blocked": {
            name: {"reason": hot.reason, "for_ms": work.now_ms - hot.since_ms}
            for name, hot in work.plan.hot.items()
            if name and hot.told_ms and is_believed(hot.told_ms, work.now_ms)
        },
        "split_hits": len(work.plan.split.hits),
        "unsplittable": len(work.plan.split.unsplittable),
        "is_catching_up": work.is_catching_up,
        "is_quiet": work.config.cluster.quiet_until_ms(work.now_ms) > 0,
        "topics": {"bundles": work.topics.bundles, "topics": work.topics.count},
    }


def _ages(work: BatchContext, state: State) -> dict[str, int]:
    ledger = work.ledger
    ages_ms = work.now_ms - ledger.at_ms[ledger.state == STATE_CODE[state]]
    is_stuck = ages_ms > stuck_after_ms(work.config.ownership)
    return {
        "count": len(ages_ms),
        "oldest_ms": int(ages_ms.max(initial=0)),
        "stuck": int(is_stuck.sum()) if state in IN_FLIGHT else 0,
    }


def _balance(work: BatchContext) -> dict[str, float | None]:
    """Return the balance of live brokers' message rates and scores; None = no load.

    Each number is that of the isolation group where it is highest.
    """
    live, hottest = usable_brokers(work), _hottest(work)
    found: list[tuple[float | None, ...]] = []
    for group, members in members_by_group(live, work.plan.groups).items():
        entries = [work.brokers[live[at]] for at in members.tolist()]
        rates = [entry.traffic[0] + entry.traffic[1] for entry in entries]
        scores = [entry.weighted_max_ema for entry in entries]
        highest = min(hottest.get(group, 0.0), max(rates))  # averages may lag behind brokers
        mean = math.fsum(scores) / len(scores)
        deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
        uneven = imbalance(rates), floor_adjusted_imbalance(rates, highest)
        found.append((*uneven, mean, deviation))
    names = ("imbalance", "floor_adjusted", "score_mean", "score_std")
    columns = zip(*found, strict=True) if found else [()] * len(names)
    return {
        name: max((value for value in column if value is not None), default=None)
        for name, column in zip(names, columns, strict=True)
    }


def _hottest(work: BatchContext) -> dict[str, float]:
    """Return isolation group → msg/s, in plus out, of its busiest reported bundle."""
    ledger, groups = work.ledger, work.plan.groups
    holders = ledger.holders()
    is_known = (ledger.short_count > 0) & (holders != NOBODY)
    rates = ledger.short[:, 0] + ledger.short[:, 1]
    by_holder = np.zeros(int(holders.max(initial=NOBODY)) + 1)
    np.maximum.at(by_holder, holders[is_known], rates[is_known])
    busy = np.flatnonzero(by_holder).tolist()
    group_of = [groups.get(ledger.instances.of(instance)[0], "") for instance in busy]
    return dict(sorted(zip(group_of, by_holder[busy].tolist(), strict=True)))  # highest of each


FAULTS = "faults"
"""Key in a report: items that were left out, and why; absent without any."""

GAUGES = "gauges"
"""In a report: what is for the metrics and not for the log."""

CLOCKS = "clocks_ahead_ms"
"""In a report: clock → by how much it is ahead, ms; there only when one is wrong."""

_SHOWN = tuple(name for name in TEXTS if name != "broker_version")


def write_brokers(work: BatchContext) -> None:
    """Write a row of `brokers` for each that is new, changed or forgotten."""
    before, drained_before = work.before.brokers, work.before.rules.drains
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


def make_report(work: BatchContext) -> dict[str, Any]:
    """Return the report of the batch for the sink to log and keep.

    Counts, brokers, moves, states, ends.
    """
    codes, counts = np.unique(work.ledger.state, return_counts=True)
    by_state = {
        STATES[code].value: int(n) for code, n in zip(codes.tolist(), counts.tolist(), strict=True)
    }
    is_open = work.ledger.state != STATE_CODE[State.ASSIGNING]  # as `serving_broker` says of each
    owned = work.ledger.count_by_broker(work.ledger.holders()[is_open])
    groups = work.plan.groups
    usable = usable_brokers(work)
    percents = [work.brokers[name].percent for name in usable]
    usages = dict(zip(usable, usages_of(percents, work.config.signals), strict=True))
    silence = [row for row in work.rows.get("decisions", ()) if row["kind"] == SILENCE]
    names = ("decision_id", "kind", "reason", "source", "inputs")
    return {
        **bare_report(work),
        "bundles": by_state,
        "in_flight": sum(by_state.get(state.value, 0) for state in IN_FLIGHT),
        "brokers": {
            name: {
                # as `shown_load` defines it; None if silent or never reported
                "score": entry.weighted_max_ema if name in usages else None,
                "usage": usages.get(name),
                "msg_rate": entry.traffic[0] + entry.traffic[1] if name in usages else None,
                **({"group": groups[name]} if groups.get(name) else {}),
                "bundles": owned.get(name, 0),
                "state": entry.state(is_drained=name in work.rules.drains),
            }
            for name, entry in sorted(work.brokers.items())
        },
        # transitions that begin a bundle's way to another broker
        "moves": [
            {
                "bundle": after.bundle,
                "from": (before.destination or before.source) if before else "",
                "to": after.destination,
                "cause": after.cause.value,
                "decision_id": after.decision_id,
            }
            for before, after in work.transitions
            if after.state is State.RELEASING
            or (after.state is State.ASSIGNING and after.is_forced)
        ],
        "without_candidate": dict(sorted(work.without_candidate.items())),
        "is_debugging": work.config.telemetry.debug,
        **({SILENCE: [{n: row[n] for n in names} for row in silence]} if silence else {}),
        GAUGES: make_gauges(work),
    }


def bare_report(work: BatchContext) -> dict[str, Any]:
    """Return the minimal report that the sink requires."""
    rules, apart = work.rules, work.times.apart
    return {
        "cluster": work.cluster,
        "now_ms": work.now_ms,
        "cycle": work.times.cycle,
        "counts": dict(sorted((k, v) for k, v in work.counts.items() if v)),
        "ends": {
            topic: {str(p): end for p, end in sorted(ends.items())}
            for topic, ends in sorted(work.ends.items())
        },
        "bundles": {},
        "in_flight": 0,
        "brokers": {},
        "moves": [],
        "rules": {
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
        },
        "alarms": sorted(work.alarms),
        "is_debugging": False,
        **({FAULTS: list(work.faults)} if work.faults else {}),
        **({CLOCKS: {name: apart[name][0] for name in sorted(apart)}} if apart else {}),
    }
