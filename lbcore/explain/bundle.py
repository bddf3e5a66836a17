"""Explanation of a bundle: its owner, the alternatives, and what would move it.

Takes rows of the tables; returns sentences and numbers. It answers the questions of Pulsar's users
in apache/pulsar issue 17860.
"""

import json
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from lbcore.balancer.rules import PROPOSAL, PlanProposal
from lbcore.config.cluster import EXTERNAL
from lbcore.explain.broker import newest_cycle, newest_trigger, unload_advice
from lbcore.explain.explanation import (
    ExplainRows,
    Explanation,
    Row,
    brokers_of,
    count_of,
    has_moved,
    number,
    percent,
)
from lbcore.explain.reasons import cause_messages, since_message, trigger_message, verdict_message
from lbcore.model.times import duration, instant
from lbcore.ownership.changes import serving_broker
from lbcore.ownership.records import State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.packing import from_plain
from lbcore.plan.filter.policies import IsolationPolicy, matches_any
from lbcore.plan.registry import effective_grace_ms

_TOO_LARGE_SHARE = 0.5


def explain_bundle(rows: ExplainRows, bundle: str) -> Explanation | None:
    """Explain the bundle as of `rows.at_ms`; None if no bundle had this name. O(rows)."""
    record = next((row for row in rows.records if row["bundle"] == bundle), None)
    if record is None:
        return None
    owner = serving_broker(record)
    blocks = tuple(_blocks(rows, record))
    return Explanation(
        kind="bundle",
        subject=bundle,
        at_ms=rows.at_ms,
        headline=_headline(rows, record),
        why=tuple(cause_messages(rows, _origin(rows, record))),
        candidates=(*_candidate_messages(rows, bundle, owner), *_placed_unnamed(rows, record)),
        blocks=blocks or ("nothing: it may be moved",),
        changes=tuple(_changes(rows, record, owner, is_free=not blocks)),
        numbers=_numbers(rows, record, owner),
    )


def _headline(rows: ExplainRows, record: Row) -> str:
    by_state = {"Owned": f"is owned by {record['destination']}", "Free": "has no owner"}
    state = by_state.get(record["state"], f"is {record['state']} ({brokers_of(record)})")
    return f"{record['bundle']} {state} since {since_message(record['at_ms'], rows.at_ms)}."


def _origin(rows: ExplainRows, record: Row) -> Row:
    """Return the event that began the bundle's last transition.

    An acknowledgement ends a transition, so it does not count.
    """
    return max(
        (
            event
            for event in rows.events
            if event["version_id"] <= record["version_id"] and event["cause"] != "ack"
        ),
        key=itemgetter("version_id"),
        default=record,
    )


def _candidate_messages(rows: ExplainRows, bundle: str, owner: str) -> Iterable[str]:
    own = [row for row in rows.candidates if row["subject"] == bundle]
    span = f"{count_of(rows.cycles(), 'cycle')} in the last {duration(rows.window_ms)}"
    since_ms = rows.at_ms - rows.window_ms
    chosen = [r for r in rows.decisions if r["bundle"] == bundle and r["at_ms"] >= since_ms]
    for (kind, reason), count in sorted(Counter((r["kind"], r["reason"]) for r in chosen).items()):
        yield f"chosen {count_of(count, 'time')} in {span}: {kind} ({reason})"
    if not own and not chosen:
        yield f"by name in none of {span}: it was not among those that nearly moved or split"
    counts = Counter((row["phase"], row["verdict"]) for row in own)
    for (phase, verdict), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        alike = (row for row in own if (row["phase"], row["verdict"]) == (phase, verdict))
        last = max(alike, key=itemgetter("at_ms"))
        yield (
            f"{phase}, in {count} of {span}: {verdict_message(verdict)}"
            f"{_last_number(last)}; last {instant(last['at_ms'])}"
        )
    trigger = newest_trigger(rows, owner)
    if owner and trigger is not None:
        verdict = verdict_message(trigger["verdict"])
        yield f"its broker {owner}: {verdict}: {trigger_message(trigger)}"


def _placed_unnamed(rows: ExplainRows, record: Row) -> Iterable[str]:
    """Yield a note if the decision that placed the bundle does not list it by name.

    Such a decision placed more bundles than it lists.
    """
    decision_id = _origin(rows, record)["decision_id"]
    of_it = [row for row in rows.candidates if decision_id and row["decision_id"] == decision_id]
    if any(row["subject"] == record["bundle"] for row in of_it):
        return
    for row in of_it:
        if row["phase"] == "assign" and not row["subject"]:
            yield (
                f"assign: one of {row['count']} bundles that its decision placed and that are not "
                "told by name; who was open, and at which load, stands with the heaviest of "
                f"them: ballast explain decision {decision_id}"
            )


def _last_number(row: Row) -> str:
    """Return a candidate's number as text, with its limit or broker if known."""
    if row["hits_needed"]:
        limit = json.loads(row["detail"]).get("limit", "")
        return (
            f" ({number(row['number'])} times the limit {limit}, {row['hits']} of "
            f"{row['hits_needed']} hits)"
        )
    about = ", ".join(text for text in (row["broker"], number(row["number"])) if text != "-")
    return f" ({about})" if about else ""


def _blocks(rows: ExplainRows, record: Row) -> Iterable[str]:
    """Yield the reasons why balancing may not move the bundle now."""
    bundle, namespace = record["bundle"], record["bundle"].rpartition("/")[0]
    yield from _states(rows, record)
    for pin in rows.pins:
        if pin["bundle"] == bundle and pin["is_set"]:
            until = f"until {instant(pin['until_ms'])}" if pin["until_ms"] else "until unpinned"
            by = f"by {pin['principal']}" if pin["principal"] else ""
            owner = "" if pin["owner"] == pin["principal"] else pin["owner"]
            about = ", ".join(filter(None, (by, owner, pin["reason"])))
            words = f"pinned to {pin['broker']} {until}" + (f" ({about})" if about else "")
            yield words + _strayed(rows, record, str(pin["broker"]))
    for name, value in rows.rules("paused").items():
        if name in ("", namespace):
            where = "the whole cluster" if not name else f"namespace {name}"
            about = ", ".join(filter(None, (value.get("by"), value.get("reason"))))
            yield f"balancing is paused for {where}" + (f" ({about})" if about else "")
    if rows.rules("brake"):
        yield "the brake is on: nothing is balanced until `ballast resume --release-brake`"
    if namespace in {*rows.rules("excluded"), *rows.config.shedding.excluded_namespaces}:
        yield f"namespace {namespace} is excluded from shedding"
    newest_ms = max((row["at_ms"] for row in newest_cycle(rows)), default=0)
    if any(
        (row["subject"], row["verdict"], row["at_ms"]) == (bundle, "merging", newest_ms)
        for row in rows.candidates
    ):
        yield f"it {verdict_message('merging')}"
    yield from _rejected(rows, bundle)
    yield from _cool_downs(rows)
    yield from _policies(rows, namespace)


def _states(rows: ExplainRows, record: Row) -> Iterable[str]:
    """Yield what keeps the bundle because of its own state, or its owner's."""
    if State(record["state"]) in IN_FLIGHT:
        yield f"it is changing hands: {record['state']} ({brokers_of(record)})"
        yield _awaited(rows, record)
    elif record["state"] != "Owned":
        yield "it has no owner"
    owner = serving_broker(record)
    if rows.state_of(owner) == "silent":
        yield (
            f"its owner {owner} is silent: nobody serves it until it has another one; what that "
            "waits for: `ballast status`"
        )


def _strayed(rows: ExplainRows, record: Row, broker: str) -> str:
    """Return why a pinned bundle is elsewhere, and what brings it back.

    "" = it is at its pin.
    """
    owner = serving_broker(record)
    if owner == broker:
        return ""
    state, at = rows.state_of(broker), f"; it is at {owner or 'nobody'}"
    if broker in rows.rules("drain") or state == "draining":
        when = f"when {broker} takes bundles again"
        return f"{at} because {broker} is being emptied: it comes back {when}"
    if state != "active":
        return f"{at} because {broker} is {state}: it comes back when {broker} is active"
    return f"{at}, and the next cycle moves it there"


def _policies(rows: ExplainRows, namespace: str) -> Iterable[str]:
    """Yield the policies that limit which brokers may own the namespace's bundles.

    Of isolation policies, only the first by name that matches the namespace applies.
    """
    for name, value in sorted(rows.rules("isolation").items()):
        policy = IsolationPolicy.from_json(name, value)
        if matches_any(policy.namespaces, namespace):
            words = f"isolation policy {name}: only brokers like {', '.join(policy.primary)}"
            if policy.secondary:
                words += f", or {', '.join(policy.secondary)}"
                words += f" with fewer than {policy.min_limit} of these"
            yield words
            break
    group = rows.rules("anti_affinity").get(namespace, {}).get("group", "")
    if group:
        yield f"anti-affinity group {group}: kept apart from its other namespaces"


def _rejected(rows: ExplainRows, bundle: str) -> Iterable[str]:
    """Yield the plans, rejected or stopped, whose remaining steps have the bundle."""
    for name, value in rows.rules(PROPOSAL).items():
        plan, grace_ms = from_plain(PlanProposal, value), rows.config.shedding.grace_period_ms
        if bundle in plan.bundles_in_grace(rows.at_ms, grace_ms):
            until = instant(plan.rejected_ms + grace_ms)
            yield (
                f"{plan.answered_by} {plan.station.value} plan {name}, which would move or split "
                f"it: it rests until {until} (shedding.grace_period_ms)"
            )


def _cool_downs(rows: ExplainRows) -> Iterable[str]:
    """Yield the cool-downs after the bundle's last moves that have not ended."""
    cool_down_ms, grace_ms = rows.config.shedding.cool_down_ms, effective_grace_ms(rows.config)
    moved = [row["at_ms"] for row in rows.events if has_moved(row)]
    shed = [row["at_ms"] for row in rows.events if row["cause"] == "shed"]
    for times, keep_ms, why in (
        (moved, cool_down_ms, "it got another owner (shedding.cool_down_ms"),
        (shed, grace_ms, "it was shed (shedding.grace_period_ms, or until reports show it"),
    ):
        until_ms = max(times, default=0) + keep_ms
        if times and until_ms > rows.at_ms:
            left = duration(until_ms - rows.at_ms)
            yield f"cool-down until {instant(until_ms)}, for {left} more: {why}, {keep_ms} ms)"


def _changes(rows: ExplainRows, record: Row, owner: str, *, is_free: bool) -> Iterable[str]:
    """Yield the changes that would make balancing move the bundle."""
    bundle = record["bundle"]
    if not is_free:
        yield "first, what prevents a move must end"
    if not owner:
        if record["state"] == "Assigning":
            yield f"{record['destination']} must have opened it first, or who gets it then"
        else:
            yield "it needs an owner first: an open broker that its policies admit"
        return
    if rows.state_of(owner) == "silent":
        yield f"{owner} must report again, or another broker that may take it must be open"
        return
    yield from unload_advice(rows, owner)
    if rows.config.cluster.authority == EXTERNAL:
        yield "it can't be merged with a neighbour: Pulsar's brokers own it, and they only split"
    share = _load_of(rows, bundle, owner).get(_SHARE) or 0.0
    if share > _TOO_LARGE_SHARE:
        verdict = "splitting it would help; it is not over a limit of splitting.max_* now"
        seen = [r for r in rows.candidates if r["subject"] == bundle and r["phase"] == "split"]
        if seen:
            last = max(seen, key=itemgetter("at_ms"))
            verdict = f"it {verdict_message(last['verdict'])}{_last_number(last)}"
        yield (
            f"it is {percent(share)} of its broker's traffic, so moving it would move the hot spot "
            f"with it: {verdict}"
        )


def _awaited(rows: ExplainRows, record: Row) -> str:
    """Return which broker has to act, and what happens if it does not.

    The deadlines are those of `lbcore.ownership.repair`.
    """
    config, source = rows.config.ownership, record["source"]
    if record["state"] == "Assigning":
        until = instant(record["at_ms"] + config.in_flight_timeout_ms)
        return f"{record['destination']} is to open it; if it has not by {until}, another one is"
    what = {"Releasing": "close", "Splitting": "split"}.get(record["state"], "merge")
    return (
        f"{source} is to {what} it; it keeps it if it says nothing of that for "
        f"{duration(config.in_flight_timeout_ms)}, or is not done by "
        f"{instant(record['at_ms'] + config.unload_timeout_ms)}"
    )


_LOAD_COLUMNS = (
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
    "topics",
    "sessions",
)
_SHARE = "share of its broker's messages"


def _load_of(rows: ExplainRows, bundle: str, owner: str) -> dict[str, float | None]:
    """Return the bundle's load by load_history, and its part of its broker's messages."""
    shown = rows.loads().get(owner)
    if shown is None or bundle not in shown.row["bundles"]:
        return {}
    load = shown.row
    at = list(load["bundles"]).index(bundle)
    total = sum(load["msg_rate_in"]) + sum(load["msg_rate_out"])
    share = (load["msg_rate_in"][at] + load["msg_rate_out"][at]) / total if total else None
    return {**{name: float(load[name][at]) for name in _LOAD_COLUMNS}, _SHARE: share}


def _numbers(rows: ExplainRows, record: Row, owner: str) -> dict[str, object]:
    found: dict[str, object] = {
        "state": record["state"],
        "version": record["version_id"],
        "cause": record["cause"],
        "decision": record["decision_id"],
        "command": record["command_id"],
        **_load_of(rows, record["bundle"], owner),
    }
    return {name: value for name, value in found.items() if value not in ("", None)}
