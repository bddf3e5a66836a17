"""Explanation of a broker: its moves, and why a hot one is not relieved.

Takes rows of the tables; returns sentences and numbers.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lbcore.balancer.candidate_rows import (
    BLOCKED,
    blocked_status,
    hot_message,
    remedy_messages,
)
from lbcore.explain.explanation import (
    ExplainRows,
    Explanation,
    Row,
    count_of,
    has_moved,
    number,
    percent,
)
from lbcore.explain.job_state import CYCLE_KINDS
from lbcore.explain.reasons import (
    reason_message,
    since_message,
    skip_message,
    trigger_message,
    trigger_of,
    verdict_message,
)
from lbcore.explain.recent_findings import silence_of
from lbcore.model.resources import WIRE_NAMES, complete
from lbcore.model.times import duration, instant
from lbcore.ownership.changes import serving_broker
from lbcore.plan.registry import effective_grace_ms
from lbcore.plan.shed.custom import FAULTS
from lbcore.signals.shown_load import group_loads

_STANDSTILLS = frozenset(
    {
        "Paused",
        "Brake",
        "NoBrokers",
        "OutDatedData",
        "StaleReports",
        "JustRestarted",
        "Disabled",
        "PlanWaits",
        "QuietHours",
        *FAULTS,
    }
)
_SHOWN = 3
_REPORT_AGAIN = "it must report again: start it, or `ballast broker forget` it"
_MOVING = frozenset({"assign", "drain", "failover", "repair", "transfer", "unload"})


def explain_broker(rows: ExplainRows, broker: str) -> Explanation | None:
    """Explain the broker as of `rows.at_ms`; None if no broker had this name. O(rows)."""
    row = next((row for row in rows.brokers if row["broker"] == broker), None)
    if row is None:
        return None
    owned = [record for record in rows.records if serving_broker(record) == broker]
    return Explanation(
        kind="broker",
        subject=broker,
        at_ms=rows.at_ms,
        headline=_headline(rows, row, len(owned)),
        why=tuple(_move_history(rows, broker)),
        candidates=tuple(_candidate_messages(rows, broker)),
        blocks=tuple(_blocks(rows, row, owned)),
        changes=(_REPORT_AGAIN,)
        if row["state"] == "silent"
        else tuple(unload_advice(rows, broker)),
        numbers=_numbers(rows, broker, len(owned)),
    )


def newest_cycle(rows: ExplainRows) -> list[Row]:
    """Return the decisions of the newest cycle.

    Decisions of later commands have the same cycle number and are left out.
    """
    return _newest(rows, [r for r in rows.decisions if r["cycle"] and r["kind"] in CYCLE_KINDS])


def _newest_shedding(rows: ExplainRows) -> list[Row]:
    """Return the decisions of the newest cycle that judged brokers.

    Not every cycle does: between two shedding rounds, cycles only drain, place or split.
    """
    cycles = [row for row in rows.decisions if row["cycle"] and row["kind"] in CYCLE_KINDS]
    deciding = [row for row in cycles if (row["kind"], row["reason"]) != ("skip", "NotThisCycle")]
    judged_ms = {row["at_ms"] for row in rows.candidates if row["phase"] == "shed"}
    judging = [row for row in deciding if row["kind"] == "skip" or row["at_ms"] in judged_ms]
    pipeline = rows.config.pipeline
    past_ms = pipeline.shed_interval_ms - pipeline.decision_interval_ms // 2  # cycles jitter
    since_ms = max((row["at_ms"] for row in cycles), default=0) - past_ms
    if any(row["at_ms"] >= since_ms for row in judging):
        return _newest(rows, judging)
    return _newest(rows, deciding or cycles)


def _newest(rows: ExplainRows, cycles: list[Row]) -> list[Row]:
    """Return the rows of the newest of these cycles, without later commands."""
    if not cycles:
        return []
    newest = max(cycles, key=lambda row: int(row["at_ms"]))
    since_ms = newest["at_ms"] - 2 * rows.config.pipeline.decision_interval_ms
    same = [r for r in cycles if r["cycle"] == newest["cycle"] and r["at_ms"] > since_ms]
    begun_ms = min(int(row["at_ms"]) for row in same)
    return [row for row in same if row["at_ms"] == begun_ms]


def newest_trigger(rows: ExplainRows, broker: str) -> dict[str, Any] | None:
    """Return how far from shedding the newest judging cycle found the broker.

    None = it was not near.
    """
    cycle = _newest_shedding(rows)
    if not cycle:
        return None
    at_ms = cycle[0]["at_ms"]
    for row in rows.candidates:
        if (row["at_ms"], row["subject"], row["phase"]) == (at_ms, broker, "shed"):
            return trigger_of(row)
    return next((dict(one) for one in _nearest(cycle) if one["broker"] == broker), None)


def _nearest(cycle: Iterable[Row]) -> Iterable[Mapping[str, Any]]:
    for row in cycle:
        yield from json.loads(row["inputs"]).get("nearest", ())


def unload_advice(rows: ExplainRows, broker: str) -> Iterable[str]:
    """Yield the changes that would make bundles leave the broker."""
    cycle = _newest_shedding(rows)
    if not cycle:
        yield "no cycle is known: is the job running? `ballast status`"
        return
    for row in cycle:
        if row["kind"] == "skip" and row["reason"] in _STANDSTILLS:
            yield f"cycles decide nothing now ({row['reason']}): {skip_message(row['reason'])}"
            return
    trigger = newest_trigger(rows, broker)
    if trigger is None:
        yield f"{broker} is not near a threshold (below 80 % of each): nothing is to leave it"
        for nearest in list(_nearest(cycle))[:1]:
            yield f"the nearest is {nearest['broker']}: {trigger_message(nearest)}"
        return
    yield f"{broker} has {trigger_message(trigger)}"
    if trigger["verdict"] == "too_few_hits":
        period = duration(rows.config.pipeline.hit_period_ms)
        yield f"a hit needs a report newer than the one before, and counts once in {period}"
    blocked = blocked_rows(rows, (broker,))
    if blocked:
        yield from constraint_messages(rows, blocked)
        yield from _largest(rows, broker)
    elif trigger["verdict"] not in ("taken", "below_threshold", "too_few_hits"):
        yield f"it is beyond its threshold, but {verdict_message(trigger['verdict'])}"
        yield from _largest(rows, broker)


def blocked_rows(rows: ExplainRows, brokers: Iterable[str] | None = None) -> list[Row]:
    """Return the newest valid row on each of these blocked brokers.

    brokers: None = all of them.
    """
    newest = {row["source"]: row for row in rows.decisions if row["kind"] == BLOCKED}
    valid = {one.broker for one in blocked_status(newest.values(), rows.at_ms)}
    wanted = valid if brokers is None else valid.intersection(brokers)
    return [newest[broker] for broker in sorted(wanted)]


def constraint_messages(rows: ExplainRows, blocked: Iterable[Row]) -> Iterable[str]:
    """Yield constraints that keep bundles on these brokers, their end, and the remedy."""
    wait_ms = max(effective_grace_ms(rows.config), rows.config.shedding.cool_down_ms)
    if rows.is_past:
        return
    for row in blocked:
        owned = (record for record in rows.records if serving_broker(record) == row["source"])
        free_ms = sorted(one["at_ms"] + wait_ms for one in owned if has_moved(one))
        until = next((f"{instant(at)[11:19]} UTC" for at in free_ms if at > rows.at_ms), "")
        for words in remedy_messages(row, until):
            yield f"{hot_message(row, rows.at_ms)}. {words}"


def _largest(rows: ExplainRows, broker: str) -> Iterable[str]:
    """Yield the broker's largest bundle, with the split phase's verdict on it."""
    shown = rows.loads().get(broker)
    if shown is None or not shown.row["bundles"]:
        return
    load = shown.row
    rates = [a + b for a, b in zip(load["msg_rate_in"], load["msg_rate_out"], strict=True)]
    at, total = rates.index(max(rates)), sum(rates)
    name, share = load["bundles"][at], rates[at] / total if total else 0.0
    split = [r for r in rows.candidates if r["subject"] == name and r["phase"] == "split"]
    listed = (
        verdict_message(split[-1]["verdict"]) if split else "is over no limit of splitting.max_*"
    )
    yield f"its largest bundle {name} is {percent(share)} of its messages; it {listed}"


def _headline(rows: ExplainRows, row: Row, owned: int) -> str:
    name, loads = row["broker"], rows.loads()
    words = f"{name} is {row['state']} and serves {count_of(owned, 'bundle')}"
    if name not in loads:
        return f"{words}; its load is not known."
    words, groups = f"{words}; its usage is {percent(loads[name].usage)}", group_loads(loads)
    reported = since_message(loads[name].reported_ms, rows.at_ms)
    group = next((one for one in groups if name in one.brokers), None)
    if group is None:
        return f"{words}, and it is in no isolation group (reported {reported})."
    order = sorted(group.brokers, key=lambda one: -loads[one].usage)
    of = " of its group" if len(groups) > 1 else ""
    return (
        f"{words}, the mean{of} {percent(group.mean)}: number "
        f"{order.index(name) + 1} of {len(order)} (reported {reported})."
    )


def _move_history(rows: ExplainRows, broker: str) -> Iterable[str]:
    """Yield the moves from and to the broker within the window, and their outcomes."""
    span = f"in the last {duration(rows.window_ms)}"
    since_ms = rows.at_ms - rows.window_ms
    moves = [
        (row, 1 if row["bundle"] else int(json.loads(row["inputs"]).get("bundles", 0)))
        for row in rows.decisions
        if row["kind"] in _MOVING and row["at_ms"] >= since_ms and not is_refused(row)
    ]
    for column, direction in (("source", "from it"), ("destination", "to it")):
        count, listed = _by_kind((row, count) for row, count in moves if row[column] == broker)
        words = f"decisions moved {count_of(count, 'bundle')} {direction} {span}"
        yield words + (f": {listed}" if listed else "")
    placed = {row["decision_id"]: row for row, _ in moves if not row["destination"]}
    here = Counter(
        record["decision_id"] for record in rows.records if serving_broker(record) == broker
    )
    count, listed = _by_kind((row, here[name]) for name, row in placed.items())
    if count:
        yield f"of the bundles that it has now, placement put {count:,} there {span}: {listed}"
    outcomes = Counter(
        row["outcome"] for row in rows.effects if broker in (row["source"], row["destination"])
    )
    if outcomes:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        yield f"what became of its moves: {listed}"


def is_refused(decision: Row) -> bool:
    """Return True if the decision was not carried out.

    Either `observe_only` was on, or the bundle's record did not allow it.
    """
    return bool(json.loads(decision["inputs"]).get("refused"))


def _by_kind(moves: Iterable[tuple[Row, int]]) -> tuple[int, str]:
    """Return the number of bundles, and the numbers by kind and reason as text."""
    kinds: Counter[tuple[str, str]] = Counter()
    for row, count in moves:
        if count:
            kinds[row["kind"], row["reason"]] += count
    listed = ", ".join(
        f"{n} by {kind} ({reason_message(reason)})" for (kind, reason), n in kinds.most_common()
    )
    return kinds.total(), listed


def _candidate_messages(rows: ExplainRows, broker: str) -> Iterable[str]:
    near = [r for r in rows.candidates if r["phase"] == "shed" and r["subject"] == broker]
    total = rows.cycles()
    yield (
        f"considered as source in {len(near)} of {count_of(total, 'cycle')} in the last "
        f"{duration(rows.window_ms)}"
    )
    counts = Counter(row["verdict"] for row in near)
    for verdict, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        last = [row for row in near if row["verdict"] == verdict][-1]
        yield (
            f"{count_of(count, 'time')}: {verdict_message(verdict)}; last "
            f"{instant(last['at_ms'])}: "
            f"{trigger_message(trigger_of(last), when='then')}"
        )
    lost = Counter(
        row["verdict"]
        for row in rows.candidates
        if row["phase"] in ("assign", "limit")
        and row["broker"] == broker
        and row["verdict"] != "taken"
    )
    for verdict, count in sorted(lost.items()):
        times = count_of(count, "time")
        yield f"not chosen as destination at least {times}: {verdict_message(verdict)}"


def _blocks(rows: ExplainRows, row: Row, owned: list[Row]) -> Iterable[str]:
    broker = row["broker"]
    yield from (one.message for one in blocked_status(blocked_rows(rows, (broker,)), rows.at_ms))
    silence = silence_of(rows.decisions, rows.at_ms)
    yield from (words for words in silence.suspected if words.startswith(f"{broker} "))
    if row["state"] == "silent":
        if broker in silence.dead:
            yield silence.dead[broker]
        yield "failover treats it as dead: its bundles move to other brokers, and it gets none"
    drain = rows.rules("drain").get(broker)
    if drain is not None:
        yield f"it is being drained: {drain['left']} of {drain['total']} bundles left"
    names = {record["bundle"] for record in owned}
    pinned = [p["bundle"] for p in rows.pins if p["is_set"] and p["broker"] == broker]
    there = [bundle for bundle in pinned if bundle in names]
    away = set(pinned) - set(there)
    moving = [record for record in owned if record["state"] != "Owned"]
    keep_ms = rows.config.shedding.cool_down_ms
    cooling = [r for r in owned if has_moved(r) and r["at_ms"] + keep_ms > rows.at_ms]
    for bundles, words in (
        (there, f"pinned to it, such as {min(there, default='')}"),
        (away, f"pinned to it and elsewhere now, such as {min(away, default='')}"),
        (moving, "of it in flight"),
        (cooling, f"came less than {duration(keep_ms)} ago and stay"),
    ):
        if bundles:
            yield f"{count_of(len(bundles), 'bundle')} {words}"


def _numbers(rows: ExplainRows, broker: str, owned: int) -> dict[str, object]:
    shown = rows.loads().get(broker)
    if shown is None:
        return {"bundles": owned}
    load, units = shown.row, ("msg/s in", "msg/s out", "bytes/s in", "bytes/s out")
    used = zip(WIRE_NAMES, complete(load["percent"]), strict=True)
    rates = zip(load["bundles"], load["msg_rate_in"], load["msg_rate_out"], strict=True)
    top = sorted(((a + b, name) for name, a, b in rates), key=lambda one: (-one[0], one[1]))
    return {
        "bundles": owned,
        **{f"{name} %": float(value) for name, value in used},
        **dict(zip(units, map(float, load["traffic"]), strict=True)),
        "usage": percent(shown.usage),
        "score": percent(shown.score),
        "msg/s": shown.msg_rate,
        "largest bundles": {name: number(rate) for rate, name in top[:_SHOWN]},
    }
