"""Explanation of a cluster's balancing or inactivity, and of one whole decision.

Takes rows of the tables; returns sentences and numbers.
"""

import json
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from lbcore.balancer.candidate_rows import blocked_status
from lbcore.explain.broker import blocked_rows, constraint_messages, is_refused, newest_cycle
from lbcore.explain.explanation import ExplainRows, Explanation, Row, count_of, number, percent
from lbcore.explain.job_state import gaps
from lbcore.explain.reasons import (
    decision_messages,
    reason_message,
    since_message,
    skip_message,
    trigger_message,
    verdict_message,
)
from lbcore.model.times import duration, instant
from lbcore.signals.shown_load import group_loads, groups_line, imbalance_of

_SHOWN = 10
_BLOCKED_SHOWN = 3


def explain_cluster(rows: ExplainRows) -> Explanation:
    """Explain the cluster as of `rows.at_ms`. O(rows)."""
    cycle = newest_cycle(rows)
    states = Counter(row["state"] for row in rows.records)
    groups = groups_line(group_loads(rows.loads()))
    return Explanation(
        kind="cluster",
        subject=rows.cluster,
        at_ms=rows.at_ms,
        headline=_headline(rows, cycle),
        why=tuple(_cycle_messages(cycle)) + ((f"isolation groups: {groups}",) if groups else ()),
        candidates=tuple(_candidate_messages(rows)),
        blocks=tuple(_blocks(rows)),
        changes=tuple(_changes(rows, cycle)),
        numbers={
            "bundles": dict(sorted(states.items())),
            "brokers": dict(sorted(Counter(row["state"] for row in rows.brokers).items())),
            "usage": {name: percent(load.usage) for name, load in rows.loads().items()},
        },
    )


def explain_decision(rows: ExplainRows, decision_id: str) -> Explanation | None:
    """Explain a decision, its other candidates and its effect; None if not read."""
    decision = rows.decision(decision_id)
    if decision is None:
        return None
    inputs = json.loads(decision["inputs"])
    first, *words = decision_messages(rows, decision)
    return Explanation(
        kind="decision",
        subject=decision_id,
        at_ms=decision["at_ms"],
        headline=f"{first}, {since_message(decision['at_ms'], rows.at_ms)}.",
        why=tuple(words),
        candidates=tuple(_losers(rows, decision)),
        changes=tuple(
            f"{g['broker']}: {trigger_message(g, when='then')}" for g in inputs.get("nearest", ())
        ),
        numbers={**inputs, "config_version": decision["config_version"]},
    )


def _headline(rows: ExplainRows, cycle: list[Row]) -> str:
    loads = rows.loads()
    words, groups = f"{rows.cluster}: ", group_loads(loads)
    uneven = imbalance_of(loads)
    if uneven is not None:
        grouped = [name for group in groups for name in group.brokers]
        hot = max(sorted(grouped), key=lambda name: loads[name].usage)
        (mean,) = (group.mean for group in groups if hot in group.brokers)
        worst, of = (", worst group", " of its group") if len(groups) > 1 else ("", "")
        words += (
            f"imbalance {uneven:.2f} (message rates, max/mean{worst}); {hot} has the highest"
            f" usage, {percent(loads[hot].usage)}, the mean{of} is {percent(mean)}; "
        )
    if not cycle:
        return f"{words}no decision cycle is known."
    at = since_message(cycle[0]["at_ms"], rows.at_ms)
    kinds = Counter(row["kind"] for row in cycle)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{words}last cycle {cycle[0]['cycle']} at {at}: {listed}."


def _cycle_messages(cycle: list[Row]) -> Iterable[str]:
    label = itemgetter("kind", "strategy", "reason")
    refused = Counter(label(row) for row in cycle if is_refused(row))
    reasons = Counter(map(label, cycle))
    for (kind, strategy, reason), count in sorted(reasons.items()):
        by = f" by {strategy}" if strategy else ""
        if kind == "skip":
            yield f"it moved nothing{by}: {skip_message(reason)}"
        else:
            left = refused[kind, strategy, reason]
            more = f", {left} of them not carried out" if left else ""
            yield f"{count} {kind}{by}: {reason_message(reason, kind)}{more}"
    decided_by = set()  # of a custom strategy: its name, or the fault in it
    for inputs in (json.loads(row["inputs"]) for row in cycle):
        if "strategy" in inputs.get("skipped", {}):
            decided_by.add(str(inputs["skipped"]["strategy"]))
        elif "code" in inputs:
            decided_by.add(f"decided by your own code, {inputs['code']}")
    yield from sorted(decided_by)


def _candidate_messages(rows: ExplainRows) -> Iterable[str]:
    since_ms = rows.at_ms - rows.window_ms
    recent = [row for row in rows.decisions if row["at_ms"] >= since_ms]
    kinds = Counter((row["kind"], row["reason"]) for row in recent)
    refused = Counter((row["kind"], row["reason"]) for row in recent if is_refused(row))
    yield f"{count_of(rows.cycles(), 'cycle')} in the last {duration(rows.window_ms)}"
    for (kind, reason), count in sorted(kinds.items(), key=lambda item: (-item[1], item[0])):
        left = refused[kind, reason]
        not_done = f" ({left} of them not carried out)" if left else ""
        yield f"{count} {kind}{not_done}: {reason_message(reason, kind)}"
    outcomes = Counter(row["outcome"] for row in rows.effects)
    if outcomes:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        yield f"what became of moves: {listed}"


def _blocks(rows: ExplainRows) -> Iterable[str]:
    yield from (one.message for one in blocked_status(blocked_rows(rows), rows.at_ms))
    yield from (gap.message() for gap in gaps(rows.decisions, rows.config.pipeline, rows.at_ms))
    if rows.rules("brake"):
        yield "the brake is on: nothing is balanced until `ballast resume --release-brake`"
    quiet_until_ms = rows.config.cluster.quiet_until_ms(rows.at_ms)
    if quiet_until_ms:
        yield f"quiet hours until {instant(quiet_until_ms)}: no cycle sheds or splits"
    for name, value in rows.rules("paused").items():
        since = instant(value["since_ms"])
        yield f"paused since {since}: {name or 'the whole cluster'} {value.get('reason', '')}"
    pins = [pin for pin in rows.pins if pin["is_set"]]
    if pins:
        yield f"{count_of(len(pins), 'bundle')} pinned"
    for kind in ("excluded", "isolation", "anti_affinity", "drain"):
        names = sorted(rows.rules(kind))
        if names:
            yield f"{kind}: {', '.join(names[:_SHOWN])}{' ...' if names[_SHOWN:] else ''}"


def _changes(rows: ExplainRows, cycle: list[Row]) -> Iterable[str]:
    """Yield how far brokers are from shedding, and what keeps bundles on hot ones."""
    for row in cycle:
        for nearest in json.loads(row["inputs"]).get("nearest", ()):
            yield f"{nearest['broker']}: {trigger_message(nearest)}"
    blocked = sorted(blocked_rows(rows), key=lambda row: -json.loads(row["inputs"])["usage"])
    yield from constraint_messages(rows, blocked[:_BLOCKED_SHOWN])


def _losers(rows: ExplainRows, decision: Row) -> Iterable[str]:
    """Yield the other candidates that were considered.

    They are the decision's own rows, and its cycle's rows about the same broker.
    """
    is_of_cycle = decision["kind"] in ("skip", "transfer", "unload") and not json.loads(
        decision["inputs"]
    ).get("command_id")
    for row in rows.candidates:
        if row["at_ms"] != decision["at_ms"]:
            continue
        is_own = row["decision_id"] == decision["decision_id"]
        is_near = is_of_cycle and (
            decision["kind"] == "skip"
            or not row["subject"]
            or decision["source"] in (row["subject"], row["broker"])
        )
        if is_own or (is_near and not row["decision_id"]):
            what = row["subject"] or count_of(row["count"], "other")
            where = f" at {row['broker']}" if row["broker"] else ""
            shown = number(row["number"])
            about = f" ({shown})" if shown != "-" else ""
            more = row["count"] - 1 if row["subject"] and row["broker"] else 0
            also = f", and {count_of(more, 'other broker')}" if more else ""
            yield f"{row['phase']}: {what}{where}{also}{about}: {verdict_message(row['verdict'])}"
